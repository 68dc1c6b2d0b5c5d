"""The feasible set of a sketch, exactly: tables of factorizations joined by constraints.

Every constraint also becomes an expression of the parameters, its residual: 0 where it holds, else
by how much it is violated. Native code evaluates them for a whole matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import IntExpr, const, maximum, minimum, var
from autotune.nest.tape import Tape, build_tape
from autotune.sketches import (
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    OneOf,
    Param,
    ProductEquals,
    Sketch,
)
from autotune.sketches.candidates import Matrix

if TYPE_CHECKING:
    from typing_extensions import Self

    from autotune import _native

__all__ = [
    "FeasibleSet",
    "build_feasible_set",
    "is_feasible",
    "residual",
    "residual_tape",
    "residuals",
]

LARGEST = 2**62
"""Bounds from here on count as unknown: native code holds 64 bits."""

Relational = AtMost | AtLeast | OneOf
"""A constraint that may join groups; a product is a group."""

Range = tuple[int, int]
UNKNOWN: Range = (-LARGEST, LARGEST)


@frozen(eq=False)
class Relation:
    """A constraint between groups: what ``term`` may be.

    Attributes:
        term: An expression over columns of signatures.
        groups: Bit mask of the groups that it depends on.
        least, most: Inclusive bounds, None where there is none.
        values: If any, the only values allowed; sorted.
    """

    term: IntExpr
    groups: int
    least: int | None
    most: int | None
    values: tuple[int, ...]


class Splitter:
    """Replaces the largest parts of expressions that belong to one group by columns.

    Sums and products are taken apart by owner first: in ``x0*y0*x1`` the group of x is seen
    through ``x0*x1``. ``columns`` collects the expressions that make up each group's signature.
    """

    def __init__(self, owners: Mapping[str, int], groups: int) -> None:
        self.columns: list[dict[IntExpr, int]] = [{} for _ in range(groups)]
        self._owners = dict(owners)
        self._masks: dict[IntExpr, int] = {}

    def relation(self, constraint: Relational) -> Relation:
        """A constraint as a relation."""
        term, groups = self.term(constraint.expression), self.groups_of(constraint.expression)
        if isinstance(constraint, AtMost):
            return Relation(term, groups, None, constraint.limit, ())
        if isinstance(constraint, AtLeast):
            return Relation(term, groups, constraint.limit, None, ())
        values = tuple(sorted(set(constraint.values)))
        least, most = (values[0], values[-1]) if values else (1, 0)
        return Relation(term, groups, least, most, values)

    def groups_of(self, expression: IntExpr) -> int:
        """Bit mask of the groups that an expression depends on."""
        if expression.op == "const":
            return 0
        known = self._masks.get(expression)
        if known is not None:
            return known
        if expression.op == "var":
            mask = 1 << self._owners[expression.args[0]]
        else:
            mask = 0
            for arg in expression.args:
                mask |= self.groups_of(arg)
        self._masks[expression] = mask
        return mask

    def term(self, expression: IntExpr) -> IntExpr:
        """The expression over columns; its operands stay in their order."""
        mask = self.groups_of(expression)
        if mask == 0:
            return expression
        if mask & (mask - 1) == 0:
            return self._column(mask, expression)
        if expression.op not in ("add", "mul"):
            return IntExpr(expression.op, tuple(self.term(arg) for arg in expression.args))
        owned: dict[int, list[IntExpr]] = {}
        shared: list[IntExpr] = []
        for arg in expression.args:
            owner = self.groups_of(arg)
            if owner & (owner - 1) == 0 and owner != 0:
                owned.setdefault(owner, []).append(arg)
            else:
                shared.append(self.term(arg))
        combine = add if expression.op == "add" else mul
        own = [self._column(owner, reduce(combine, args)) for owner, args in owned.items()]
        return IntExpr(expression.op, (*own, *shared))

    def _column(self, mask: int, expression: IntExpr) -> IntExpr:
        group = mask.bit_length() - 1
        columns = self.columns[group]
        name = _column_name(group, columns.setdefault(expression, len(columns)))
        self._owners[name] = group
        return var(name)


def _column_name(group: int, column: int) -> str:
    """Name of a column of a signature, which no parameter has."""
    return f":{group}.{column}"


class Ranges:
    """Intervals that hold all values of expressions over variables with these intervals."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        self._known: dict[IntExpr, Range] = {var(name): it for name, it in ranges.items()}

    def of(self, expression: IntExpr) -> Range:
        """Smallest and largest value.

        ``UNKNOWN`` where an operation has none, or where 64 bits might not hold it.
        """
        if expression.op == "const":
            return (expression.args[0], expression.args[0])
        if expression not in self._known:
            args = [self.of(arg) for arg in expression.args]
            self._known[expression] = _over(expression.op, args)
        return self._known[expression]


