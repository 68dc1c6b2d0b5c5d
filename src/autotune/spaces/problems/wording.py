"""Constraints and domains as text."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr
from autotune.spaces.problems.vocabulary import (
    AtLeast,
    AtMost,
    Constraint,
    Divides,
    Domain,
    Equal,
    IntRange,
    Member,
    Product,
    Sum,
)

__all__ = ["constraint_text", "domain_text", "origin_text"]

_SIGNS: dict[type[object], str] = {Equal: "=", AtMost: "<=", AtLeast: ">="}
_SHOWN = 8


def domain_text(domain: Domain) -> str:
    """``1 .. 64``, or the values, in the middle of long lists dots."""
    if isinstance(domain, IntRange):
        return f"{domain.low} .. {domain.high}"
    return "{" + _listed(tuple(map(str, domain))) + "}"


def constraint_text(constraint: Constraint) -> str:
    """The relation as a formula."""
    if isinstance(constraint, Product):
        return f"{_bare(constraint.total)} = {' * '.join(map(repr, constraint.factors))}"
    if isinstance(constraint, Sum):
        return f"{_bare(constraint.total)} = {' + '.join(map(repr, constraint.terms))}"
    if isinstance(constraint, Member):
        return f"{_bare(constraint.expression)} in {domain_text(constraint.values)}"
    if isinstance(constraint, Divides):
        return f"{_bare(constraint.divisor)} divides {_bare(constraint.dividend)}"
    sign = _SIGNS[type(constraint)]
    return f"{_bare(constraint.left)} {sign} {_bare(constraint.right)}"


def origin_text(constraint: Constraint) -> str:
    """Source and step, whatever is known of them."""
    origin = constraint.origin
    return ", ".join(part for part in (origin.source, origin.step) if part)


def _bare(expression: IntExpr) -> str:
    """An expression without the parentheses around all of a sum."""
    text = repr(expression)
    return text[1:-1] if expression.op in ("add", "floordiv", "mod") else text


def _listed(items: tuple[str, ...]) -> str:
    if len(items) > _SHOWN:
        items = (*items[: _SHOWN - 2], "...", items[-1])
    return ", ".join(items)
