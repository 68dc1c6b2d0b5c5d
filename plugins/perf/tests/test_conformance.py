from __future__ import annotations

import pytest
from autotune_perf.energy import EnergyObserver
from autotune_perf.perf import PerfObserver

from autotune.testing.observer_suite import ObserverFactory, ObserverSuite


class TestPerf(ObserverSuite):
    @pytest.fixture
    def observer_factory(self) -> ObserverFactory:
        return PerfObserver


class TestEnergy(ObserverSuite):
    @pytest.fixture
    def observer_factory(self) -> ObserverFactory:
        return EnergyObserver
