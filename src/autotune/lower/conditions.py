"""Conditions on indices: decided by ranges, the same for all lanes, or a mask.

Padding, concatenation and guards compare indices. Most comparisons hold always or never where
they stand; of the others, most are the same for a whole vector, or for all loops further inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Binary, Cast, Constant, IndexValue, ScalarExpr, Select
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.linear import Digits, Linear

__all__ = ["Below", "all_below", "constant_of", "decided", "uniform"]


@frozen
class Below:
    """The condition that a form is less than 0."""

    form: Linear

    def decided(self, digits: Digits) -> bool | None:
        """Tell whether it always or never holds; None if it depends."""
        low, high = digits.bounds(digits.resolved(self.form))
        return True if high < 0 else False if low >= 0 else None

    def without(self, lane: str, lanes: int, digits: Digits) -> Below | None:
        """The same condition without the lane, where it is the same for all lanes; else None.

        With everything else a multiple of ``step``, ``step * n + lane < 0`` does not depend on
        lanes below ``step``.
        """
        form = digits.resolved(self.form)
        if not digits.depends(form, lane):
            return Below(form)
        rest = form.without(lane)
        if not digits.is_apart(form, lane):
            return None
        return _without(rest, 0, (lanes - 1) * form.coefficient(lane))

    def outside(self, inner: Callable[[str], bool], digits: Digits) -> Below | None:
        """The same condition without inner digits, where it does not depend on them; else None."""
        form = digits.resolved(self.form)
        moving = form.kept(inner)
        if any(
            inner(source)
            for name in form.digits
            if not inner(name)
            for source in digits.sources(name)
        ):
            return None
        low, high = digits.bounds(Linear(moving.terms))
        rest = form.kept(lambda name: not inner(name))
        return Below(rest) if not moving.terms else _without(rest, low, high)


def _without(rest: Linear, low: int, high: int) -> Below | None:
    """``rest < 0`` where ``rest + moving < 0`` is the same for ``moving`` from low to high."""
    step = math.gcd(*(value for _, value in rest.terms))
    if step == 0 or low < 0:
        return None
    over = rest.constant % step
    return Below(rest - over) if over + high < step else None


def comparison(node: ScalarExpr, axes: dict[str, Linear], digits: Digits) -> Below | None:
    """A comparison of two indices as a condition, negated where :func:`is_negated` says so."""
    if not isinstance(node, Binary) or node.op not in ("lt", "le", "gt", "ge"):
        return None
    left, right = _index(node.left, axes, digits), _index(node.right, axes, digits)
    if left is None or right is None:
        return None
    # a <= b is a - b - 1 < 0; a > b is its contrary.
    return Below(left - right - (1 if node.op in ("le", "gt") else 0))


def _index(node: ScalarExpr, axes: dict[str, Linear], digits: Digits) -> Linear | None:
    """An index or a whole number as a form; None if it is anything else."""
    if isinstance(node, Constant) and node.dtype in ("int32", "int64"):
        return Linear((), int(node.value))
    if not isinstance(node, IndexValue):
        return None
    try:
        return digits.of_expression(node.index, axes)
    except UnsupportedWorkload:
        return None


def is_negated(node: Binary) -> bool:
    """Tell whether a comparison holds where its :func:`comparison` does not."""
    return node.op in ("gt", "ge")


def decided(node: ScalarExpr, axes: dict[str, Linear], digits: Digits) -> bool | None:
    """Tell whether a condition always or never holds where it stands; None if it depends."""
    if isinstance(node, Binary) and node.op in ("and", "or"):
        found = [decided(part, axes, digits) for part in (node.left, node.right)]
        settles = node.op == "or"
        if settles in found:
            return settles
        return None if None in found else not settles
    if isinstance(node, Binary) and node.op in ("eq", "ne"):
        same = _are_equal(node, axes, digits)
        return same if same is None else same == (node.op == "eq")
    below = comparison(node, axes, digits)
    holds = None if below is None else below.decided(digits)
    return holds if holds is None or not is_negated(node) else not holds  # type: ignore[arg-type]


def constant_of(node: ScalarExpr, axes: dict[str, Linear], digits: Digits) -> float | None:
    """The number that a body is where it stands; None if it depends on anything.

    A product with a zero that is chosen is that zero, whatever the other factor is: the zeros that
    surround data, or lie between, stand for terms that a sum does not have.
    """
    if isinstance(node, Constant):
        return float(node.value)
    if isinstance(node, Cast):
        return constant_of(node.operand, axes, digits)
    if isinstance(node, Select):
        known = decided(node.condition, axes, digits)
        if known is None:
            return None
        return constant_of(node.on_true if known else node.on_false, axes, digits)
    if isinstance(node, Binary) and node.op == "mul":
        sides = (constant_of(side, axes, digits) for side in (node.left, node.right))
        return 0.0 if 0.0 in sides else None
    return None


def _are_equal(node: Binary, axes: dict[str, Linear], digits: Digits) -> bool | None:
    """Tell whether two indices are always or never the same; None if it depends."""
    left, right = _index(node.left, axes, digits), _index(node.right, axes, digits)
    if left is None or right is None:
        return None
    low, high = digits.bounds(digits.resolved(left - right))
    return True if low == high == 0 else False if low > 0 or high < 0 else None


@frozen
class Uniform:
    """A condition on indices that does not depend on inner digits.

    Attributes:
        op: ``below``, ``and``, ``or``.
        below: Of ``below``.
        negated: Whether ``below`` has to be false.
        parts: Of ``and`` and ``or``.
    """

    op: str
    below: Below | None = None
    negated: bool = False
    parts: tuple[Uniform, ...] = ()


def uniform(
    node: ScalarExpr, statement: ConcreteStatement, inner: Callable[[str], bool], digits: Digits
) -> Uniform | None:
    """A condition without the digits for which ``inner`` holds; None if it depends on them."""
    axes = dict(statement.axes)
    if isinstance(node, Binary) and node.op in ("and", "or"):
        parts = [uniform(part, statement, inner, digits) for part in (node.left, node.right)]
        known = tuple(part for part in parts if part is not None)
        return Uniform(node.op, parts=known) if len(known) == len(parts) else None
    below = comparison(node, axes, digits)
    outside = None if below is None else below.outside(inner, digits)
    if outside is None or not isinstance(node, Binary):
        return None
    return Uniform("below", outside, is_negated(node))


def all_below(pairs: list[tuple[Linear, int]], digits: Digits) -> list[Below]:
    """The conditions that forms are below bounds, without those that hold in all copies."""
    found = [Below(form - bound) for form, bound in pairs]
    return [below for below in found if digits.bounds(below.form)[1] >= 0]
