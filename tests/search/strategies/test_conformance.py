from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray
from thinning import thinned

from autotune.models.pruning import PruningModel
from autotune.search.strategies import (
    AnnealingStrategy,
    AutoStrategy,
    EvolutionaryStrategy,
    GridStrategy,
    RandomStrategy,
    StrategyContext,
    sampling,
)
from autotune.sketches import CandidateBatch
from autotune.testing.search_space_suite import SearchSpaceFactory, SearchSpaceSuite
from autotune.testing.strategy_suite import StrategyFactory, StrategySuite
from autotune.testing.toy_space import ToySpace, toy_latencies


class TestRandom(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return RandomStrategy


class TestGrid(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return GridStrategy


class TestEvolutionary(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return EvolutionaryStrategy

    @pytest.fixture(
        params=thinned(
            [
                {"population": 64},
                {"parents": "score", "population": 32},
                {"population": 2, "generations": 1},
                {"generations": 0, "epsilon": 0.0, "population": 64},
                {"epsilon": 1.0, "population": 16},
                {"crossover_probability": 0.0, "population": 32},
                {"crossover_probability": 1.0, "mutation_probability": 0.0, "population": 32},
                {"elite_share": 1.0, "population": 32},
            ],
            4,
        ),
        ids=str,
    )
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        options: Mapping[str, Any] = request.param
        return options


class TestAnnealing(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return AnnealingStrategy

    @pytest.fixture(params=thinned([{}, {"starts": 1, "patience": 1}], 2), ids=str)
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        options: Mapping[str, Any] = request.param
        return options


class TestAuto(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return AutoStrategy

    @pytest.fixture(params=thinned([{}, {"initial": 2, "most_observed": 16}], 2), ids=str)
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        options: Mapping[str, Any] = request.param
        return options


class TestAutoBeyondEnumeration(StrategySuite):
    @pytest.fixture
    def strategy_factory(self, monkeypatch: pytest.MonkeyPatch) -> StrategyFactory:
        monkeypatch.setattr(sampling, "ENUMERATION_LIMIT", 10)
        return AutoStrategy

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"pool": 64}


class ToyDraft(PruningModel):
    """A pruning model that knows the answer."""

    name = "toy"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return -toy_latencies(batch)


class TestEvolutionaryWithPruning(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        def create(context: StrategyContext) -> EvolutionaryStrategy:
            return EvolutionaryStrategy(attrs.evolve(context, pruning_model=ToyDraft()))

        return create

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"population": 64}


class TestToySpace(SearchSpaceSuite):
    @pytest.fixture(params=[1, 2, 8], ids="extent {}".format)
    def search_space_factory(self, request: pytest.FixtureRequest) -> SearchSpaceFactory:
        return lambda: ToySpace(extent=request.param)