def _over(op: str, args: Sequence[Range]) -> Range:
    """The interval of an operation over intervals."""
    if UNKNOWN in args:
        return UNKNOWN
    if op == "select":
        low, high = min(args[1][0], args[2][0]), max(args[1][1], args[2][1])
    else:
        low, high = reduce(lambda left, right: _combined(op, left, right), args[1:], args[0])
    return (low, high) if low > -LARGEST and high < LARGEST else UNKNOWN


def _combined(op: str, left: Range, right: Range) -> Range:
    if op == "add":
        return left[0] + right[0], left[1] + right[1]
    if op == "mul":
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    if op in ("min", "max"):
        choose = min if op == "min" else max
        return choose(left[0], right[0]), choose(left[1], right[1])
    if op == "less":
        return 0, 1
    if op == "floordiv" and right[0] >= 1:
        corners = [a // b for a in left for b in right]
        return min(corners), max(corners)
    if op == "mod" and right[0] >= 1:
        return 0, (min(left[1], right[1] - 1) if left[0] >= 0 else right[1] - 1)
    return UNKNOWN


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


FACTORIZATION_LIMIT = 4_000_000
"""Most joint values of one group that are kept in memory."""


@frozen(eq=False)
class ParamGroup:
    """Some parameters and their joint values, before any constraint but their product.

    Attributes:
        names: The parameters.
        columns: Their positions in a configuration.
        rows: Joint values, shape [m, len(columns)].
    """

    names: tuple[str, ...]
    columns: tuple[int, ...]
    rows: Matrix


def ordered_factorizations(total: int, domains: Sequence[tuple[int, ...] | None]) -> Matrix:
    """Every tuple of factors with the given product, lexicographic; shape [m, len(domains)].

    A domain lists the values a factor may have; None allows any divisor.

    Raises:
        InvalidValueError: ``total`` is not in [1, 2**50], there are no factors or more than 64,
            or more than ``FACTORIZATION_LIMIT`` tuples.
    """
    from autotune import _native

    positive = [
        None if domain is None else sorted({value for value in domain if value >= 1})
        for domain in domains
    ]
    try:
        return _native.ordered_factorizations(total, positive, FACTORIZATION_LIMIT)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"cannot list the factorizations of {total}: {error}") from error


def parameter_groups(sketch: Sketch) -> list[ParamGroup]:
    """The groups of a sketch: one for every product, then one for every parameter left.

    Raises:
        InvalidValueError: a parameter belongs to two products or a factor to none, or a product
            is neither constant nor the value of one parameter that lists its values.
    """
    position = {name: index for index, name in enumerate(sketch.param_names)}
    groups: list[ParamGroup] = []
    grouped: set[str] = set()
    for constraint in sketch.constraints:
        if not isinstance(constraint, ProductEquals):
            continue
        names = (*sorted(constraint.total.variables), *constraint.factors)
        again = grouped & set(names) | {name for name in names if names.count(name) > 1}
        if again:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: parameters {sorted(again)} belong to two products"
            )
        grouped |= set(names)
        rows = _product_rows(sketch, constraint)
        groups.append(ParamGroup(names, tuple(position[name] for name in names), rows))
    for param in sketch.params:
        if param.name in grouped:
            continue
        if param.values is None:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: factor {param.name!r} belongs to no product"
            )
        values = np.array(sorted(set(param.values)), dtype=np.int64).reshape(-1, 1)
        groups.append(ParamGroup((param.name,), (position[param.name],), values))
    return groups


