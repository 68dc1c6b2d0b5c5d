"""Random scores: the baseline of every cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.models.context import ModelContext
from autotune.models.cost.cost_model import CostModel
from autotune.models.cost.model_file import check_model
from autotune.plugins.options import NoOptions, read_options
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import Matrix
from autotune.store.records import Outcome

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class RandomCostModel(CostModel):
    """Scores in [0, 1) that depend on the seed, the sketch and the values, and on nothing else.

    A candidate has the same score in every batch and process.

    Args:
        context: Its seed chooses the scores.

    Raises:
        InvalidValueError: an option is given.
    """

    name = "random"

    def __init__(self, context: ModelContext) -> None:
        read_options(f"cost model {self.name!r}", NoOptions, context.options)
        self._seed = context.seed

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]."""
        return batch.each(self._scores)

    def _scores(self, sketch: Sketch, matrix: Matrix) -> NDArray[np.float64]:
        salt = (int(sketch.spelling, 16) ^ self._seed) & 0xFFFFFFFFFFFFFFFF
        hashed = _mixed(np.full(len(matrix), salt, dtype=np.uint64))
        for column in matrix.T:
            hashed = _mixed(hashed ^ column.astype(np.uint64))
        scores: NDArray[np.float64] = (hashed >> np.uint64(11)) * 2.0**-53
        return scores

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Do nothing."""

    def state(self) -> dict[str, Any]:
        """A JSON object with the seed."""
        return {"model": self.name, "seed": self._seed}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another model.
        """
        check_model(self.name, state)
        self._seed = int(state["seed"])


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Take a step of splitmix64 (Steele, Lea and Flood, OOPSLA 2014); wraps around."""
    values = values + _GAMMA
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return mixed
