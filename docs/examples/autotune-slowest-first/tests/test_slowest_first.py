import pytest
from autotune_slowest_first.scheduler import SlowestFirst

from autotune.testing.task_scheduler_suite import TaskSchedulerSuite


class TestSlowestFirst(TaskSchedulerSuite):
    @pytest.fixture
    def task_scheduler_factory(self):
        return SlowestFirst
