"""Steps from a configuration to those near it, inside the feasible set."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.search_space import SearchSpace

__all__ = ["FeasibleMoves", "reference_rows"]

_REFERENCE = 2048
_JOINT = 16
"""Moves that the space itself proposes where parameters are so tied that fewer change alone."""
_MOST_VALUES = 32
"""Of one parameter that are tried: the nearest on both sides where it has more."""


def reference_rows(space: SearchSpace) -> CandidateBatch:
    """A sample of a space, one part for each sketch, the same in every run."""
    if not space.count():
        return CandidateBatch.of_rows(space.sketches(), [[] for _ in space.sketches()])
    size = max(_REFERENCE, 8 * len(space.sketches()))
    return space.sample(size, np.random.default_rng(0)).over(space.sketches())


class FeasibleMoves:
    """The configurations that differ from a given one in one parameter.

    Where there are few of these, moves that the space itself proposes are added.

    Args:
        space: Where they are feasible.
        reference: Rows of the space, one part for each sketch, whose values are tried.
    """

    def __init__(self, space: SearchSpace, reference: CandidateBatch) -> None:
        self._space = space
        self._sketches = reference.sketches
        self._values = [
            [np.unique(column) for column in matrix.T] for matrix in reference.matrices
        ]

    def around(self, sketch: int, row: Matrix, rng: np.random.Generator) -> CandidateBatch:
        """Feasible rows next to ``row``, [params], of the sketch with this number.

        A row may be there twice. At most 32 values of a parameter are tried, the nearest.
        """
        own: Sketch = self._sketches[sketch]
        changed = [row[:0].reshape(0, len(row))]
        for place, values in enumerate(self._values[sketch]):
            tried = _nearest(values, int(row[place]))
            rows = np.repeat(row[None], len(tried), axis=0)
            rows[:, place] = tried
            changed.append(rows)
        single = CandidateBatch(((own, np.concatenate(changed)),))
        single = single.select(self._space.contains(single)) if len(single) else single
        if len(single) >= _JOINT:
            return single
        joint = CandidateBatch(((own, np.repeat(row[None], _JOINT, axis=0)),))
        return single + self._space.neighbours(joint, rng)


def _nearest(values: NDArray[np.int64], value: int) -> NDArray[np.int64]:
    others: NDArray[np.int64] = values[values != value]
    if len(others) <= _MOST_VALUES:
        return others
    at = int(np.searchsorted(others, value))
    low = min(max(at - _MOST_VALUES // 2, 0), len(others) - _MOST_VALUES)
    near: NDArray[np.int64] = others[low : low + _MOST_VALUES]
    return near
