from __future__ import annotations

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

from autotune.testing.strategy_suite import StrategySuite, made

SMALL = {"population": 24, "children": 16, "generations": 2, "elite": 4}
PAPER = {**SMALL, "variant": "paper"}
HEAD = {**SMALL, "variant": "head", "history": 0, "key_share": 1.0, "parents": 1}


@pytest.mark.parametrize(
    "strategy_factory",
    [
        *thinned([made(HeronStrategy, **it) for it in (SMALL, PAPER, HEAD)], 3),
        made(HeronRandomStrategy, **SMALL),
        made(HeronGeneticStrategy, **SMALL, infeasible="repair"),
        made(HeronAnnealingStrategy, **PAPER),
        made(HeronStochasticRankingStrategy, **PAPER),
        made(HeronDecodingStrategy, **PAPER),
        made(HeronIdeaStrategy, **PAPER),
    ],
)
class TestHeron(StrategySuite):
    """Every strategy of this plugin."""
