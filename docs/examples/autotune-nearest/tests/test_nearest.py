import pytest
from autotune_nearest.cost_model import Nearest

from autotune.models import ModelContext
from autotune.testing.cost_model_suite import CostModelSuite


class TestNearest(CostModelSuite):
    @pytest.fixture
    def cost_model_factory(self):
        return lambda: Nearest(ModelContext())
