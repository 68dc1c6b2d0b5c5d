"""Interval arithmetic: bounds of values over all points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr

Interval = tuple[float, float]
"""Least and greatest value."""

# Beyond this a double has too little room left for products and logarithms of it.
_LARGEST = 2.0**1000


def add(left: Interval, right: Interval) -> Interval:
    """Sums."""
    return left[0] + right[0], left[1] + right[1]


def multiply(left: Interval, right: Interval) -> Interval:
    """Products."""
    return _hull(a * b for a in left for b in right)


def divide(left: Interval, right: Interval) -> Interval:
    """Quotients.

    Raises:
        InvalidValueError: the divisor may be zero.
    """
    if right[0] <= 0.0 <= right[1]:
        raise InvalidValueError(
            f"may divide by zero: its divisor is between {right[0]:g} and {right[1]:g}"
        )
    return _hull(a / b for a in left for b in right)


def minimum(left: Interval, right: Interval) -> Interval:
    """The smaller of two."""
    return min(left[0], right[0]), min(left[1], right[1])


def maximum(left: Interval, right: Interval) -> Interval:
    """The larger of two."""
    return max(left[0], right[0]), max(left[1], right[1])


def blend(condition: Interval, when_true: Interval, when_false: Interval) -> Interval:
    """``c * t + (1 - c) * f``, which takes its extremes at corners."""
    corners = itertools.product(condition, when_true, when_false)
    return _hull(c * t + (1.0 - c) * f for c, t, f in corners)


def blend_log(condition: Interval, when_true: Interval, when_false: Interval) -> Interval:
    """``t^c * f^(1 - c)`` of positive values."""
    low, high = blend(condition, _log2(when_true), _log2(when_false))
    return 2.0**low, 2.0**high


def is_bounded(interval: Interval) -> bool:
    """Return whether the values are numbers that can be computed with."""
    return -_LARGEST <= interval[0] <= interval[1] <= _LARGEST


def is_positive(interval: Interval) -> bool:
    """Return whether the values are positive, with room for a logarithm."""
    return interval[0] >= 1.0 / _LARGEST


def of_expression(expression: IntExpr, bounds: Mapping[str, Interval]) -> Interval:
    """Range of an expression of sums and products.

    Raises:
        InvalidValueError: the expression has another operation, or a variable without bounds.
    """
    if expression.op == "const":
        return float(expression.args[0]), float(expression.args[0])
    if expression.op == "var" and expression.args[0] in bounds:
        return bounds[expression.args[0]]
    if expression.op not in ("add", "mul"):
        raise InvalidValueError(f"no bounds are known for {expression!r}")
    operation = add if expression.op == "add" else multiply
    result, *others = (of_expression(arg, bounds) for arg in expression.args)
    for other in others:
        result = operation(result, other)
    return result


def _log2(interval: Interval) -> Interval:
    return math.log2(interval[0]), math.log2(interval[1])


def _hull(values: Iterable[float]) -> Interval:
    found = list(values)
    return min(found), max(found)
