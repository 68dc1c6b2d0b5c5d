"""Constraints as the three relations that feasible sets join: at most, at least, one of."""

from __future__ import annotations

from functools import reduce

from autotune import sketches
from autotune.ir.expressions import IntExpr, const, less, maximum, minimum, product, select, var
from autotune.spaces.feasible import Relational
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Clause,
    Constraint,
    Divides,
    Equal,
    Literal,
    Member,
    NotEqual,
    Product,
    Select,
    Sum,
)

__all__ = ["between", "chosen", "one_of", "relations"]


def relations(constraint: Constraint) -> tuple[Relational, ...]:
    """Relations that hold together exactly where the constraint holds."""
    if isinstance(constraint, Product):
        return (_same(product(constraint.factors), constraint.total),)
    if isinstance(constraint, Sum):
        return (_same(reduce(IntExpr.__add__, constraint.terms, const(0)), constraint.total),)
    if isinstance(constraint, Equal):
        return (_same(constraint.left, constraint.right),)
    if isinstance(constraint, NotEqual):
        return (sketches.AtLeast(_distance(constraint.left, constraint.right), 1, ""),)
    if isinstance(constraint, AtMost):
        return (_at_most(constraint.left, constraint.right),)
    if isinstance(constraint, AtLeast):
        return (_at_most(constraint.right, constraint.left),)
    if isinstance(constraint, Member):
        return (one_of(constraint.expression, constraint.values),)
    if isinstance(constraint, Select):
        positions = tuple(range(len(constraint.options)))
        return (_same(chosen(constraint), constraint.total), one_of(constraint.index, positions))
    if isinstance(constraint, Divides):
        return _divides(constraint)
    literals = (
        [_indicator(literal) for literal in constraint.literals]
        if isinstance(constraint, Clause)
        else [_row_indicator(constraint.columns, row) for row in constraint.rows]
    )
    return (sketches.AtLeast(reduce(maximum, literals, const(0)), 1, ""),)


def chosen(constraint: Select) -> IntExpr:
    """The selected option; the last one beyond the end."""
    result = constraint.options[-1]
    for position in reversed(range(len(constraint.options) - 1)):
        here = less(constraint.index, position + 1)
        result = select(here, constraint.options[position], result)
    return result


def one_of(expression: IntExpr, values: tuple[int, ...]) -> Relational:
    """The expression has one of the values."""
    return sketches.OneOf(expression, values, "")


def between(expression: IntExpr, low: int, high: int) -> tuple[Relational, ...]:
    """The expression is in an interval."""
    return sketches.AtLeast(expression, low, ""), sketches.AtMost(expression, high, "")


def _same(left: IntExpr, right: IntExpr) -> Relational:
    if right.value is not None:
        return one_of(left, (right.value,))
    return one_of(left - right, (0,))


def _at_most(left: IntExpr, right: IntExpr) -> Relational:
    if right.value is not None:
        return sketches.AtMost(left, right.value, "")
    if left.value is not None:
        return sketches.AtLeast(right, left.value, "")
    return sketches.AtMost(left - right, 0, "")


def _divides(constraint: Divides) -> tuple[Relational, ...]:
    divisor = constraint.divisor
    if divisor.value is not None:
        if divisor.value < 1:
            return (one_of(divisor, ()),)
        return (one_of(constraint.dividend % divisor, (0,)),)
    # A remainder by zero would be an error wherever it is looked at.
    remainder = constraint.dividend % maximum(divisor, 1)
    return one_of(remainder, (0,)), sketches.AtLeast(divisor, 1, "")


def _distance(left: IntExpr, right: IntExpr) -> IntExpr:
    return maximum(left - right, right - left)


def _indicator(literal: Literal) -> IntExpr:
    """1 where a literal holds, else 0."""
    if isinstance(literal, Equal):
        return _is_zero(_distance(literal.left, literal.right))
    if isinstance(literal, NotEqual):
        return less(0, _distance(literal.left, literal.right))
    if isinstance(literal, AtMost):
        return less(literal.left, literal.right + 1)
    if isinstance(literal, AtLeast):
        return less(literal.right, literal.left + 1)
    if isinstance(literal, Member):
        same = [_is_zero(_distance(literal.expression, const(v))) for v in literal.values]
        return reduce(maximum, same, const(0))
    if literal.divisor.value is not None and literal.divisor.value < 1:
        return const(0)
    remainder = literal.dividend % maximum(literal.divisor, 1)
    return minimum(_is_zero(remainder), less(0, literal.divisor))


def _row_indicator(columns: tuple[str, ...], row: tuple[int, ...]) -> IntExpr:
    same = [_is_zero(_distance(var(name), const(v))) for name, v in zip(columns, row, strict=True)]
    return reduce(minimum, same)


def _is_zero(distance: IntExpr) -> IntExpr:
    """1 where a number that is not negative is 0."""
    return less(distance, 1)
