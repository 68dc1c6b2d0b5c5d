import pytest
from autotune_hill_climb.strategy import HillClimb

from autotune.testing.strategy_suite import StrategySuite


class TestHillClimb(StrategySuite):
    @pytest.fixture
    def strategy_factory(self):
        return HillClimb
