from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from python_processes import run_python
from thinning import thinned
from toy_parts import KnowingDraft

from autotune.search.strategies import (
    AnnealingStrategy,
    AutoStrategy,
    EvolutionaryStrategy,
    GridStrategy,
    RandomStrategy,
    StrategyContext,
    sampling,
)
from autotune.testing.search_space_suite import SearchSpaceFactory, SearchSpaceSuite
from autotune.testing.strategy_suite import StrategyFactory, StrategySuite
from autotune.testing.toy_space import ToySpace


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


class TestEvolutionaryWithPruning(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        def create(context: StrategyContext) -> EvolutionaryStrategy:
            return EvolutionaryStrategy(attrs.evolve(context, pruning_model=KnowingDraft()))

        return create

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"population": 64}


class TestToySpace(SearchSpaceSuite):
    @pytest.fixture(params=[1, 2, 8], ids="extent {}".format)
    def search_space_factory(self, request: pytest.FixtureRequest) -> SearchSpaceFactory:
        return lambda: ToySpace(extent=request.param)


_SCRIPT = """
import json
import numpy as np
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees
from autotune.search import strategies
from autotune.testing.toy_space import ToySpace, toy_features, toy_outcome

asked = {}
for name, extent in {"Random": 64, "Evolutionary": 64, "Annealing": 8, "Auto": 8}.items():
    model = GradientBoostedTrees(ModelContext(seed=1), features=toy_features)
    context = strategies.StrategyContext(ToySpace(extent), np.random.default_rng(1), model)
    strategy = getattr(strategies, f"{name}Strategy")(context)
    asked[name] = []
    for _ in range(4):
        outcomes = [(candidate, toy_outcome(candidate)) for candidate in strategy.ask(8)]
        strategy.tell(outcomes)
        if name == "Evolutionary":
            model.update(outcomes)
        asked[name] += [candidate.digest for candidate, _ in outcomes]
print(json.dumps(asked))
"""


def test_one_seed_gives_the_same_candidates_in_every_process() -> None:
    one, other = (json.loads(run_python("-c", _SCRIPT, PYTHONHASHSEED=it)) for it in ("0", "4711"))
    assert one == other and {len(asked) for asked in one.values()} == {32}
