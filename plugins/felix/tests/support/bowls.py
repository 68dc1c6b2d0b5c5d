"""Cost models with a gradient and a known optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.models.cost import DifferentiableCostModel
from autotune.sketches import Candidate, Sketch
from autotune.store.records import Outcome

Reals = NDArray[np.float64]


class Bowl(DifferentiableCostModel):
    """A squared distance by logarithms from one point of each sketch: convex in the exponents.

    Args:
        target: Logarithms of the optimum of a sketch, [params]; zeros by default.
        spoil: Changes what is predicted: values [n] and gradient [n, params] of rows.
    """

    name = "bowl"

    def __init__(
        self,
        target: Callable[[Sketch], Reals] | None = None,
        spoil: Callable[[Reals, Reals, Reals], tuple[Reals, Reals]] | None = None,
    ) -> None:
        self._target = target
        self._spoil = spoil
        self.evaluations = 0

    def relaxed(self, sketch: Sketch, rows: Reals) -> tuple[Reals, Reals]:
        target = np.zeros(rows.shape[1]) if self._target is None else self._target(sketch)
        self.evaluations += len(rows)
        away = np.log2(rows + 1) - target
        value = 0.1 * (away**2).sum(axis=1)
        gradient = 0.2 * away / ((rows + 1) * math.log(2.0))
        return (value, gradient) if self._spoil is None else self._spoil(rows, value, gradient)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Learn nothing."""

    def state(self) -> dict[str, Any]:
        return {"model": self.name}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore nothing."""


def around(row: Sequence[int]) -> Callable[[Sketch], Reals]:
    """A target at one configuration, for the sketches that have as many parameters."""
    return lambda sketch: np.log2(np.array(row, dtype=np.float64) + 1)
