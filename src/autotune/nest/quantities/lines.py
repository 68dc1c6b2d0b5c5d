"""Strides and cache lines: how a statement's accesses lie in memory."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.ir.expressions import IntExpr, const, less, minimum, select
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.nest.quantities.regions import buffers_of
from autotune.nest.quantities.strides import Walk, layout_of, physical_region

__all__ = [
    "LINE_BYTES",
    "contiguous",
    "covered",
    "innermost_stride",
    "line_bytes",
    "line_quantities",
    "lines_by_power",
    "smallest_stride",
]

# What memory moves at a time, on every target: TVM's and Ansor's features assume the same.
LINE_BYTES = 64


def smallest_stride(walk: Walk) -> IntExpr:
    """Stride, in elements, of the innermost loop that moves the buffer; 0 if none does."""
    result = const(0)
    for index in range(len(walk.statement.loops)):
        result = select(walk.moves[index], walk.strides[index], result)
    return result


def innermost_stride(walk: Walk) -> IntExpr:
    """Stride, in elements, of the innermost loop in the buffer; 0 if it does not move it."""
    result = const(0)
    for index in range(len(walk.statement.loops)):
        moves, counts = walk.moves[index], walk.counts[index]
        moved = walk.strides[index] if moves == counts else select(moves, walk.strides[index], 0)
        result = select(counts, moved, result)
    return result


def line_bytes(walk: Walk) -> IntExpr:
    """Bytes of the cache lines that all executions touch, each line once per run along it.

    The loops inside the innermost one that moves the buffer stay in a line; of each step of that
    one, at most a whole line is counted.
    """
    width = walk.nest.element_bytes(walk.buffer)
    result = const(0)
    for index in range(len(walk.statement.loops)):
        per_step = minimum(walk.strides[index] * width, LINE_BYTES)
        touched = walk.known[f"{walk.statement.name}/trips/{index + 1}"] * per_step
        result = select(walk.moves[index], touched, result)
    return result


def lines_by_power(walk: Walk) -> tuple[IntExpr, IntExpr]:
    """As :func:`line_bytes`, with an error of Ansor's and TenSet's extractor: a quotient.

    The loops inside the first that moves the buffer are divided out as if each had the extent of
    the innermost one. Returns dividend and divisor.
    """
    width = walk.nest.element_bytes(walk.buffer)
    innermost, top, bottom = const(1), const(0), const(1)
    for loop, counts in zip(walk.statement.loops, walk.counts, strict=True):
        innermost = select(counts, loop.extent, innermost)
    total = walk.known[f"{walk.statement.name}/trips/{len(walk.statement.loops)}"]
    for index, counts in enumerate(walk.counts):
        bottom = bottom * select(counts, innermost, 1)
        top = select(
            walk.moves[index], total * minimum(walk.strides[index] * width, LINE_BYTES), top
        )
        bottom = select(walk.moves[index], 1, bottom)
    return top, bottom


def contiguous(nest: LoopNest, statement: Statement, buffer: str) -> IntExpr:
    """Elements that lie together in memory in the hull of what is touched of a buffer.

    The innermost dimension, and the next one out as long as those inside are covered completely.
    """
    layout = layout_of(nest, buffer)
    extents = physical_region(nest, statement, buffer, layout)
    result = const(1)
    for extent, size in zip(extents, layout.shape, strict=True):
        # From the outermost dimension in: a dimension that is not covered ends the run.
        result = extent * _if_full(extent, size, result)
    return result


def _if_full(extent: IntExpr, size: IntExpr, outer: IntExpr) -> IntExpr:
    if extent == size:
        return outer
    return select(less(extent, size), 1, outer)


def covered(shape: tuple[IntExpr, ...], extents: tuple[IntExpr, ...]) -> IntExpr:
    """Extent of the last dimension that equals what is touched of it; 0 if none does.

    TVM and Ansor take it for what lies together in memory, whatever is inside that dimension.
    """
    result = const(0)
    for extent, size in zip(extents, shape, strict=False):
        equal = select(less(extent, size), result, select(less(size, extent), result, size))
        result = size if extent == size else equal
    return result


def line_quantities(
    nest: LoopNest, statement: Statement, known: Mapping[str, IntExpr]
) -> dict[str, IntExpr]:
    """``stride``, ``step``, ``line_bytes`` and ``contiguous`` of one statement, by output name."""
    outputs: dict[str, IntExpr] = {}
    name = statement.name
    for buffer in buffers_of(statement):
        walk = Walk(nest, statement, buffer, known)
        outputs[f"{name}/stride/{buffer}"] = innermost_stride(walk)
        outputs[f"{name}/step/{buffer}"] = smallest_stride(walk)
        outputs[f"{name}/line_bytes/{buffer}"] = line_bytes(walk)
        outputs[f"{name}/contiguous/{buffer}"] = contiguous(nest, statement, buffer)
    return outputs
