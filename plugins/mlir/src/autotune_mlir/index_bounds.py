"""Bounds of index expressions over the iteration space of a stage."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.ir.expressions import IntExpr

__all__ = ["index_bounds"]


def index_bounds(index: IntExpr, extents: Mapping[str, int]) -> tuple[int, int]:
    """Smallest and largest value that ``index`` can have, by interval arithmetic.

    Both are right for every point; they are reached for sure only where no axis occurs twice.

    Args:
        index: An index expression over axes.
        extents: Extent of each axis by name.
    """
    op = index.op
    if op == "const":
        return index.args[0], index.args[0]
    if op == "var":
        return 0, extents[index.args[0]] - 1
    parts = [index_bounds(argument, extents) for argument in index.args]
    if op == "add":
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if op == "less":
        return 0, 1
    if op == "select":
        return min(parts[1][0], parts[2][0]), max(parts[1][1], parts[2][1])
    result = parts[0]
    for part in parts[1:]:
        result = _combine(op, result, part)
    return result


def _combine(op: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    if op == "min":
        return min(left[0], right[0]), min(left[1], right[1])
    if op == "max":
        return max(left[0], right[0]), max(left[1], right[1])
    if op == "mul":
        corners = [a * b for a in left for b in right]
        return min(corners), max(corners)
    if right[0] <= 0:
        # Rounding down by something that is not positive: no smaller interval is known.
        reach = max(map(abs, (*left, *right)))
        return -reach, reach
    if op == "floordiv":
        corners = [a // b for a in left for b in right]
        return min(corners), max(corners)
    whole = right[0] == right[1] and left[0] // right[0] == left[1] // right[0]
    if whole:
        return left[0] % right[0], left[1] % right[0]
    return 0, right[1] - 1
