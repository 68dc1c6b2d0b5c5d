"""Conditions as relations of integer expressions, where they are such."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, const, less, product, select, var
from autotune.sketches import AtMost, OneOf
from autotune.spaces.parameters.conditions import Condition, Node
from autotune.spaces.parameters.parameter import Parameter

__all__ = ["Relation", "translate", "values_of"]

Relation = AtMost | OneOf

_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_MOST_RUNS = 64
_HIGHEST_POWER = 8
_LARGEST = 2**62
"""What relations are computed from: native code holds 64 bits."""


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
