"""Constraints split by parameter groups: terms of one group, and relations between groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add, mul
from typing import Any

from attrs import frozen

from autotune.ir.expressions import IntExpr
from autotune.sketches import AtLeast, AtMost, OneOf

LARGEST = 2**62
"""Bounds from here on count as unknown: native code holds 64 bits."""

Relational = AtMost | AtLeast | OneOf
"""A constraint that may join groups; a product is a group."""

Range = tuple[int, int]
UNKNOWN: Range = (-LARGEST, LARGEST)


@frozen(eq=False)
class Term:
    """An expression over columns of signatures; equality is identity.

    Attributes:
        op: ``const`` (args: its value), ``column`` (args: group and column) or an operation.
        args: What it is made of.
        groups: Bit mask of the groups it depends on.
    """

    op: str
    args: tuple[Any, ...]
    groups: int


@frozen(eq=False)
class Relation:
    """A constraint between groups: what ``term`` may be.

    Attributes:
        least, most: Inclusive bounds, None where there is none.
        values: If any, the only values allowed; sorted.
    """

    term: Term
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
        self._owners = owners
        self._masks: dict[IntExpr, int] = {}

    def relation(self, constraint: Relational) -> Relation:
        """A constraint as a relation."""
        if isinstance(constraint, AtMost):
            return Relation(self.term(constraint.expression), None, constraint.limit, ())
        if isinstance(constraint, AtLeast):
            return Relation(self.term(constraint.expression), constraint.limit, None, ())
        values = tuple(sorted(set(constraint.values)))
        least, most = (values[0], values[-1]) if values else (1, 0)
        return Relation(self.term(constraint.expression), least, most, values)

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

    def term(self, expression: IntExpr) -> Term:
        """The expression over columns."""
        mask = self.groups_of(expression)
        if mask == 0:
            return Term("const", (expression.args[0],), 0)
        if mask & (mask - 1) == 0:
            return self._column(mask, expression)
        if expression.op not in ("add", "mul"):
            return Term(expression.op, tuple(self.term(arg) for arg in expression.args), mask)
        owned: dict[int, list[IntExpr]] = {}
        shared: list[Term] = []
        for arg in expression.args:
            owner = self.groups_of(arg)
            if owner & (owner - 1) == 0 and owner != 0:
                owned.setdefault(owner, []).append(arg)
            else:
                shared.append(self.term(arg))
        combine = add if expression.op == "add" else mul
        own = [self._column(owner, reduce(combine, args)) for owner, args in owned.items()]
        return Term(expression.op, (*own, *shared), mask)

    def _column(self, mask: int, expression: IntExpr) -> Term:
        group = mask.bit_length() - 1
        columns = self.columns[group]
        return Term("column", (group, columns.setdefault(expression, len(columns))), mask)


class Ranges:
    """The interval of a term from the intervals of the columns, ``ranges[group][column]``."""

    def __init__(self, ranges: Sequence[Sequence[Range]]) -> None:
        self._columns = ranges
        self._known: dict[Term, Range] = {}

    def of(self, term: Term) -> Range:
        """Smallest and largest value, or ``UNKNOWN``."""
        if term not in self._known:
            self._known[term] = self._find(term)
        return self._known[term]

    def _find(self, term: Term) -> Range:
        if term.op == "const":
            return (term.args[0], term.args[0])
        if term.op == "column":
            group, column = term.args
            found: Range = self._columns[group][column]
            return found
        return _over(term.op, [self.of(arg) for arg in term.args])


def expression_range(expression: IntExpr, ranges: Mapping[str, Range]) -> Range:
    """An interval that holds all values of an expression over variables with these intervals.

    ``UNKNOWN`` where an operation has none, or where 64 bits might not hold it.
    """
    if expression.op == "const":
        return (expression.args[0], expression.args[0])
    if expression.op == "var":
        return ranges[expression.args[0]]
    return _over(expression.op, [expression_range(arg, ranges) for arg in expression.args])


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
