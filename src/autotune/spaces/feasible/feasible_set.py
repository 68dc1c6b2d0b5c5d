"""A set of integer points that native code counts, draws and moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.sketches.candidates import Matrix

if TYPE_CHECKING:
    from typing_extensions import Self

    from autotune import _native

_CHUNK = 4096
_SEEDS = 2**64


@frozen(eq=False)
class FeasibleSet:
    """Points over named integer columns, held as a graph that counts and draws them exactly.

    Everything drawn is a function of a seed and an index alone (Philox4x32-10, Salmon et al.,
    SC'11): ``first`` is the index of the first row, so that chunks and any number of threads give
    the rows that one call on one thread would give.

    Attributes:
        title: What the points belong to, for messages.
        columns: Names of the columns.
    """

    title: str
    columns: tuple[str, ...]
    _graph: _native.FeasibleSet

    @property
    def count(self) -> int:
        """Number of points, exactly; 0 when the constraints contradict."""
        high, low = self._graph.count
        return high << 64 | low

    @property
    def edges(self) -> int:
        """Size of the graph that holds the configurations, in edges."""
        return self._graph.edges

    def uniform(self, n: int, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """``n`` configurations, independent and exactly uniform; shape [n, params].

        Raises:
            InvalidValueError: the set is empty, or an argument is out of range.
        """
        self._check_drawing(n, seed, first, threads)
        return self._graph.uniform(n, seed, first, threads)

    def stratified(self, n: int, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """``n`` configurations; for each a parameter that varies, one of its feasible values and
        a configuration with that value are drawn, each uniformly.

        Raises:
            InvalidValueError: the set is empty, or an argument is out of range.
        """
        self._check_drawing(n, seed, first, threads)
        return self._graph.stratified(n, seed, first, threads)

    def contains(self, matrix: Matrix, threads: int = 1) -> NDArray[np.bool_]:
        """Return whether each row is feasible; [n]."""
        return self._graph.contains(self._rows(matrix), threads)

    def neighbours(self, matrix: Matrix, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """Each row with one group of parameters at one of its nearest feasible values.

        Distances are sums over the group's parameters of differences of logarithms; of the ten
        nearest rows of the group's table that are feasible beside the other groups one is drawn.
        A row that cannot move, or is infeasible itself, stays as it is.

        Raises:
            InvalidValueError: the set is empty, or an argument is out of range.
        """
        self._check_drawing(len(matrix), seed, first, threads)
        return self._graph.neighbours(self._rows(matrix), seed, first, threads)

    def crossover(
        self, mothers: Matrix, fathers: Matrix, seed: int, first: int = 0, threads: int = 1
    ) -> Matrix:
        """A mixture of each pair, every group of parameters from one of the two.

        Drawn uniformly from the feasible mixtures other than the parents; where there is none,
        the mother.

        Raises:
            InvalidValueError: the set is empty, or an argument is out of range.
        """
        if len(mothers) != len(fathers):
            raise InvalidValueError(f"{len(mothers)} mothers, but {len(fathers)} fathers")
        self._check_drawing(len(mothers), seed, first, threads)
        rows = self._rows(mothers), self._rows(fathers)
        return self._graph.crossover(*rows, seed, first, threads)

    def nearest(self, matrix: Matrix, threads: int = 1) -> Matrix:
        """For each row, whatever its values, a point at the least distance; [n, columns].

        The distance is the sum over columns of the absolute differences of logarithms, values
        below 1 counting as one half. A row that is a point stays as it is. Of several nearest
        points one is taken, always the same.

        Raises:
            InvalidValueError: the set is empty, or an argument is out of range.
        """
        self._check_drawing(len(matrix), 0, 0, threads)
        return self._graph.nearest(self._rows(matrix), threads)

    def values(self, name: str) -> tuple[int, ...]:
        """The values that a column has in at least one point, sorted.

        Raises:
            UnknownNameError: the name is not a column.
        """
        return tuple(self._graph.values(self._column(name)))

    def restrict(self, values: Mapping[str, Sequence[int]]) -> Self:
        """The configurations whose parameters have one of the values given for them.

        May be empty. Takes time linear in :attr:`edges`.

        Raises:
            UnknownNameError: a name is not a column.
        """
        columns = [self._column(name) for name in values]
        allowed = [[int(value) for value in given] for given in values.values()]
        return evolve(self, graph=self._graph.restricted(columns, allowed))

    def enumerate(self) -> Iterator[tuple[int, ...]]:
        """Every feasible configuration once, in a fixed order."""
        count = self.count
        for first in range(0, count, _CHUNK):
            yield from map(tuple, self.listed(first, min(_CHUNK, count - first)).tolist())

    def listed(self, first: int, n: int) -> Matrix:
        """``n`` configurations from position ``first`` of the enumeration on; [n, params].

        Raises:
            InvalidValueError: there are fewer.
        """
        if first < 0 or n < 0 or first + n > self.count:
            raise InvalidValueError(f"rows {first} to {first + n} of {self.count}")
        return self._graph.list((first >> 64, first % 2**64), n)

    def _column(self, name: str) -> int:
        if name not in self.columns:
            raise UnknownNameError(f"column of {self.title}", name, self.columns)
        return self.columns.index(name)

    def _rows(self, matrix: Matrix) -> Matrix:
        width = len(self.columns)
        if matrix.ndim != 2 or matrix.shape[1] != width or matrix.dtype != np.int64:
            raise InvalidValueError(
                f"configurations of {width} parameters are an int64 matrix [n, {width}], "
                f"not {matrix.dtype} {list(matrix.shape)}"
            )
        return np.ascontiguousarray(matrix)

    def _check_drawing(self, n: int, seed: int, first: int, threads: int) -> None:
        if not (0 <= seed < _SEEDS and first >= 0 and first + n <= _SEEDS):
            raise InvalidValueError(
                f"a seed and the indices of a sample are in [0, 2**64), not {seed} and "
                f"{first} to {first + n}"
            )
        if n < 0 or not 1 <= threads <= 1024:
            raise InvalidValueError(f"{n} configurations on {threads} threads (1 to 1024)")
        if self.count == 0:
            raise InvalidValueError(f"{self.title} has no feasible configuration")
