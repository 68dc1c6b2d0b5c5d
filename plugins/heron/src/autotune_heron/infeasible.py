"""Base of strategies whose populations may break constraints."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.nest import Tape
from autotune.sketches import CandidateBatch, Sketch, per_sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import residual_tape
from autotune_heron.options import RoundOptions
from autotune_heron.rounds import Offspring, RoundStrategy

__all__ = ["InfeasibleRowsStrategy", "is_computable", "mean_ranks"]

# Quantities of a nest are products of parameters, extents that are not split, and bytes: with so
# many bits of the parameters, all fit 64 bits.
_MOST_BITS = 48.0

_Options = TypeVar("_Options", bound=RoundOptions)


class InfeasibleRowsStrategy(RoundStrategy[_Options]):
    """Base: rows that break constraints are scored and may be parents, but are never measured.

    In Heron an infeasible row that is picked fails and costs a trial. Here none is picked: it
    costs a prediction and a place in the population. None outlives a round. Rows that are so far
    off that what they would compute cannot be counted are lost.
    """

    def _is_feasible(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        return self._space.contains(batch)

    def _note(
        self, offspring: Offspring, sketch: int, children: Matrix, mothers: Matrix, fathers: Matrix
    ) -> None:
        """Add the children of a sketch that can be scored."""
        feasible = self._feasible[sketch]
        kept = is_computable(children) | feasible.contains(children)
        offspring.note(sketch, children[kept], mothers[kept], fathers[kept], feasible)

    def _residuals_of(self, batch: CandidateBatch) -> list[NDArray[np.int64]]:
        """For each sketch, by how much rows violate its constraints, [n, constraints]."""
        return [_tape(sketch).evaluate(matrix) for sketch, matrix in batch.parts]

    def _violations(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Sum of the residuals of each row, [n]; 0 for feasible rows only."""
        parts = [found.sum(axis=1, dtype=np.float64) for found in self._residuals_of(batch)]
        return np.concatenate([np.zeros(0), *parts])


@partial(per_sketch, exact=True)
def _tape(sketch: Sketch) -> Tape:
    return residual_tape(sketch.param_names, sketch.constraints)


def is_computable(rows: Matrix) -> NDArray[np.bool_]:
    """Tell if the product of the values of each row [n, params] leaves room in 64 bits, [n]."""
    return np.asarray(np.log2(np.maximum(rows, 1)).sum(axis=1) <= _MOST_BITS)


def mean_ranks(residuals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean over the constraints of the rank of each row among all, by residual, in [0, 1].

    The measure of violation of IDEA (Singh et al., SEAL 2008), which needs no common unit:
    satisfied constraints have rank 0, equal residuals equal ranks.

    Args:
        residuals: [n, constraints], not negative.

    Returns:
        [n]; 0 for rows without a violation only.
    """
    n, constraints = residuals.shape
    if not n or not constraints:
        return np.zeros(n)
    total = np.zeros(n)
    for column in residuals.T:
        values, places = np.unique(np.append(column, 0), return_inverse=True)
        total += places[:-1] / max(1, len(values) - 1)
    return np.asarray(total / constraints)
