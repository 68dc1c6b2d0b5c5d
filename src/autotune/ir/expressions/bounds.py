"""Bounds of index expressions over the iteration space of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.expressions.integer import IntExpr, const, rebuilt
from autotune.ir.expressions.scalar import Binary, Gather, Load, ScalarExpr, walk


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


def simplify_index(index: IntExpr, extents: Mapping[str, int]) -> IntExpr:
    """An index with the same value at every point, of which fewer parts are divided.

    A quotient of a sum takes out the multiples of its divisor, and a quotient or remainder goes
    where what is divided stays between two multiples: ``(64 * i + j) // 64`` is ``i`` for ``j``
    below 64.

    Args:
        index: An index expression over axes.
        extents: Extent of each axis by name.
    """
    if index.op in ("const", "var"):
        return index
    args = [simplify_index(argument, extents) for argument in index.args]
    result = rebuilt(index.op, args)
    if result.op not in ("floordiv", "mod"):
        return result
    top, bottom = result.args
    divisor: int | None = bottom.value
    if divisor is None or divisor <= 0:
        return result
    whole, rest = _multiples(top, divisor)
    low, high = index_bounds(rest, extents)
    quotient = low // divisor
    if quotient == high // divisor:
        return whole + quotient if result.op == "floordiv" else rest - quotient * divisor
    return whole + rest // divisor if result.op == "floordiv" else rest % divisor


def is_speculatable(
    body: ScalarExpr, extents: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> bool:
    """Return whether ``body`` may be evaluated where its value is not asked for.

    It may not where it could read outside a tensor or divide by zero: a branch of a selection
    then needs a jump around it, or a guard, and is no part of a vector.

    Args:
        body: A branch of a selection, over axes.
        extents: Extent of each axis by name.
        shapes: Shape of each tensor that it loads from, by name.
    """
    for node in walk(body):
        if isinstance(node, Gather) or (isinstance(node, Binary) and node.op in ("div", "mod")):
            return False
        if isinstance(node, Load):
            for index, extent in zip(node.indices, shapes[node.tensor], strict=True):
                low, high = index_bounds(index, extents)
                if low < 0 or high >= extent:
                    return False
    return True


def _multiples(top: IntExpr, divisor: int) -> tuple[IntExpr, IntExpr]:
    """Split an expression that is divided into ``divisor * whole + rest``."""
    whole, rest = const(0), const(0)
    for part in top.args if top.op == "add" else (top,):
        factor = part.args[0].value if part.op == "mul" else part.value
        if factor is not None and factor % divisor == 0:
            whole = whole + part // divisor
        else:
            rest = rest + part
    return whole, rest


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
