"""Copies of halves in the type in which they are computed with.

What a schedule copies for a product is read many times: once for every row, or every block of
columns. Halves that a stage converts wherever it reads them are converted once, when they are
copied. Instructions on halves take them as they are.
"""

from __future__ import annotations

import math

from attrs import evolve

from autotune.ir.expressions import Cast, Constant, Load, ScalarExpr, transform
from autotune.ir.expressions.scalar import reads
from autotune.nest.loop_nest import Buffer, LoopNest, Statement

__all__ = ["with_wide_copies"]

_HALVES = ("float16", "bfloat16")
_WIDE = "float32"

# Of what is read less often, memory is waited for, and twice as much takes twice as long.
_LEAST_READS = 8


def with_wide_copies(nest: LoopNest) -> LoopNest:
    """The nest with copies of halves widened that all readers convert."""
    wide = {it.name for it in nest.buffers if it.dtype in _HALVES and _is_widened(nest, it)}
    if not wide:
        return nest
    buffers = (evolve(it, dtype=_WIDE) if it.name in wide else it for it in nest.buffers)
    return evolve(nest, buffers=tuple(buffers))


def _is_widened(nest: LoopNest, buffer: Buffer) -> bool:
    writers = [it for it in (*nest.packing, *nest.statements) if _touches(it, buffer, write=True)]
    readers = [it for it in nest.statements if _touches(it, buffer, write=False)]
    return all(it.role == "pack" for it in writers) and all(
        not it.intrinsic and _converts(it, buffer) and _reads(nest, it, buffer) >= _LEAST_READS
        for it in readers
    )


def _touches(statement: Statement, buffer: Buffer, *, write: bool) -> bool:
    return any(it.buffer == buffer.name and it.write is write for it in statement.accesses)


def _converts(statement: Statement, buffer: Buffer) -> bool:
    """Return whether all elements that a statement reads of a buffer are converted at once."""

    def served(node: ScalarExpr) -> bool:
        return isinstance(node, Load) and statement.sources.get(node.tensor) == buffer.name

    def known(node: ScalarExpr) -> ScalarExpr | None:
        converted = isinstance(node, Cast) and node.dtype == _WIDE and served(node.operand)
        return Constant(0.0, _WIDE) if converted else None

    if statement.body is None:
        return False
    rest = reads(transform(statement.body, known))
    return not any(statement.sources.get(read.tensor) == buffer.name for read in rest)


def _reads(nest: LoopNest, statement: Statement, buffer: Buffer) -> int:
    """Number of times that an element is read, but for windows that overlap."""
    stage = nest.workload.stage(statement.stage)
    access = next(it for it in statement.accesses if it.buffer == buffer.name and not it.write)
    moving = {axis for form in access.forms for axis in form.axes}
    return math.prod(axis.extent for axis in stage.spatial_axes if axis.name not in moving)
