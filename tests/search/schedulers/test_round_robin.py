from __future__ import annotations

import pytest

from autotune.errors import InvalidValueError
from autotune.search.schedulers import RoundRobin, SchedulerContext, TaskInfo
from autotune.testing.task_scheduler_suite import TaskSchedulerFactory, TaskSchedulerSuite


class TestRoundRobin(TaskSchedulerSuite):
    @pytest.fixture
    def task_scheduler_factory(self) -> TaskSchedulerFactory:
        return RoundRobin


def test_tasks_take_turns() -> None:
    scheduler = RoundRobin(SchedulerContext(tasks=[TaskInfo(weight, 1e9) for weight in (1, 0, 5)]))
    served = []
    for step in range(9):
        task = scheduler.next_task()
        assert task is not None
        served.append(task)
        scheduler.tell(task, 1.0, 0 if step == 4 else 16)
    assert served == [0, 1, 2, 0, 1, 2, 0, 2, 0]


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_malformed_tasks_are_refused(weight: float) -> None:
    with pytest.raises(InvalidValueError, match="weight of task 1"):
        RoundRobin(SchedulerContext(tasks=[TaskInfo(1.0, 1.0), TaskInfo(weight, 1.0)]))


def test_malformed_rounds_are_refused() -> None:
    scheduler = RoundRobin(SchedulerContext(tasks=[TaskInfo(1.0, 1.0)]))
    with pytest.raises(InvalidValueError, match="latency of task 0"):
        scheduler.tell(0, -1.0, 16)
    with pytest.raises(InvalidValueError, match="-2 trials"):
        scheduler.tell(0, 1.0, -2)
