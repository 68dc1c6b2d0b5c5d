import pytest
from autotune_least_traffic.pruning_model import LeastTraffic

from autotune.models import ModelContext
from autotune.testing.pruning_model_suite import PruningModelSuite


class TestLeastTraffic(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self):
        return lambda: LeastTraffic(ModelContext())
