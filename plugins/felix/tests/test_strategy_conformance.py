from __future__ import annotations

import attrs
import numpy as np
import pytest
from autotune_felix.strategy import FelixStrategy
from bowls import Bowl, Reals
from thinning import thinned

from autotune.search.strategies import StrategyContext
from autotune.testing.strategy_suite import StrategySuite, made

SMALL = {"seeds": 4, "steps": 4}


def nowhere(rows: Reals, value: Reals, gradient: Reals) -> tuple[Reals, Reals]:
    return np.full(len(rows), np.nan), gradient


def half(rows: Reals, value: Reals, gradient: Reals) -> tuple[Reals, Reals]:
    bad = rows[:, 0] > 2
    return np.where(bad, -np.inf, value), np.where(bad[:, None], np.nan, gradient)


def felix(context: StrategyContext) -> FelixStrategy:
    return FelixStrategy(attrs.evolve(context, cost_model=Bowl()))


@pytest.mark.parametrize(
    "strategy_factory",
    thinned(
        [
            made(felix, **SMALL),
            made(felix, **SMALL, fidelity="published"),
            made(felix, **SMALL, force="fixed", tournament=1, measured_share=1.0, sketches=1),
            made(felix, **SMALL, force="matched", rounding="independent", ranking="misaligned"),
        ],
        4,
    ),
)
class TestFelix(StrategySuite):
    """With a model that knows an optimum."""


@pytest.mark.parametrize(
    "strategy_factory",
    [
        made(lambda it, bowl=bowl: FelixStrategy(attrs.evolve(it, cost_model=bowl)), **SMALL)
        for bowl in (Bowl(spoil=nowhere), Bowl(spoil=half))
    ],
)
class TestFelixWithBadPredictions(StrategySuite):
    """With models that predict no numbers, here or everywhere."""
