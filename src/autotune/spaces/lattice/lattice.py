"""The feasible configurations of a sketch, as native code counts, draws and moves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.nest.tape import build_tape
from autotune.sketches import Constraint, ProductEquals, Sketch
from autotune.spaces.feasibility import residual_tape
from autotune.spaces.lattice.groups import Group, Matrix, parameter_groups
from autotune.spaces.lattice.plan import LayerPlan, joining_order, plan_layers
from autotune.spaces.lattice.terms import Range, Ranges, Relation, Splitter

if TYPE_CHECKING:
    from autotune import _native

COMBINATION_LIMIT = 2**25
"""Pairs of a state and a signature looked at while joining; a space with more is refused."""

_CHUNK = 4096
_SEEDS = 2**64


@frozen(eq=False)
class Lattice:
    """The feasible configurations of one sketch, hard and soft constraints alike.

    Everything drawn is a function of a seed and an index alone (Philox4x32-10, Salmon et al.,
    SC'11): ``first`` is the index of the first row, so that chunks and any number of threads give
    the rows that one call on one thread would give.
    """

    sketch: Sketch
    _graph: _native.Lattice

    @property
    def count(self) -> int:
        """Number of feasible configurations, exactly; 0 when the constraints contradict."""
        high, low = self._graph.count
        return high << 64 | low

    @property
    def edges(self) -> int:
        """Size of the graph that holds the configurations, in edges."""
        return self._graph.edges

    def uniform(self, n: int, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """``n`` configurations, independent and exactly uniform; shape [n, params].

        Raises:
            InvalidValueError: the lattice is empty, or an argument is out of range.
        """
        self._check_drawing(n, seed, first, threads)
        return self._graph.uniform(n, seed, first, threads)

    def stratified(self, n: int, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """``n`` configurations; for each a parameter that varies, one of its feasible values and
        a configuration with that value are drawn, each uniformly.

        Raises:
            InvalidValueError: the lattice is empty, or an argument is out of range.
        """
        self._check_drawing(n, seed, first, threads)
        return self._graph.stratified(n, seed, first, threads)

    def contains(self, matrix: Matrix, threads: int = 1) -> NDArray[np.bool_]:
        """Whether each row is feasible; [n]."""
        return self._graph.contains(self._rows(matrix), threads)

    def neighbours(self, matrix: Matrix, seed: int, first: int = 0, threads: int = 1) -> Matrix:
        """Each row with one group of parameters at one of its nearest feasible values.

        Distances are sums over the group's parameters of differences of logarithms; of the ten
        nearest rows of the group's table that are feasible beside the other groups one is drawn.
        A row that cannot move, or is infeasible itself, stays as it is.

        Raises:
            InvalidValueError: the lattice is empty, or an argument is out of range.
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
            InvalidValueError: the lattice is empty, or an argument is out of range.
        """
        if len(mothers) != len(fathers):
            raise InvalidValueError(f"{len(mothers)} mothers, but {len(fathers)} fathers")
        self._check_drawing(len(mothers), seed, first, threads)
        rows = self._rows(mothers), self._rows(fathers)
        return self._graph.crossover(*rows, seed, first, threads)

    def restrict(self, values: Mapping[str, Sequence[int]]) -> Lattice:
        """The configurations whose parameters have one of the values given for them.

        May be empty. Takes time linear in :attr:`edges`.

        Raises:
            UnknownNameError: a name is not a parameter.
        """
        position = {name: index for index, name in enumerate(self.sketch.param_names)}
        for name in values:
            if name not in position:
                raise UnknownNameError("parameter of the sketch", name, position)
        columns = [position[name] for name in values]
        allowed = [[int(value) for value in given] for given in values.values()]
        return Lattice(self.sketch, self._graph.restricted(columns, allowed))

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

    def _rows(self, matrix: Matrix) -> Matrix:
        width = len(self.sketch.params)
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
            raise InvalidValueError(f"sketch {self.sketch.name!r} has no feasible configuration")


def build_lattice(sketch: Sketch, limit: int = COMBINATION_LIMIT) -> Lattice:
    """The feasible set of ``sketch``; :attr:`Lattice.count` is 0 when it is empty.

    Raises:
        InvalidValueError: the products do not say what each factor divides, or the constraints
            join too many parameters: more than ``limit`` combinations had to be looked at.
    """
    from autotune import _native

    groups = parameter_groups(sketch)
    owners = {name: index for index, group in enumerate(groups) for name in group.names}
    splitter = Splitter(owners, len(groups))
    alone, joint = _by_groups(sketch, splitter)
    groups = [_filtered(group, alone.get(1 << i, [])) for i, group in enumerate(groups)]
    if not _holds(alone.get(0, [])):
        groups = [Group(group.names, group.columns, group.rows[:0]) for group in groups]
    relations = [splitter.relation(constraint) for constraint in joint]
    signatures = [_signatures(group, splitter, i) for i, group in enumerate(groups)]
    plans = _plans(relations, signatures)
    try:
        graph = _native.Lattice(
            len(sketch.params),
            [
                (list(groups[plan.group].columns), groups[plan.group].rows, signatures[plan.group])
                for plan in plans
            ],
            [_native_plan(plan) for plan in plans],
            limit,
        )
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidValueError(f"sketch {sketch.name!r}: {error}") from error
    return Lattice(sketch, graph)


def _by_groups(
    sketch: Sketch, splitter: Splitter
) -> tuple[dict[int, list[Constraint]], list[Constraint]]:
    """Constraints on one group by its bit (on none by 0), and those between groups."""
    alone: dict[int, list[Constraint]] = {}
    joint: list[Constraint] = []
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals):
            continue
        mask = splitter.groups_of(constraint.expression)
        if mask & (mask - 1):
            joint.append(constraint)
        else:
            alone.setdefault(mask, []).append(constraint)
    return alone, joint


def _holds(constraints: Sequence[Constraint]) -> bool:
    """Whether constraints without parameters hold."""
    residuals = residual_tape((), constraints).evaluate(np.zeros((1, 0), dtype=np.int64))
    return not residuals.any()


def _filtered(group: Group, constraints: Sequence[Constraint]) -> Group:
    """The group without the rows that its own constraints exclude."""
    if not constraints or len(group.rows) == 0:
        return group
    residuals = residual_tape(group.names, constraints).evaluate(group.rows)
    kept = np.ascontiguousarray(group.rows[~residuals.any(axis=1)])
    return Group(group.names, group.columns, kept)


def _signatures(group: Group, splitter: Splitter, index: int) -> Matrix:
    """What the constraints between groups see of each row, [m, columns]."""
    expressions = splitter.columns[index]
    if not expressions:
        return np.zeros((len(group.rows), 0), dtype=np.int64)
    named = {str(column): expression for expression, column in expressions.items()}
    return build_tape(group.names, named).evaluate(group.rows)


def _plans(relations: Sequence[Relation], signatures: Sequence[Matrix]) -> list[LayerPlan]:
    ranges: list[list[Range]] = []
    for seen in signatures:
        empty = len(seen) == 0
        low = np.zeros(seen.shape[1], np.int64) if empty else seen.min(axis=0)
        high = low if empty else seen.max(axis=0)
        ranges.append(list(zip(low.tolist(), high.tolist(), strict=True)))
    order = joining_order(relations, [len(seen) for seen in signatures])
    widths = [seen.shape[1] for seen in signatures]
    return plan_layers(relations, order, widths, Ranges(ranges))


def _native_plan(
    plan: LayerPlan,
) -> tuple[_native.TapeProgram | None, int, list[tuple[list[int], list[int]]]]:
    checks = [
        (
            [check.lower, check.upper, check.least, check.most, check.first, check.last],
            list(check.values),
        )
        for check in plan.checks
    ]
    return (None if plan.tape is None else plan.tape.program, plan.state, checks)
