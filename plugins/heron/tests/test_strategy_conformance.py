from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from autotune_heron.annealing import HeronAnnealingStrategy
from autotune_heron.idea import HeronIdeaStrategy
from autotune_heron.stochastic_ranking import HeronStochasticRankingStrategy
from autotune_heron.strategies import (
    HeronDecodingStrategy,
    HeronGeneticStrategy,
    HeronRandomStrategy,
    HeronStrategy,
)
from thinning import thinned

from autotune.testing.strategy_suite import StrategyFactory, StrategySuite

SMALL = {"population": 24, "children": 16, "generations": 2, "elite": 4}


class TestHeron(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return HeronStrategy

    @pytest.fixture(
        params=thinned(
            [
                SMALL,
                {**SMALL, "variant": "paper"},
                {**SMALL, "variant": "head", "history": 0, "key_share": 1.0, "parents": 1},
            ],
            3,
        ),
        ids=str,
    )
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        options: Mapping[str, Any] = request.param
        return options


class TestHeronRandom(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return HeronRandomStrategy

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return SMALL


class TestHeronGenetic(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return HeronGeneticStrategy

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {**SMALL, "infeasible": "repair"}


class TestHeronAblations(StrategySuite):
    @pytest.fixture(
        params=[
            HeronAnnealingStrategy,
            HeronStochasticRankingStrategy,
            HeronDecodingStrategy,
            HeronIdeaStrategy,
        ]
    )
    def strategy_factory(self, request: pytest.FixtureRequest) -> StrategyFactory:
        factory: StrategyFactory = request.param
        return factory

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {**SMALL, "variant": "paper"}
