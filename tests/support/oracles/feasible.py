"""The feasible set of a sketch in numpy and in plain integers.

Two slow oracles of :mod:`autotune.spaces.feasible`: :func:`brute_force` tries everything, and
:func:`joined_tables` joins tables of signatures, which reaches further.

Parameters fall into groups: the factors of one product (with the padded extent they multiply
to), or a single free parameter. A group's values are rows of a small table. Constraints across
groups see only a few columns of each; rows that agree on those share a *signature*. All
combinations of signatures are checked once, weighted by how many rows stand behind them: this
gives the exact count and exact uniform sampling without rejection.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
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

# Combinations of signatures that are checked at once; beyond it the space is refused as too big.
_MAX_COMBINATIONS = 40_000_000


def domain(sketch: Sketch, param: Param) -> list[int]:
    """Every value a parameter may have: for a factor, whatever divides one of its totals."""
    if param.values is not None:
        return sorted(set(param.values))
    totals: set[int] = set()
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals) and param.name in constraint.factors:
            value = constraint.total.value
            if value is not None:
                totals.add(value)
            else:
                (name,) = constraint.total.variables
                totals.update(next(p.values or () for p in sketch.params if p.name == name))
    return sorted({d for total in totals for d in range(1, total + 1) if total % d == 0})


def holds(constraint: Constraint, config: Mapping[str, int]) -> bool:
    """Tell whether a configuration satisfies a constraint, in plain integers."""
    if isinstance(constraint, ProductEquals):
        product = math.prod(config[name] for name in constraint.factors)
        return bool(product == evaluate(constraint.total, config))
    value = evaluate(constraint.expression, config)
    if isinstance(constraint, AtMost):
        return bool(value <= constraint.limit)
    if isinstance(constraint, AtLeast):
        return bool(value >= constraint.limit)
    return value in constraint.values


def violation(constraint: Constraint, config: Mapping[str, int]) -> int:
    """By how much a configuration violates a constraint; 0 where it holds."""
    if isinstance(constraint, ProductEquals):
        product = math.prod(config[name] for name in constraint.factors)
        return abs(product - int(evaluate(constraint.total, config)))
    value = int(evaluate(constraint.expression, config))
    if isinstance(constraint, AtMost):
        return max(0, value - constraint.limit)
    if isinstance(constraint, AtLeast):
        return max(0, constraint.limit - value)
    return min(abs(value - allowed) for allowed in constraint.values)


def brute_force(sketch: Sketch) -> set[tuple[int, ...]]:
    """Every feasible row, by trying everything."""
    names = sketch.param_names
    domains = [domain(sketch, param) for param in sketch.params]
    return {
        row
        for row in itertools.product(*domains)
        if all(holds(c, dict(zip(names, row, strict=True))) for c in sketch.constraints)
    }


def factorization_count(value: int, parts: int) -> int:
    """``F_parts(value)``: for each prime power ``p**e``, the ways to share out ``e``."""
    result, rest, prime = 1, value, 2
    while rest > 1:
        exponent = 0
        while rest % prime == 0:
            rest, exponent = rest // prime, exponent + 1
        result *= math.comb(exponent + parts - 1, parts - 1)
        prime += 1
    return result


def constraint_mask(constraint: Constraint, env: Mapping[str, Matrix]) -> NDArray[np.bool_]:
    """Mask of the rows where ``constraint`` holds, for columns given by parameter name."""
    if isinstance(constraint, ProductEquals):
        product = np.ones((), dtype=np.int64)
        for name in constraint.factors:
            product = product * env[name]
        return np.asarray(product == evaluate(constraint.total, env))
    value = np.asarray(evaluate(constraint.expression, env))
    if isinstance(constraint, AtMost):
        return np.asarray(value <= constraint.limit)
    if isinstance(constraint, AtLeast):
        return np.asarray(value >= constraint.limit)
    return np.isin(value, constraint.values)


def ordered_factorizations(total: int, domains: list[tuple[int, ...] | None]) -> Matrix:
    """Every tuple of factors with the given product, lexicographic; shape [m, len(domains)]."""
    rows: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], rest: int) -> None:
        position = len(prefix)
        domain = domains[position]
        if position == len(domains) - 1:
            if domain is None or rest in domain:
                rows.append((*prefix, rest))
            return
        for value in _divisors(rest) if domain is None else sorted(domain):
            if rest % value == 0:
                extend((*prefix, value), rest // value)

    extend((), total)
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(domains))


def _divisors(value: int) -> list[int]:
    small = [d for d in range(1, int(value**0.5) + 1) if value % d == 0]
    return small + [value // d for d in reversed(small) if d * d != value]


@frozen(eq=False)
class ParamGroup:
    """A table of joint values of some parameters, and the signature of every row.

    Attributes:
        columns: Positions of the parameters in a configuration row.
        rows: Joint values, shape [m, len(columns)].
        signatures: Distinct values of the columns that joint constraints see, [s, c].
        signature_of: Signature index of each row, [m]; rows are sorted by it.
        starts: First row of each signature, [s + 1].
    """

    columns: tuple[int, ...]
    rows: Matrix
    signatures: Matrix
    seen: tuple[int, ...]
    signature_of: Matrix
    starts: Matrix

    @property
    def sizes(self) -> Matrix:
        """Number of rows behind each signature, [s]."""
        return np.diff(self.starts)


@frozen(eq=False)
class JoinedTables:
    """The feasible configurations of one sketch.

    Attributes:
        sketch: The sketch.
        groups: Independent groups of parameters.
        combinations: Feasible combinations of signatures, one column a group, [c, groups].
        weights: Configurations behind each combination, [c].
    """

    sketch: Sketch
    groups: tuple[ParamGroup, ...]
    combinations: Matrix
    weights: NDArray[np.float64]

    @property
    def count(self) -> int:
        """Number of feasible configurations."""
        return round(float(self.weights.sum()))

    def enumerate(self) -> Iterator[tuple[int, ...]]:
        """Every feasible configuration once, in a fixed order."""
        for combination in self.combinations.tolist():
            yield from self._expand(combination, 0, [0] * len(self.sketch.params))

    def _expand(
        self, combination: list[int], position: int, row: list[int]
    ) -> Iterator[tuple[int, ...]]:
        if position == len(self.groups):
            yield tuple(row)
            return
        group = self.groups[position]
        signature = combination[position]
        for values in group.rows[group.starts[signature] : group.starts[signature + 1]].tolist():
            for column, value in zip(group.columns, values, strict=True):
                row[column] = value
            yield from self._expand(combination, position + 1, row)


def joined_tables(sketch: Sketch) -> JoinedTables:
    """The feasible set of ``sketch``, hard and soft constraints alike.

    Raises:
        InvalidValueError: the constraints join too many parameters.
    """
    tables = _tables(sketch)
    joint: list[Constraint] = []
    for constraint in sketch.constraints:
        if isinstance(constraint, ProductEquals):
            continue
        names = constraint.expression.variables
        owner = [
            columns for columns, _ in tables if names <= {sketch.param_names[c] for c in columns}
        ]
        if not owner:
            joint.append(constraint)
            continue
        columns = owner[0]
        at = next(i for i, (c, _) in enumerate(tables) if c == columns)
        rows = tables[at][1]
        env = {sketch.param_names[c]: rows[:, i] for i, c in enumerate(columns)}
        mask = np.broadcast_to(constraint_mask(constraint, env), (len(rows),))
        tables[at] = (columns, rows[mask])
    seen = frozenset().union(*(_variables(constraint) for constraint in joint))
    groups = tuple(_group(sketch, columns, rows, seen) for columns, rows in tables)
    combinations = _feasible_combinations(sketch, groups, joint)
    weights = np.ones(len(combinations))
    for position, group in enumerate(groups):
        weights = weights * group.sizes[combinations[:, position]]
    return JoinedTables(sketch, groups, combinations, weights)


def _variables(constraint: Constraint) -> frozenset[str]:
    if isinstance(constraint, (AtMost, AtLeast, OneOf)):
        return constraint.expression.variables
    return frozenset(constraint.factors) | constraint.total.variables


def _tables(sketch: Sketch) -> list[tuple[tuple[int, ...], Matrix]]:
    """Columns and joint values of every group, before joint constraints."""
    position = {name: index for index, name in enumerate(sketch.param_names)}
    by_name = {param.name: param for param in sketch.params}
    tables: list[tuple[tuple[int, ...], Matrix]] = []
    grouped: set[str] = set()
    for constraint in sketch.constraints:
        if not isinstance(constraint, ProductEquals):
            continue
        names = [*sorted(constraint.total.variables), *constraint.factors]
        if grouped & set(names):
            raise InvalidValueError(
                f"sketch {sketch.name!r}: parameters {sorted(grouped & set(names))} "
                "belong to two products"
            )
        grouped |= set(names)
        domains = [by_name[name].values for name in constraint.factors]
        total = constraint.total.value
        if total is not None:
            rows = ordered_factorizations(total, domains)
        else:
            extents = by_name[names[0]].values or ()
            parts = [
                np.column_stack([np.full(len(part), extent), part])
                for extent in extents
                if len(part := ordered_factorizations(extent, domains))
            ]
            rows = np.concatenate(parts) if parts else np.empty((0, len(names)), dtype=np.int64)
        tables.append((tuple(position[name] for name in names), rows))
    for param in sketch.params:
        if param.name in grouped:
            continue
        if isinstance(param, Factor) and param.values is None:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: factor {param.name!r} belongs to no product"
            )
        values = np.array(param.values, dtype=np.int64).reshape(-1, 1)
        tables.append(((position[param.name],), values))
    return tables


def _group(
    sketch: Sketch, columns: tuple[int, ...], rows: Matrix, joint: frozenset[str]
) -> ParamGroup:
    seen = tuple(i for i, c in enumerate(columns) if sketch.param_names[c] in joint)
    if len(rows) == 0:
        empty = np.zeros(0, dtype=np.int64)
        return ParamGroup(
            columns, rows, rows[:, list(seen)], seen, empty, np.zeros(1, dtype=np.int64)
        )
    signatures, inverse = np.unique(rows[:, list(seen)], axis=0, return_inverse=True)
    if not seen:
        signatures, inverse = np.zeros((1, 0), dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(inverse, minlength=len(signatures)))])
    return ParamGroup(columns, rows[order], signatures, seen, inverse[order], starts)


def _feasible_combinations(
    sketch: Sketch, groups: tuple[ParamGroup, ...], joint: list[Constraint]
) -> Matrix:
    """Combinations of signatures that satisfy ``joint``, joined group by group."""
    if any(len(group.rows) == 0 for group in groups):
        return np.zeros((0, len(groups)), dtype=np.int64)
    lowest = {
        sketch.param_names[column]: int(group.rows[:, index].min())
        for group in groups
        for index, column in enumerate(group.columns)
    }
    combinations = np.zeros((1, 0), dtype=np.int64)
    env: dict[str, Matrix] = {}
    pending = list(joint)
    for group in groups:
        count, width = len(combinations), len(group.signatures)
        if count * width > _MAX_COMBINATIONS:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: its constraints join too many parameters "
                f"({count * width} combinations, at most {_MAX_COMBINATIONS})"
            )
        left = np.repeat(np.arange(count), width)
        right = np.tile(np.arange(width), count)
        env = {name: values[left] for name, values in env.items()}
        for index, column in enumerate(group.seen):
            name = sketch.param_names[group.columns[column]]
            env[name] = group.signatures[right, index]
        mask = np.ones(len(left), dtype=np.bool_)
        decided = [c for c in pending if _variables(c) <= env.keys()]
        pending = [c for c in pending if c not in decided]
        for constraint in decided:
            mask &= constraint_mask(constraint, env)
        for constraint in pending:
            mask &= _still_possible(constraint, env, lowest)
        combinations = np.column_stack([combinations[left], right])[mask]
        env = {name: values[mask] for name, values in env.items()}
    return combinations


def _still_possible(
    constraint: Constraint, env: Mapping[str, Matrix], lowest: Mapping[str, int]
) -> NDArray[np.bool_]:
    """False where an upper bound is already passed with the missing parameters at their lowest.

    Says nothing about expressions that may shrink while a parameter grows.
    """
    count = len(next(iter(env.values()))) if env else 1
    if not isinstance(constraint, AtMost) or not _grows(constraint.expression, lowest):
        return np.ones(count, dtype=np.bool_)
    missing = {
        name: np.full(count, lowest[name], dtype=np.int64)
        for name in constraint.expression.variables
    }
    mask = constraint_mask(constraint, {**missing, **env})
    return np.array(np.broadcast_to(mask, (count,)), dtype=np.bool_)


def _grows(expression: IntExpr, lowest: Mapping[str, int]) -> bool:
    """Tell whether the expression is built so that it cannot shrink while a parameter grows."""
    if expression.op == "var":
        return lowest[expression.args[0]] >= 0
    if expression.op == "const":
        return bool(expression.args[0] >= 0)
    if expression.op not in ("add", "mul", "min", "max"):
        return False
    return all(_grows(arg, lowest) for arg in expression.args)
