from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from autotune_pruner.strategy import MoAPrunerStrategy, PrunerStrategy
from numpy.typing import NDArray
from thinning import thinned

from autotune.models.pruning import PruningModel
from autotune.search.strategies import StrategyContext
from autotune.sketches import CandidateBatch
from autotune.testing.strategy_suite import StrategyFactory, StrategySuite
from autotune.testing.toy_space import toy_latencies


class ToyDraft(PruningModel):
    """A pruning model that knows the answer."""

    name = "toy"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return 1.0 / toy_latencies(batch)


class Illegal(PruningModel):
    """A pruning model for which nothing can run."""

    name = "illegal"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return np.full(len(batch), -np.inf)


SMALL = {"population": 64, "drafts": 24}


class TestPruner(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return PrunerStrategy

    @pytest.fixture(
        params=thinned(
            [
                {**SMALL, "configurations": 200},
                {**SMALL, "generations": 0, "draft_generations": 0, "measured_ratio": 0.0},
                {**SMALL, "drafts": 1, "epsilon": 1.0, "sketch_trials": 0},
                {**SMALL, "fidelity": "published", "refresh": 3, "generations": 3, "epsilon": 0.3},
            ],
            3,
        ),
        ids=str,
    )
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        options: Mapping[str, Any] = request.param
        return options


class TestPrunerWithDraft(StrategySuite):
    @pytest.fixture(params=[ToyDraft(), Illegal()], ids=["draft", "illegal"])
    def strategy_factory(self, request: pytest.FixtureRequest) -> StrategyFactory:
        def create(context: StrategyContext) -> PrunerStrategy:
            return PrunerStrategy(attrs.evolve(context, pruning_model=request.param))

        return create

    @pytest.fixture(params=["ours", "published"])
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"fidelity": request.param, **SMALL}


class TestMoAPruner(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return MoAPrunerStrategy

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return SMALL
