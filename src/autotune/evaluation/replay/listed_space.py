"""The search space of recorded configurations, which many runs share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Matrix
from autotune.spaces.parameters import Parameter, ParameterSpace, recorded_space

__all__ = ["ListedSpace", "listed_space"]

NEAREST = 10
_FIXED_POINT = 65536.0
_BELOW_ONE = 0.5


class ListedSpace(ParameterSpace):
    """A space of listed configurations that remembers what is near each of them.

    The moves are those of the feasible set, in which all parameters are one group: one of the ten
    nearest configurations, by the sum of differences of logarithms, drawn uniformly. To find them
    takes a look at the whole list, which one run after the other would repeat.
    """

    def __init__(self, space: ParameterSpace) -> None:
        feasible = space.feasible_set(space.sketch)
        super().__init__(space.sketch.workload, space.parameters, (), feasible)
        self._rows = feasible.listed(0, feasible.count)
        self._places = {row: place for place, row in enumerate(map(tuple, self._rows.tolist()))}
        logarithms = np.log2(np.maximum(self._rows, _BELOW_ONE))
        self._at = np.rint(logarithms * _FIXED_POINT).astype(np.int64)
        count = min(NEAREST, len(self._rows) - 1)
        self._near = np.full((len(self._rows), count), -1, dtype=np.int64)

    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        source = np.random.default_rng(int(rng.integers(2**64, dtype=np.uint64)))
        return CandidateBatch(
            tuple((sketch, self._moved(matrix, source)) for sketch, matrix in batch.parts)
        )

    def _moved(self, matrix: Matrix, rng: np.random.Generator) -> Matrix:
        moved: Matrix = matrix.copy()
        places = np.array([self._places.get(row, -1) for row in map(tuple, matrix.tolist())])
        inside = places >= 0
        count = self._near.shape[1]
        if not count or not inside.any():
            return moved
        for place in np.unique(places[inside]):
            if self._near[place, 0] < 0:
                self._near[place] = self._nearest(int(place))
        chosen = rng.integers(count, size=int(inside.sum()))
        moved[inside] = self._rows[self._near[places[inside], chosen]]
        return moved

    def _nearest(self, place: int) -> NDArray[np.int64]:
        """Numbers of the nearest rows other than this one; of equally near ones the first."""
        total, count = self._near.shape[0], self._near.shape[1]
        distances = np.abs(self._at - self._at[place]).sum(axis=1)
        # Numbers break ties, and are found again in the sum.
        keys = distances * total + np.arange(total)
        keys[place] = np.iinfo(np.int64).max
        nearest: NDArray[np.int64] = np.sort(np.partition(keys, count - 1)[:count]) % total
        return nearest


def listed_space(program: str, parameters: Sequence[Parameter], rows: Matrix) -> ListedSpace:
    """The space of these configurations, as of :func:`~autotune.spaces.parameters.recorded_space`.

    Raises:
        InvalidValueError: there is no row, one is there twice, or the shape is another.
    """
    return ListedSpace(recorded_space(program, parameters, rows))
