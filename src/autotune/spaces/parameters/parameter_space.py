"""Spaces of parameters alone: what an external program may be tuned by."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, const, less, product, select, var
from autotune.ir.workloads import Workload
from autotune.sketches import AtMost, Candidate, CandidateBatch, OneOf, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import FeasibleSet, ParamGroup, join_groups
from autotune.spaces.feasible_space import FeasibleSpace
from autotune.spaces.parameters.parameter import (
    Condition,
    Node,
    Parameter,
    Value,
    encode_config,
    parse_condition,
)

__all__ = ["ParameterSpace", "listed_set", "parameter_space", "recorded_space", "translate"]

SKETCH = "parameters"
_MIXTURES = 8


class ParameterSpace(FeasibleSpace):
    """Sketch over an external workload, whose parameters mean something to its own tools.

    Args:
        workload: An external one.
        parameters: The parameters, in the order of the columns.
        relations: Constraints over the columns, for those who show or relax them; ``feasible``
            says what is feasible.
        feasible: The configurations that there are.
    """

    name = SKETCH
    version = "1"

    def __init__(
        self,
        workload: Workload,
        parameters: Sequence[Parameter],
        relations: Sequence[Relation],
        feasible: FeasibleSet,
    ) -> None:
        columns = tuple(parameter.column for parameter in parameters)
        self.sketch = Sketch(SKETCH, workload, columns, tuple(relations), ())
        self.parameters = tuple(parameters)
        super().__init__({self.sketch: feasible})

    def encode(self, config: Mapping[str, Value]) -> Candidate:
        """The candidate of a configuration, which may be infeasible.

        Raises:
            InvalidValueError: a parameter is missing or unknown, or a value none of its own.
        """
        return Candidate(self.sketch, encode_config(self.parameters, config))

    def decode(self, candidate: Candidate) -> dict[str, Value]:
        """The values of a candidate by name."""
        pairs = zip(self.parameters, candidate.values, strict=True)
        return {parameter.name: parameter.decode(column) for parameter, column in pairs}

    def crossover(
        self, left: CandidateBatch, right: CandidateBatch, rng: np.random.Generator
    ) -> CandidateBatch:
        """Cross as the interface says: each parameter comes from either, whatever ties it."""
        parts = []
        for (sketch, mothers), (_, fathers) in zip(left.parts, right.parts, strict=True):
            children = mothers.copy()
            is_open = np.ones(len(children), dtype=np.bool_)
            for _ in range(_MIXTURES):
                mixed = np.where(rng.random(mothers.shape) < 0.5, mothers, fathers)
                parent = (mixed == mothers).all(axis=1) | (mixed == fathers).all(axis=1)
                taken = is_open & ~parent & self.feasible_set(sketch).contains(mixed)
                children[taken] = mixed[taken]
                is_open &= ~taken
            parts.append((sketch, children))
        return CandidateBatch(tuple(parts))


def parameter_space(
    program: str,
    parameters: Sequence[Parameter],
    constraints: Sequence[str] = (),
    *,
    name: str = "",
) -> ParameterSpace:
    """The space of all values of parameters that satisfy constraints.

    Args:
        program: What the parameters are of; records of programs that differ in it, or in the names
            of parameters, have nothing to do with each other.
        parameters: The parameters.
        constraints: Expressions; see :func:`parse_condition`.
        name: What people call the program; by default ``program``.

    Raises:
        InvalidValueError: a constraint cannot be read or computed, nothing satisfies them, or they
            tie together more than can be counted.
        UnknownNameError: a constraint is about another parameter.
    """
    name = name or program
    workload = evolve(_workload(program, parameters), name=name)
    conditions = [parse_condition(text, [it.name for it in parameters]) for text in constraints]
    by_name = {parameter.name: parameter for parameter in parameters}
    relations: list[Relation] = []
    tabled: list[Condition] = []
    for condition in conditions:
        found = translate(condition, by_name)
        relations += found or ()
        tabled += [] if found is not None else [condition]
    title = f"the space of {name!r}"
    try:
        feasible = _feasible(title, parameters, tabled, conditions, relations)
    except InvalidValueError:
        # Too entangled to be joined group by group: whatever is tied together is listed.
        feasible = _feasible(title, parameters, conditions, conditions, ())
    if not feasible.count:
        raise InvalidValueError(
            f"{title} is empty: no configuration satisfies {_first_empty(parameters, conditions)}"
        )
    return ParameterSpace(workload, parameters, relations, feasible)


def recorded_space(program: str, parameters: Sequence[Parameter], rows: Matrix) -> ParameterSpace:
    """The space of listed configurations.

    Args:
        program: As of :func:`parameter_space`.
        parameters: The parameters.
        rows: The configurations, [n, parameters], as columns hold them.

    Raises:
        InvalidValueError: there is no row, one is there twice, or the shape is another.
    """
    workload = _workload(program, parameters)
    matrix = np.ascontiguousarray(rows, dtype=np.int64)
    if matrix.ndim != 2 or matrix.shape[1] != len(parameters) or not len(matrix):
        raise InvalidValueError(
            f"configurations of {len(parameters)} parameters are a matrix "
            f"[n, {len(parameters)}], not {list(matrix.shape)}"
        )
    ordered = matrix[np.lexsort(matrix.T[::-1])]
    if len(ordered) > 1 and (twice := (ordered[1:] == ordered[:-1]).all(axis=1)).any():
        config = {
            parameter.name: parameter.decode(column)
            for parameter, column in zip(
                parameters, ordered[np.argmax(twice)].tolist(), strict=True
            )
        }
        raise InvalidValueError(f"a configuration is there twice: {config}")
    names = tuple(parameter.name for parameter in parameters)
    feasible = listed_set(f"the space of {program!r}", names, ordered)
    return ParameterSpace(workload, parameters, (), feasible)


def listed_set(title: str, names: tuple[str, ...], rows: Matrix) -> FeasibleSet:
    """The set of listed configurations.

    Args:
        title: For messages.
        names: Of the parameters.
        rows: The configurations, each once, [n, parameters].
    """
    group = ParamGroup(names, tuple(range(len(names))), np.ascontiguousarray(rows))
    return FeasibleSet(title, names, join_groups(title, len(names), [group], []))


def _workload(program: str, parameters: Sequence[Parameter]) -> Workload:
    names = [parameter.name for parameter in parameters]
    if not names:
        raise InvalidValueError(f"{program!r} has no parameters to tune")
    for name in names:
        if names.count(name) > 1:
            raise InvalidValueError(f"two parameters are called {name!r}")
    text = json.dumps([program, names], separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Workload(program, (), (), (), external=digest)


def _feasible(
    title: str,
    parameters: Sequence[Parameter],
    tabled: Sequence[Condition],
    conditions: Sequence[Condition],
    relations: Sequence[Relation],
) -> FeasibleSet:
    """The feasible set, with the parameters of each cluster of ``tabled`` as one group."""
    names = tuple(parameter.name for parameter in parameters)
    groups = []
    listed: frozenset[str] = frozenset()
    for cluster in clusters(tabled):
        members = [parameter for parameter in parameters if parameter.name in cluster]
        inside = [it for it in conditions if it.names and set(it.names) <= cluster]
        rows = joint_values(members, inside)
        own = tuple(member.name for member in members)
        groups.append(ParamGroup(own, tuple(map(names.index, own)), rows))
        listed |= cluster
    for position, parameter in enumerate(parameters):
        if parameter.name not in listed:
            values = np.array(parameter.column.values, dtype=np.int64).reshape(-1, 1)
            groups.append(ParamGroup((parameter.name,), (position,), values))
    return FeasibleSet(title, names, join_groups(title, len(names), groups, relations))


def _first_empty(parameters: Sequence[Parameter], conditions: Sequence[Condition]) -> str:
    """The first constraint with which, beside those before it, nothing is left."""
    for count in range(1, len(conditions) + 1):
        some = conditions[:count]
        try:
            left = _feasible("", parameters, some, some, ()).count
        except InvalidValueError:
            break
        if not left:
            before = f" beside the {count - 1} before it" if count > 1 else ""
            return f"{conditions[count - 1].text!r}{before}"
    return "all constraints at once"


TABLE_LIMIT = 4_000_000
"""Most joint values of one cluster that are kept in memory."""
_ROWS_AT_ONCE = 1 << 16


def clusters(conditions: Sequence[Condition]) -> list[frozenset[str]]:
    """Parameters that the conditions tie together, directly or through others."""
    found: list[frozenset[str]] = []
    for condition in conditions:
        joined = frozenset(condition.names)
        apart = []
        for cluster in found:
            if cluster & joined:
                joined |= cluster
            else:
                apart.append(cluster)
        found = [*apart, joined]
    return found


def joint_values(
    parameters: Sequence[Parameter], conditions: Sequence[Condition], limit: int = TABLE_LIMIT
) -> Matrix:
    """Every row of columns of ``parameters`` for which all conditions hold; [m, parameters].

    Parameters are joined one after the other, and each condition is looked at as soon as all of
    its parameters are there.

    Raises:
        InvalidValueError: there are more than ``limit`` at some moment, or a condition cannot be
            computed.
    """
    ordered = _joining_order(parameters, conditions)
    names: list[str] = []
    # Positions of values, not the values: conditions look the values up.
    table = np.zeros((1, 0), dtype=np.int32)
    values = {parameter.name: values_of(parameter) for parameter in parameters}
    open_conditions = list(conditions)
    for parameter in ordered:
        names.append(parameter.name)
        ready = [it for it in open_conditions if set(it.names) <= set(names)]
        open_conditions = [it for it in open_conditions if it not in ready]
        table = _extended(table, names, ready, values, limit)
    columns = {
        parameter.name: np.array(parameter.column.values, dtype=np.int64)[table[:, place]]
        for place, parameter in enumerate(ordered)
    }
    if not parameters:
        return np.zeros((1, 0), dtype=np.int64)
    rows = np.column_stack([columns[parameter.name] for parameter in parameters])
    return np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])])


def _extended(
    table: np.ndarray[tuple[int, int], np.dtype[np.int32]],
    names: Sequence[str],
    conditions: Sequence[Condition],
    values: Mapping[str, np.ndarray[tuple[int], np.dtype[np.generic]]],
    limit: int,
) -> np.ndarray[tuple[int, int], np.dtype[np.int32]]:
    """The rows of ``table`` with each value of the last name, where the conditions hold."""
    parts, count = [], 0
    choices = len(values[names[-1]])
    # As many at once as keep arrays small, however long either side is.
    step = max(1, _ROWS_AT_ONCE // max(1, len(table)))
    for first in range(0, choices, step):
        positions = np.arange(first, min(first + step, choices), dtype=np.int32)
        grown = np.column_stack(
            [np.tile(table, (len(positions), 1)), np.repeat(positions, len(table))]
        )
        for condition in conditions:
            if len(grown):
                columns = {it: values[it][grown[:, names.index(it)]] for it in condition.names}
                grown = grown[condition.holds(columns)]
        parts.append(grown)
        count += len(grown)
        if count > limit:
            raise InvalidValueError(
                f"parameters {', '.join(names)} have more than {limit} joint values: constraints "
                "over whole numbers below 2**62 with + - * // % and comparisons need no list of "
                "them"
            )
    return np.concatenate(parts)


def _joining_order(
    parameters: Sequence[Parameter], conditions: Sequence[Condition]
) -> list[Parameter]:
    """An order in which conditions can be looked at early: those soonest complete first."""
    left = {parameter.name: parameter for parameter in parameters}
    joined: list[Parameter] = []
    while left:
        waiting = [set(it.names) & set(left) for it in conditions]
        nearest = min((it for it in waiting if it), key=len, default=set(left))
        for name in [it for it in left if it in nearest]:
            joined.append(left.pop(name))
    return joined


Relation = AtMost | OneOf

_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_MOST_RUNS = 64
_HIGHEST_POWER = 8
_LARGEST = 2**62
"""Bound on what relations are computed from: native code holds 64 bits."""


class _NotWhole(Exception):
    """A part is no expression of integers alone."""


def translate(
    condition: Condition, parameters: Mapping[str, Parameter]
) -> tuple[Relation, ...] | None:
    """The condition as relations over the columns of a configuration, all of which must hold.

    None where it is about fractions or texts of several parameters at once, or might divide by
    zero or need numbers beyond 2**62: whether it holds is then only known value by value.
    """
    translator = _Translator(parameters)
    try:
        relations = tuple(
            translator.relation(part, condition.text) for part in _conjuncts(condition.node)
        )
        largest = {
            name: max(map(abs, parameters[name].column.values or ())) for name in condition.names
        }
        for relation in relations:
            _checked_size(relation.expression, largest)
    except _NotWhole:
        return None
    return relations


def values_of(parameter: Parameter) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    """The values of a parameter as conditions see them, in the order of its column; [values]."""
    if parameter.is_whole:
        return np.array(sorted(map(int, parameter.values)), dtype=np.int64)
    kinds = {type(value) for value in parameter.values}
    if kinds <= {int, float}:
        return np.array(parameter.values, dtype=np.float64)
    array = np.empty(len(parameter.values), dtype=object)
    array[:] = parameter.values
    return array


def _checked_size(expression: IntExpr, largest: Mapping[str, int]) -> int:
    """A bound of the absolute value of an expression, and of what it is computed from."""
    op, args = expression.op, expression.args
    if op == "var":
        size = largest[args[0]]
    elif op == "const":
        size = abs(args[0])
    else:
        parts = [_checked_size(part, largest) for part in args]
        if op == "add":
            size = sum(parts)
        elif op == "mul":
            # Of none of them alone either, should another be zero.
            size = math.prod(max(1, part) for part in parts)
        else:
            size = 1 if op == "less" else max(parts)
    if size > _LARGEST:
        raise _NotWhole
    return size


def _conjuncts(node: Node) -> Sequence[Node]:
    if node.op != "and":
        return [node]
    return [part for argument in node.args for part in _conjuncts(argument)]


def _names(node: Node) -> frozenset[str]:
    if node.op == "name":
        return frozenset(node.args)
    return frozenset().union(*(_names(it) for it in node.args if isinstance(it, Node)))


@frozen
class _Translator:
    parameters: Mapping[str, Parameter]

    def relation(self, node: Node, source: str) -> Relation:
        """Translate ``node`` to a relation."""
        if node.op in ("<", "<=", ">", ">=") and len(_names(node)) > 1:
            left, right = (self.whole(it) for it in node.args)
            if node.op in (">", ">="):
                left, right = right, left
            return AtMost(left - right, -1 if node.op in ("<", ">") else 0, source)
        return OneOf(self.truth(node), (1,), source)

    def truth(self, node: Node) -> IntExpr:
        """1 where ``node`` holds, else 0."""
        names = _names(node)
        if len(names) <= 1:
            return self._by_value(node, names)
        if node.op == "and":
            return product(self.truth(part) for part in node.args)
        if node.op == "or":
            return 1 - product(1 - self.truth(part) for part in node.args)
        if node.op == "in":
            return self._membership(node)
        if node.op == "not":
            return 1 - self.truth(node.args[0])
        if node.op == "if":
            chosen, first, second = (self.truth(it) for it in node.args)
            return select(chosen, first, second)
        if node.op in _COMPARED:
            return self._comparison(node)
        return 1 - _equal(self.whole(node), const(0))

    def _comparison(self, node: Node) -> IntExpr:
        left, right = (self.whole(it) for it in node.args)
        if node.op in ("==", "!="):
            equal = _equal(left, right)
            return equal if node.op == "==" else 1 - equal
        if node.op in (">", ">="):
            left, right = right, left
        return less(left, right if node.op in ("<", ">") else right + 1)

    def _membership(self, node: Node) -> IntExpr:
        operand, values = self.whole(node.args[0]), node.args[1]
        if not all(isinstance(value, int) for value in values):
            raise _NotWhole
        return 1 - product(1 - _equal(operand, const(value)) for value in values)

    def _by_value(self, node: Node, names: frozenset[str]) -> IntExpr:
        """Tell if the one parameter of ``node`` has one of the values for which it holds."""
        if not names:
            try:
                return const(int(Condition("", node, ()).holds({})[0]))
            except InvalidValueError:
                raise _NotWhole from None
        (name,) = names
        parameter = self.parameters[name]
        columns = np.array(parameter.column.values, dtype=np.int64)
        try:
            holds = Condition("", node, (name,)).holds({name: values_of(parameter)})
        except InvalidValueError:
            # Perhaps a condition beside it rules out the values with which it cannot be computed.
            raise _NotWhole from None
        if holds.all():
            return const(1)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], holds, [False]]).astype(np.int8)))
        if len(edges) > 2 * _MOST_RUNS:
            raise _NotWhole
        found = const(0)
        for first, end in edges.reshape(-1, 2).tolist():
            low, high = int(columns[first]), int(columns[end - 1])
            inside = less(low - 1, var(name)) * less(var(name), high + 1)
            found = found + (inside if low < high else _equal(var(name), const(low)))
        return found

    def whole(self, node: Node) -> IntExpr:
        """The whole number that ``node`` is."""
        if node.op == "value" and isinstance(node.args[0], int):
            return const(node.args[0])
        if node.op == "name" and self.parameters[node.args[0]].is_whole:
            return var(node.args[0])
        if node.op == "neg":
            return -self.whole(node.args[0])
        if node.op in ("+", "-", "*"):
            left, right = (self.whole(it) for it in node.args)
            if node.op == "*":
                return left * right
            return left + right if node.op == "+" else left - right
        if node.op in ("//", "%") and self._is_positive(node.args[1]):
            left, right = (self.whole(it) for it in node.args)
            return left // right if node.op == "//" else left % right
        if node.op == "**" and node.args[1].op == "value":
            return self._power(self.whole(node.args[0]), node.args[1].args[0])
        if node.op in ("and", "or", "if", "value", "name", "/", "**", "//", "%"):
            raise _NotWhole
        return self.truth(node)

    def _power(self, base: IntExpr, exponent: object) -> IntExpr:
        if not isinstance(exponent, int) or not 0 <= exponent <= _HIGHEST_POWER:
            raise _NotWhole
        return product([base] * exponent)

    def _is_positive(self, node: Node) -> bool:
        if node.op == "value":
            return bool(isinstance(node.args[0], int) and node.args[0] > 0)
        if node.op == "name":
            return min(self.parameters[node.args[0]].column.values or (0,)) > 0
        if node.op in ("*", "+"):
            return all(self._is_positive(it) for it in node.args)
        return False


def _equal(left: IntExpr, right: IntExpr) -> IntExpr:
    return 1 - less(left, right) - less(right, left)
