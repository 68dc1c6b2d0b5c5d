from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from autotune_pruner.strategy import MoAPrunerStrategy, PrunerStrategy
from numpy.typing import NDArray
from thinning import thinned
from toy_parts import KnowingDraft

from autotune.models.pruning import PruningModel
from autotune.search.strategies import StrategyContext
from autotune.sketches import CandidateBatch
from autotune.testing.strategy_suite import StrategyFactory, StrategySuite


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


CASES = [(draft, way) for draft in (KnowingDraft(), Illegal()) for way in ("ours", "published")]


class TestPrunerWithDraft(StrategySuite):
    @pytest.fixture(params=thinned([(case,) for case in CASES], 3))
    def case(self, request: pytest.FixtureRequest) -> tuple[PruningModel, str]:
        found: tuple[PruningModel, str] = request.param
        return found

    @pytest.fixture
    def strategy_factory(self, case: tuple[PruningModel, str]) -> StrategyFactory:
        def create(context: StrategyContext) -> PrunerStrategy:
            return PrunerStrategy(attrs.evolve(context, pruning_model=case[0]))

        return create

    @pytest.fixture
    def options(self, case: tuple[PruningModel, str]) -> Mapping[str, Any]:
        return {"fidelity": case[1], **SMALL}


class TestMoAPruner(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return MoAPrunerStrategy

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return SMALL
