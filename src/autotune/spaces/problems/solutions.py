"""All solutions of a problem: counted, listed, drawn, restricted, repaired; exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import var
from autotune.nest.tape import Tape, build_tape
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import FeasibleSet, join_groups
from autotune.spaces.problems.elimination import reduced
from autotune.spaces.problems.problem import ConstraintProblem
from autotune.spaces.problems.vocabulary import Member

__all__ = ["PROBLEM_LIMIT", "Solutions", "solve"]

PROBLEM_LIMIT = 2**28
"""Pairs of a state and a signature looked at while joining; a few seconds' worth."""

_CHUNK = 4096


@frozen(eq=False)
class Solutions:
    """The solutions of one problem.

    Solutions are rows of a matrix [n, variables], in the order of the problem's variables. What
    is drawn is a function of a seed and an index alone, as :class:`FeasibleSet` says.

    Attributes:
        problem: The problem, with the restrictions that were asked for.
        points: The variables that are decided; the others follow from these.
        tape: From the decided variables to all of them.
    """

    problem: ConstraintProblem
    points: FeasibleSet
    tape: Tape

    @property
    def count(self) -> int:
        """Number of solutions, exactly."""
        return self.points.count

    def sample(
        self,
        n: int,
        seed: int,
        first: int = 0,
        threads: int = 1,
        weights: Mapping[str, Mapping[int, float]] | None = None,
    ) -> Matrix:
        """``n`` independent solutions: uniform, or as likely as their values' weights multiply to.

        Raises:
            UnknownNameError: a weight is given for a variable that is not decided.
            InvalidValueError: there is no solution, none has a weight above zero, or an argument
                is out of range.
        """
        if weights is None:
            return self._completed(self.points.uniform(n, seed, first, threads))
        return self._completed(self.points.weighted(n, weights, seed, first, threads))

    def stratified(self, n: int, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """``n`` solutions; for each a decided variable that varies, one of its values and a
        solution with that value are drawn, each uniformly.

        Raises:
            InvalidValueError: there is no solution, or an argument is out of range.
        """
        return self._completed(self.points.stratified(n, seed, first, threads))

    def enumerate(self) -> Iterator[tuple[int, ...]]:
        """Every solution once, in a fixed order."""
        for first in range(0, self.count, _CHUNK):
            rows = self.points.listed(first, min(_CHUNK, self.count - first))
            yield from map(tuple, self._completed(rows).tolist())

    def contains(self, matrix: Matrix) -> NDArray[np.bool_]:
        """Whether each row [n, variables] is a solution; [n].

        Raises:
            InvalidValueError: the matrix has another number of columns or is not of int64.
        """
        decided = self._decided(matrix)
        inside = self.points.contains(decided)
        same = np.zeros(len(matrix), dtype=np.bool_)
        same[inside] = (self._completed(decided[inside]) == matrix[inside]).all(axis=1)
        return same

    def repair(self, matrix: Matrix, threads: int = 1) -> Matrix:
        """For each row [n, variables] the solution nearest to it in its decided variables.

        Distances are sums of differences of logarithms; values of other variables are ignored.

        Raises:
            InvalidValueError: there is no solution, or the matrix does not fit.
        """
        return self._completed(self.points.nearest(self._decided(matrix), threads))

    def restrict(self, values: Mapping[str, Sequence[int]]) -> Solutions:
        """The solutions whose variables have one of the values given for them; may be none.

        Restricting decided variables takes time linear in the size of the graph; for any other
        variable the problem is solved anew.

        Raises:
            UnknownNameError: a name is not a variable of the problem.
            InvalidValueError: the new problem joins too many variables.
        """
        for name in values:
            if name not in self.problem.variable_names:
                raise UnknownNameError(
                    f"variable of {self.points.title}", name, self.problem.variable_names
                )
        members = [Member(var(name), tuple(given)) for name, given in values.items()]
        problem = evolve(self.problem, constraints=(*self.problem.constraints, *members))
        if set(values) <= set(self.points.columns):
            return Solutions(problem, self.points.restrict(values), self.tape)
        return solve(problem)

    def propagate(self, values: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """For every decided variable the values that it has in a solution, given these values.

        No value that occurs in a solution is missing and no other value is there: the strongest
        propagation there is.

        Raises:
            UnknownNameError: a name is not a variable of the problem.
        """
        left = self.restrict(values).points
        return {name: left.values(name) for name in left.columns}

    def _completed(self, decided: Matrix) -> Matrix:
        return self.tape.evaluate(decided)

    def _decided(self, matrix: Matrix) -> Matrix:
        names = self.problem.variable_names
        if matrix.ndim != 2 or matrix.shape[1] != len(names) or matrix.dtype != np.int64:
            raise InvalidValueError(
                f"solutions of {len(names)} variables are an int64 matrix [n, {len(names)}], "
                f"not {matrix.dtype} {list(matrix.shape)}"
            )
        columns = [names.index(name) for name in self.points.columns]
        return np.ascontiguousarray(matrix[:, columns])


def solve(problem: ConstraintProblem, limit: int = PROBLEM_LIMIT) -> Solutions:
    """All solutions of ``problem``; none is no error here.

    Raises:
        InvalidValueError: a variable that nothing defines has too many values to be listed, or the
            constraints join too many variables: more than ``limit`` combinations (at most 2^31)
            had to be looked at.
    """
    title = f"problem {problem.name!r}"
    parts = reduced(problem)
    graph = join_groups(title, len(parts.decided), parts.groups, parts.relations, limit)
    outputs = {name: parts.definitions.get(name, var(name)) for name in problem.variable_names}
    return Solutions(
        problem, FeasibleSet(title, parts.decided, graph), build_tape(parts.decided, outputs)
    )