def _product_rows(sketch: Sketch, constraint: ProductEquals) -> Matrix:
    by_name = {param.name: param for param in sketch.params}
    domains = [_domain(by_name[name]) for name in constraint.factors]
    total = constraint.total
    if total.value is not None:
        return ordered_factorizations(total.value, domains)
    extents = by_name[total.args[0]].values if total.op == "var" else None
    if extents is None:
        raise InvalidValueError(
            f"sketch {sketch.name!r}: the product of {', '.join(constraint.factors)} is "
            f"{total!r}; it has to be a constant or a parameter that lists its values"
        )
    parts = [np.empty((0, len(domains) + 1), dtype=np.int64)]
    for extent in sorted(set(extents)):
        if extent >= 1:
            rows = ordered_factorizations(extent, domains)
            parts.append(np.column_stack([np.full(len(rows), extent), rows]))
    return np.concatenate(parts)


def _domain(param: Param) -> tuple[int, ...] | None:
    return param.values if isinstance(param, Factor) else (param.values or ())


def residual(constraint: Constraint) -> IntExpr:
    """By how much a constraint is violated; 0 where it holds.

    The excess over a limit or what lacks to it, the distance of a product from its total, or the
    distance to the nearest of the values allowed (of none at all: 1).
    """
    if isinstance(constraint, ProductEquals):
        product: IntExpr = const(1)
        for name in constraint.factors:
            product = product * var(name)
        return _distance(product, constraint.total)
    if isinstance(constraint, AtMost):
        return maximum(constraint.expression - constraint.limit, 0)
    if isinstance(constraint, AtLeast):
        return maximum(constraint.limit - constraint.expression, 0)
    if not constraint.values:
        return const(1)
    nearest, *others = (_distance(constraint.expression, const(v)) for v in constraint.values)
    for other in others:
        nearest = minimum(nearest, other)
    return nearest


def _distance(left: IntExpr, right: IntExpr) -> IntExpr:
    return maximum(left - right, right - left)


def residual_tape(names: tuple[str, ...], constraints: Sequence[Constraint]) -> Tape:
    """Residuals as a tape over the parameters ``names``; outputs are called "0", "1", ...

    Raises:
        InvalidValueError: a constraint uses another parameter.
    """
    outputs = {str(index): residual(item) for index, item in enumerate(constraints)}
    return build_tape(names, outputs)


