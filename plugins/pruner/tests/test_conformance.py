from __future__ import annotations

from typing import Any

import pytest
from autotune_pruner.cost_models import MomentumPaCM, PaCM, TenSetMLP
from autotune_pruner.ranking_model import RankingModel
from thinning import thinned

from autotune.models import ModelContext
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, TrainableCostModelSuite

TARGET = preset("skylake-avx512")


def ranking(cls: type[RankingModel], threads: int = 1, **options: Any) -> CostModelFactory:
    given = {"epochs": 4, **options}
    return lambda: cls(ModelContext(target=TARGET, seed=3, threads=threads, options=given))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "cost_model_factory",
    [
        *thinned([ranking(PaCM, fidelity=it) for it in ("ours", "published")], 2),
        ranking(TenSetMLP, threads=2),
        *thinned([ranking(MomentumPaCM, period=it) for it in (2, 1)], 2),
    ],
)
class TestRankingModels(TrainableCostModelSuite):
    """Every cost model of this plugin."""
