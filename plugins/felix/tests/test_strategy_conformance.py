from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import pytest
from autotune_felix.strategy import FelixStrategy
from bowls import Bowl, Reals
from thinning import thinned

from autotune.testing.strategy_suite import StrategyFactory, StrategySuite

SMALL = {"seeds": 4, "steps": 4}


def nowhere(rows: Reals, value: Reals, gradient: Reals) -> tuple[Reals, Reals]:
    return np.full(len(rows), np.nan), gradient


def half(rows: Reals, value: Reals, gradient: Reals) -> tuple[Reals, Reals]:
    bad = rows[:, 0] > 2
    return np.where(bad, -np.inf, value), np.where(bad[:, None], np.nan, gradient)


def felix(model: Bowl) -> StrategyFactory:
    return lambda context: FelixStrategy(attrs.evolve(context, cost_model=model))


class TestFelix(StrategySuite):
    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        return felix(Bowl())

    @pytest.fixture(
        params=thinned(
            [
                SMALL,
                {**SMALL, "fidelity": "published"},
                {**SMALL, "force": "fixed", "tournament": 1, "measured_share": 1.0, "sketches": 1},
                {**SMALL, "force": "matched", "rounding": "independent", "ranking": "misaligned"},
            ],
            4,
        ),
        ids=str,
    )
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        options: Mapping[str, Any] = request.param
        return options


class TestFelixWithBadPredictions(StrategySuite):
    @pytest.fixture(params=[nowhere, half])
    def strategy_factory(self, request: pytest.FixtureRequest) -> StrategyFactory:
        return felix(Bowl(spoil=request.param))

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return SMALL
