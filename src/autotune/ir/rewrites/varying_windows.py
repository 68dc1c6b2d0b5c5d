"""Reductions whose windows differ from result to result, as ones over windows of one size.

Adaptive pooling is written so where the output does not divide the input: the extents of the loops
depend on which result they reduce to. Windows of one size are those of the largest one. What is
beyond a smaller window is not read; it contributes what the reduction starts with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.expressions.scalar import reads, walk
from autotune.ir.rewrites.reductions import Reduction, combined
from autotune.ir.workloads.reference import evaluate_body
from autotune.ir.workloads.workload import Axis

__all__ = ["Window", "window_of", "within_windows"]

# Windows whose extents are computed to find the largest.
_MOST_WINDOWS = 1 << 20


@frozen
class Window:
    """The windows of all results along one axis.

    Attributes:
        most: The extent of the largest one.
        extent: The extent of each; None where all have the same.
    """

    most: int
    extent: ScalarExpr | None


def window_of(extent: ScalarExpr, axes: Sequence[Axis]) -> Window:
    """Windows by their extent.

    Args:
        extent: A whole number, computed from axes.
        axes: Those of the results.

    Raises:
        UnsupportedWorkload: it is computed from something else, or a window is empty.
    """
    sizes = _values(extent, axes)
    low, high = int(sizes.min()), int(sizes.max())
    if low < 1:
        raise UnsupportedWorkload(f"the window of a result has {low} elements")
    return Window(high, None if low == high else _without_selection(extent, axes))


def within_windows(reduction: Reduction, windows: Mapping[str, Window]) -> Reduction:
    """The reduction without what is beyond smaller windows.

    Args:
        reduction: Over the largest windows.
        windows: By the axis that is reduced over them.

    Raises:
        UnsupportedWorkload: it does not combine what was there with something else.
    """
    inside = [
        Binary("lt", IndexValue(var(axis)), window.extent)
        for axis, window in windows.items()
        if window.extent is not None
    ]
    if not inside:
        return reduction
    condition = reduce(lambda one, other: Binary("and", one, other), inside)
    updates = []
    for place, (update, start) in enumerate(zip(reduction.updates, reduction.starts, strict=True)):
        before = reduction.before(place)
        combiner, element = combined(update, before)
        updates.append(Binary(combiner, before, Select(condition, element, start)))
    return evolve(reduction, updates=tuple(updates))


def _values(expression: ScalarExpr, axes: Sequence[Axis]) -> NDArray[np.int64]:
    """An expression for every value of the axes that it depends on.

    Raises:
        UnsupportedWorkload: it depends on something else, or on too many results.
    """
    if reads(expression):
        raise UnsupportedWorkload("the extent of its window depends on data")
    nodes = [node.index.variables for node in walk(expression) if isinstance(node, IndexValue)]
    used = [axis for axis in axes if any(axis.name in names for names in nodes)]
    count = math.prod(axis.extent for axis in used)
    if count > _MOST_WINDOWS:
        raise UnsupportedWorkload(
            f"its windows have {count} extents, of which at most {_MOST_WINDOWS} are computed"
        )
    ranges = (np.arange(axis.extent) for axis in used)
    grid = dict(zip((axis.name for axis in used), np.ix_(*ranges), strict=True))
    return np.asarray(evaluate_body(expression, grid, {}))


def _without_selection(body: ScalarExpr, axes: Sequence[Axis]) -> ScalarExpr:
    """The same number, quotients rounded up as quotients of sums where they are selections."""
    if isinstance(body, Constant):
        return IndexValue(const(int(body.value)))
    if isinstance(body, Binary) and body.op in ("add", "sub"):
        left, right = (_without_selection(part, axes) for part in (body.left, body.right))
        if not (isinstance(left, IndexValue) and isinstance(right, IndexValue)):
            return Binary(body.op, left, right)
        sign = 1 if body.op == "add" else -1
        return IndexValue(left.index + right.index * sign)
    if isinstance(body, Select) and isinstance(body.on_true, IndexValue):
        quotient = body.on_true.index
        if quotient.op == "floordiv":
            top, divisor = quotient.args
            rounded = IndexValue((top + divisor - 1) // divisor)
            if np.all(_values(rounded, axes) == _values(body, axes)):
                return rounded
    return body
