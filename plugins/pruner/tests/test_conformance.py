from __future__ import annotations

from typing import Any

import pytest
from autotune_pruner.cost_models import PaCM, TenSetMLP
from autotune_pruner.momentum import MomentumPaCM

from autotune.models import ModelContext
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, TrainableCostModelSuite

TARGET = preset("skylake-avx512")
QUICK: dict[str, Any] = {"epochs": 4}


class TestPaCM(TrainableCostModelSuite):
    @pytest.fixture(params=["ours", "published"])
    def cost_model_factory(self, request: pytest.FixtureRequest) -> CostModelFactory:
        return lambda: PaCM(
            ModelContext(target=TARGET, seed=3, options={**QUICK, "fidelity": request.param})
        )


class TestTenSetMLP(TrainableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: TenSetMLP(ModelContext(target=TARGET, threads=2, options=QUICK))


class TestMomentumPaCM(TrainableCostModelSuite):
    @pytest.fixture(params=[1, 2], ids="period {}".format)
    def cost_model_factory(self, request: pytest.FixtureRequest) -> CostModelFactory:
        return lambda: MomentumPaCM(
            ModelContext(target=TARGET, options={**QUICK, "period": request.param})
        )