def residuals(sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Residuals of ``sketch.constraints``, in their order; shape [n, constraints].

    Domains of single parameters are not looked at: :meth:`FeasibleSet.contains` does that too.

    Raises:
        InvalidValueError: the matrix has another number of columns or is not of int64, or a value
            passes 64 bits.
    """
    return residual_tape(sketch.param_names, sketch.constraints).evaluate(matrix)


def is_feasible(sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the configurations for which all constraints hold; shape [n].

    Raises:
        InvalidValueError: as :func:`residuals`.
    """
    return np.asarray(~residuals(sketch, matrix).any(axis=1))


COMBINATION_LIMIT = 2**25
"""Pairs of a state and a signature looked at while joining; a space with more is refused."""


def build_feasible_set(sketch: Sketch, limit: int = COMBINATION_LIMIT) -> FeasibleSet:
    """The configurations of ``sketch`` that satisfy its hard and its soft constraints.

    :attr:`FeasibleSet.count` is 0 where there is none.

    Raises:
        InvalidValueError: the products do not say what each factor divides, or the constraints
            join too many parameters: more than ``limit`` combinations had to be looked at.
    """
    title, names = f"sketch {sketch.name!r}", sketch.param_names
    constraints = [item for item in sketch.constraints if not isinstance(item, ProductEquals)]
    graph = join_groups(title, len(names), parameter_groups(sketch), constraints, limit)
    return FeasibleSet(title, names, graph)


def join_groups(
    title: str,
    width: int,
    groups: Sequence[ParamGroup],
    constraints: Sequence[Relational],
    limit: int = COMBINATION_LIMIT,
) -> _native.FeasibleSet:
    """The graph of all points: one row of every group, such that the constraints hold.

    Every one of ``width`` columns belongs to exactly one group; ``title`` is for messages.

    Raises:
        InvalidValueError: a constraint uses another name, or more than ``limit`` combinations had
            to be looked at.
    """
    from autotune import _native

    owners = {name: index for index, group in enumerate(groups) for name in group.names}
    splitter = Splitter(owners, len(groups))
    alone, joint = _by_groups(constraints, splitter)
    groups = [_filtered(group, alone.get(1 << i, [])) for i, group in enumerate(groups)]
    if not _holds(alone.get(0, [])):
        groups = [ParamGroup(group.names, group.columns, group.rows[:0]) for group in groups]
    relations = [splitter.relation(constraint) for constraint in joint]
    signatures = [_signatures(group, splitter, i) for i, group in enumerate(groups)]
    plans = _plans(relations, signatures, splitter)
    try:
        return _native.FeasibleSet(
            width,
            [
                (list(groups[plan.group].columns), groups[plan.group].rows, signatures[plan.group])
                for plan in plans
            ],
            [
                (None if plan.tape is None else plan.tape.program, plan.state, plan.checks)
                for plan in plans
            ],
            limit,
        )
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidValueError(f"{title}: {error}") from error


def _by_groups(
    constraints: Sequence[Relational], splitter: Splitter
) -> tuple[dict[int, list[Relational]], list[Relational]]:
    """Constraints on one group by its bit (on none by 0), and those between groups."""
    alone: dict[int, list[Relational]] = {}
    joint: list[Relational] = []
    for constraint in constraints:
        mask = splitter.groups_of(constraint.expression)
        if mask & (mask - 1):
            joint.append(constraint)
        else:
            alone.setdefault(mask, []).append(constraint)
    return alone, joint


def _holds(constraints: Sequence[Relational]) -> bool:
    """Return whether constraints without parameters hold."""
    residuals = residual_tape((), constraints).evaluate(np.zeros((1, 0), dtype=np.int64))
    return not residuals.any()


def _filtered(group: ParamGroup, constraints: Sequence[Relational]) -> ParamGroup:
    """The group without the rows that its own constraints exclude."""
    if not constraints or len(group.rows) == 0:
        return group
    residuals = residual_tape(group.names, constraints).evaluate(group.rows)
    kept = np.ascontiguousarray(group.rows[~residuals.any(axis=1)])
    return ParamGroup(group.names, group.columns, kept)


def _signatures(group: ParamGroup, splitter: Splitter, index: int) -> Matrix:
    """The values of each row in the constraints between groups, [m, columns]."""
    expressions = splitter.columns[index]
    if not expressions:
        return np.zeros((len(group.rows), 0), dtype=np.int64)
    named = {str(column): expression for expression, column in expressions.items()}
    return build_tape(group.names, named).evaluate(group.rows)


def _plans(
    relations: Sequence[Relation], signatures: Sequence[Matrix], splitter: Splitter
) -> list[LayerPlan]:
    ranges: dict[str, Range] = {}
    for group, seen in enumerate(signatures):
        ends = seen if len(seen) else np.zeros((1, seen.shape[1]), np.int64)
        pairs = zip(ends.min(axis=0).tolist(), ends.max(axis=0).tolist(), strict=True)
        ranges |= {_column_name(group, column): pair for column, pair in enumerate(pairs)}
    order = joining_order(relations, [len(seen) for seen in signatures])
    widths = [seen.shape[1] for seen in signatures]
    return plan_layers(relations, order, widths, splitter.groups_of, Ranges(ranges))


# Expressions over the inputs of a layer that bound a term; None: unknown.
Bounds = tuple[IntExpr | None, IntExpr | None]
GroupsOf = Callable[[IntExpr], int]


@frozen
class LayerPlan:
    """Join of a group to those before it.

    Attributes:
        group: Which group.
        tape: From state and signature to the next state and what the checks need; None for a
            group that no constraint sees.
        state: Length of the next state.
        checks: What decides whether to continue, for each constraint: the outputs of the tape that
            bound its expression (-1: unknown), the least and the most that it may be, the first
            and the last part of the next state that it needs; and the only values it may have, if
            any.
    """

    group: int
    tape: Tape | None
    state: int
    checks: list[tuple[list[int], list[int]]]


def joining_order(relations: Sequence[Relation], signatures: Sequence[int]) -> list[int]:
    """An order in which the states stay few.

    Groups that no constraint sees come first. Then, component by component, groups that many
    constraints see before those that few see: the many are decided before the few multiply them.
    ``signatures`` is how many each group has.
    """
    masks = [relation.groups for relation in relations]
    seen = [sum(mask >> group & 1 for mask in masks) for group in range(len(signatures))]
    order = [group for group in range(len(signatures)) if seen[group] == 0]
    rest = {group for group in range(len(signatures)) if seen[group] > 0}
    known = 0
    while rest:
        connected = {
            group
            for group in rest
            if any(mask >> group & 1 and mask & known & ~(1 << group) for mask in masks)
        }
        chosen = max(connected or rest, key=lambda g: (seen[g], signatures[g], -g))
        order.append(chosen)
        rest.remove(chosen)
        known |= 1 << chosen
    return order


def plan_layers(
    relations: Sequence[Relation],
    order: Sequence[int],
    widths: Sequence[int],
    groups_of: GroupsOf,
    ranges: Ranges,
) -> list[LayerPlan]:
    """Plan a join for every group in ``order``; ``widths`` are the lengths of their signatures."""
    plans: list[LayerPlan] = []
    known = 0
    # Of each relation the parts that the state carries.
    state: list[list[IntExpr]] = [[] for _ in relations]
    for group in order:
        size = sum(map(len, state))
        if widths[group] == 0:
            plans.append(LayerPlan(group, None, size, []))
            known |= 1 << group
            continue
        layer = _Layer(group, known, state, widths[group], groups_of, ranges)
        state = [layer.after(index, relation) for index, relation in enumerate(relations)]
        known |= 1 << group
        plans.append(layer.plan(sum(map(len, state))))
    return plans


_NEUTRAL = {"add": 0, "mul": 1}


def _combined_parts(op: str, parts: Sequence[IntExpr]) -> IntExpr:
    """Parts put together as they are, without those that change nothing."""
    neutral = _NEUTRAL.get(op)
    kept = [it for it in parts if it.op != "const" or it.args[0] != neutral] or parts[:1]
    return kept[0] if len(kept) == 1 and neutral is not None else IntExpr(op, tuple(kept))


class _Layer:
    """The plan of one layer, constraint by constraint."""

    def __init__(
        self,
        group: int,
        known: int,
        state: Sequence[Sequence[IntExpr]],
        width: int,
        groups_of: GroupsOf,
        ranges: Ranges,
    ) -> None:
        self._group, self._before = group, known
        self._known = known | 1 << group
        self._groups_of, self._ranges = groups_of, ranges
        self._carried: list[dict[IntExpr, IntExpr]] = []
        self._inputs: list[str] = []
        for parts in state:
            names = [f"in{len(self._inputs) + place}" for place in range(len(parts))]
            self._inputs += names
            self._carried.append(dict(zip(parts, map(var, names), strict=True)))
        self._inputs += [_column_name(group, column) for column in range(width)]
        self._next: list[IntExpr] = []
        self._checks: list[tuple[Bounds, Relation, int, int]] = []
        self._values: dict[IntExpr, IntExpr] = {}

    def after(self, index: int, relation: Relation) -> list[IntExpr]:
        """Carries one constraint over the layer; the parts that the next state holds of it."""
        carried = self._carried[index]
        if not relation.groups >> self._group & 1:
            self._next.extend(carried.values())
            return list(carried)
        self._values = dict(carried)
        first = len(self._next)
        parts = self._open_parts(relation.term) if relation.groups & ~self._known else []
        self._next.extend(self._value(part) for part in parts)
        self._checks.append((self._bounds(relation.term), relation, first, len(self._next)))
        return parts

    def plan(self, state: int) -> LayerPlan:
        """The finished plan, once every constraint was carried over."""
        outputs = list(self._next)

        def output(value: IntExpr | None) -> int:
            if value is None:
                return -1
            outputs.append(value)
            return len(outputs) - 1

        checks = []
        for (lower, upper), relation, first, last in self._checks:
            low = output(lower)
            high = low if lower == upper else output(upper)
            least = -(2**63) if relation.least is None else relation.least
            most = 2**63 - 1 if relation.most is None else relation.most
            checks.append(([low, high, least, most, first, last], list(relation.values)))
        named = {str(index): value for index, value in enumerate(outputs)}
        tape = build_tape(tuple(self._inputs), named)
        return LayerPlan(self._group, tape, state, checks)

    def _open_parts(self, term: IntExpr) -> list[IntExpr]:
        """Return what to carry on of a term when the groups of this layer are decided."""
        groups = self._groups_of(term)
        if not groups & self._known:
            return []
        if not groups & ~self._known:
            return [term]
        inside = self._inside(term, self._known)
        parts = [_combined_parts(term.op, inside)] if inside else []
        for arg in term.args:
            if arg not in inside:
                parts.extend(self._open_parts(arg))
        return parts

    def _inside(self, term: IntExpr, known: int) -> list[IntExpr]:
        """Operands of a sum or product that depend on known groups only; no constants."""
        if term.op not in ("add", "mul"):
            return []
        return [
            arg for arg in term.args if (own := self._groups_of(arg)) != 0 and not own & ~known
        ]

    def _value(self, term: IntExpr) -> IntExpr:
        """A term that is known after the layer, over its inputs."""
        if term not in self._values:
            self._values[term] = self._find(term)
        return self._values[term]

    def _find(self, term: IntExpr) -> IntExpr:
        if term.op in ("const", "var"):
            return term
        before, args = self._inside(term, self._before), list(term.args)
        carried = self._values.get(_combined_parts(term.op, before)) if len(before) > 1 else None
        if carried is not None:
            args = [arg for arg in args if arg not in before]
        values = [] if carried is None else [carried]
        return _combined_parts(term.op, [*values, *map(self._value, args)])

    def _bounds(self, term: IntExpr) -> Bounds:
        """The interval of a term when what is not known yet may be anything it can be."""
        groups = self._groups_of(term)
        if not groups & ~self._known:
            value = self._value(term)
            return value, value
        low, high = self._ranges.of(term)
        if (low, high) == UNKNOWN:
            return None, None
        if not groups & self._known:
            return const(low), const(high)
        lower, upper = self._open_bounds(term)
        return (
            const(low) if lower is None else lower,
            const(high) if upper is None else upper,
        )

    def _open_bounds(self, term: IntExpr) -> Bounds:
        if term.op in ("add", "mul"):
            return self._accumulated(term)
        bounds = [self._bounds(arg) for arg in term.args]
        if term.op in ("min", "max"):
            lower, upper = ([bound[side] for bound in bounds] for side in (0, 1))
            return self._each(term.op, lower), self._each(term.op, upper)
        if term.op == "floordiv":
            (top_low, _), (bottom_low, _) = (self._ranges.of(arg) for arg in term.args)
            if top_low >= 0 and bottom_low >= 1:
                (top_lower, top_upper), (bottom_lower, bottom_upper) = bounds
                return (
                    self._each("floordiv", [top_lower, bottom_upper]),
                    self._each("floordiv", [top_upper, bottom_lower]),
                )
        return None, None

    def _accumulated(self, term: IntExpr) -> Bounds:
        """Bounds of a sum, or of a product of a constant and parts that are not negative."""
        inside = self._inside(term, self._known)
        constants = [arg for arg in term.args if arg.op == "const"]
        bounds = [
            self._bounds(arg) for arg in term.args if arg.op != "const" and arg not in inside
        ]
        if inside:
            bounds.append((self._value(_combined_parts(term.op, inside)),) * 2)
        if term.op == "mul":
            if any(self._ranges.of(arg)[0] < 0 for arg in term.args if arg.op != "const"):
                return None, None
            if any(arg.args[0] < 0 for arg in constants):
                bounds = [(upper, lower) for lower, upper in bounds]
        lower, upper = ([*constants, *(bound[side] for bound in bounds)] for side in (0, 1))
        return self._each(term.op, lower), self._each(term.op, upper)

    def _each(self, op: str, values: Sequence[IntExpr | None]) -> IntExpr | None:
        given = [value for value in values if value is not None]
        return _combined_parts(op, given) if len(given) == len(values) else None
