"""Symbols of the published PSA (Pruner, ASPLOS'25), read off the loop nest.

They are defined as its released code computes them from lowered programs, known errors
included: traffic in elements, statements that are either arithmetic or traffic, virtual threads
that count whole for every operand they move.
"""

from __future__ import annotations

from autotune.ir.expressions import IntExpr, const, less, select
from autotune.models.pruning.launches import Launch, launches, trip_count
from autotune.nest.loop_nest import Loop, LoopNest, Statement

__all__ = ["PUBLISHED_SYMBOLS", "published_symbols"]

PUBLISHED_SYMBOLS = (
    "flop of a thread",
    "elements in registers",
    "elements touched by a thread",
    "elements moved by all threads",
    "blocks",
    "threads of a block",
)
"""Symbols of a statement: F, R, Q, D, G and T."""

_COUNTED = ("add", "sub", "mul", "div")
_COUNTED_DTYPES = ("float16", "float32", "float64")
# The extractor tells these from other loops by their names, blockIdx.x and threadIdx.x.
_SPREAD = ("block", "thread")


def published_symbols(nest: LoopNest) -> tuple[tuple[IntExpr, ...], ...]:
    """The symbols of every statement that stores to a buffer of its own.

    Of several statements that store to one buffer (its initialisation, then its update) the last
    counts, with the elements touched by all of them.
    """
    by_buffer: dict[str, tuple[IntExpr, ...]] = {}
    for launch in launches(nest):
        for statement in launch.statements:
            flop, registers, touched, moved = _of_statement(nest, statement, launch)
            stored = _stored(statement)
            if stored in by_buffer:
                touched = touched + by_buffer[stored][2]
            by_buffer[stored] = (flop, registers, touched, moved, launch.blocks, launch.threads)
    return tuple(by_buffer.values())


def _stored(statement: Statement) -> str:
    return next(access.buffer for access in statement.accesses if access.write)


def _of_statement(
    nest: LoopNest, statement: Statement, launch: Launch
) -> tuple[IntExpr, IntExpr, IntExpr, IntExpr]:
    """F, R, Q and D of a statement."""
    inner = [loop for loop in statement.loops if loop.kind not in _SPREAD]
    buffers = list(dict.fromkeys(access.buffer for access in statement.accesses))
    stored = _stored(statement)
    counted = _counted_operations(nest, statement)
    if counted:
        registers, touched = const(0), const(0)
        for buffer in buffers:
            registers = registers + _volume(statement, inner, (stored, buffer))
            touched = touched + _volume(statement, inner, (buffer,))
        return trip_count(inner) * counted, registers, touched, const(0)
    everywhere = launch.threads * launch.blocks
    if _scope(nest, stored) == "shared":
        read = next((buffer for buffer in reversed(buffers) if buffer != stored), stored)
        moved = _volume(statement, inner, (stored, read)) * everywhere
    else:
        moved = trip_count(inner) * everywhere
    return const(0), const(0), const(0), moved


def _counted_operations(nest: LoopNest, statement: Statement) -> int:
    """Additions, subtractions, multiplications and divisions of floating-point numbers."""
    stored = _stored(statement)
    dtypes = {buffer.name: buffer.dtype for buffer in nest.buffers}
    dtype = dtypes[stored] if stored in dtypes else nest.workload.tensors[stored].dtype
    if dtype not in _COUNTED_DTYPES:
        return 0
    return sum(statement.operations.get(kind, 0) for kind in _COUNTED)


def _scope(nest: LoopNest, buffer: str) -> str:
    return next((known.scope for known in nest.buffers if known.name == buffer), "global")


def _volume(statement: Statement, loops: list[Loop], buffers: tuple[str, ...]) -> IntExpr:
    """Product of the loops whose variable is in an index of each of ``buffers``."""
    result = const(1)
    for loop in loops:
        if loop.name in statement.cooperating:
            continue
        counts: IntExpr = const(1)
        for buffer in buffers:
            counts = counts * _in_index(statement, loop, buffer)
        result = result * (loop.extent if counts.value == 1 else select(counts, loop.extent, 1))
    return result


def _in_index(statement: Statement, loop: Loop, buffer: str) -> IntExpr:
    """1 if the variable of a loop is in an index of the buffer, else 0.

    The variable of a fused loop is in every index that one of its parts moves, unless that part
    has a single iteration: then the quotient or remainder that it is vanishes.
    """
    axes = {
        mover
        for access in statement.accesses
        if access.buffer == buffer
        for form in access.forms
        for axis in form.axes
        for mover in statement.movers(axis)
    }
    moved = [extent for axis, extent in loop.parts if axis in axes]
    if len(moved) == len(loop.parts):
        return const(1)
    extent = const(1)
    for part in moved:
        extent = extent * part
    return less(1, extent)
