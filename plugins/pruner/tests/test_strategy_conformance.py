from __future__ import annotations

import attrs
import numpy as np
import pytest
from autotune_pruner.strategy import MoAPrunerStrategy, PrunerStrategy
from numpy.typing import NDArray
from thinning import thinned
from toy_parts import KnowingDraft

from autotune.models.pruning import PruningModel
from autotune.sketches import CandidateBatch
from autotune.testing.strategy_suite import StrategyFactory, StrategySuite, made


class Illegal(PruningModel):
    """A pruning model for which nothing can run."""

    name = "illegal"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return np.full(len(batch), -np.inf)


SMALL = {"population": 64, "drafts": 24}


def drafting(model: PruningModel) -> StrategyFactory:
    return lambda context: PrunerStrategy(attrs.evolve(context, pruning_model=model))


PUBLISHED = {**SMALL, "fidelity": "published"}


@pytest.mark.parametrize(
    "strategy_factory",
    [
        *thinned(
            [
                made(PrunerStrategy, **SMALL, configurations=200),
                made(
                    PrunerStrategy,
                    **SMALL,
                    generations=0,
                    draft_generations=0,
                    measured_ratio=0.0,
                ),
                made(PrunerStrategy, **{**SMALL, "drafts": 1}, epsilon=1.0, sketch_trials=0),
                made(PrunerStrategy, **PUBLISHED, refresh=3, generations=3, epsilon=0.3),
            ],
            3,
        ),
        *thinned(
            [
                made(drafting(draft), **options)
                for draft in (KnowingDraft(), Illegal())
                for options in (SMALL, PUBLISHED)
            ],
            3,
        ),
        made(MoAPrunerStrategy, **SMALL),
    ],
)
class TestPruner(StrategySuite):
    """Both strategies, with drafts that know the answer, nothing, or that nothing can run."""
