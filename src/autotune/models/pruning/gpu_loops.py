"""The loops of a statement on a GPU: a thread's tile, what is unrolled, what waits for copies."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile

from attrs import evolve

from autotune.ir.expressions import IntExpr, const, less, maximum, select
from autotune.models.pruning.launches import trip_count
from autotune.nest.loop_nest import ELEMENT, Loop, LoopNest, Statement

__all__ = [
    "accumulators_spill",
    "barriers",
    "dtype_of",
    "inner_loops",
    "inside",
    "is_bulk_copy",
    "is_element",
    "own_vthreads",
    "scope_of",
    "stages_of",
    "tile_loops",
    "unroll_limit",
    "unrolled",
]

_COMPILER_UNROLLS = 512
"""Executions of a body up to which nvcc unrolls loops that nobody asked it to (as of CUDA 13).

Seen in disassembled products and convolutions for sm_90: as many multiply-adds as executions up
to 288, mostly up to 512; beyond, loops are unrolled in part, which reuses operands all the same.
"""
# A tile of so many accumulators ends in local memory where a loop around it is left: seen in half
# of the kernels for sm_90 whose whole tile has more executions than were to be unrolled.
_LARGE_TILE, _UNROLLED_BY_ITSELF, _UNROLLED_WHEN_ASKED = 64, 256, 512


def scope_of(nest: LoopNest, buffer: str) -> str:
    """Memory of a buffer: ``global``, ``shared`` or ``local``."""
    return next((known.scope for known in nest.buffers if known.name == buffer), "global")


def dtype_of(nest: LoopNest, buffer: str) -> str:
    """Element type of a buffer or tensor."""
    dtypes = {known.name: known.dtype for known in nest.buffers}
    return dtypes[buffer] if buffer in dtypes else nest.workload.tensors[buffer].dtype


def stages_of(nest: LoopNest, buffer: str) -> IntExpr:
    """Number of iterations that have their part of a buffer in memory at once."""
    return next((known.stages for known in nest.buffers if known.name == buffer), const(1))


def is_bulk_copy(nest: LoopNest, statement: Statement) -> bool:
    """Return whether the device's copy engine makes a copy: threads only ask for it and wait."""
    written = {access.buffer for access in statement.accesses if access.write}
    return any(known.bulk and known.name in written for known in nest.buffers)


def is_element(loop: Loop) -> bool:
    """Return whether it counts through the elements of a copy."""
    return any(axis == ELEMENT for axis, _ in loop.parts)


def inside(statement: Statement, loops: Iterable[Loop]) -> Statement:
    """The statement as if only some of its loops ran."""
    chosen = {loop.name for loop in loops}
    return evolve(statement, loops=tuple(loop for loop in statement.loops if loop.name in chosen))


def own_vthreads(statement: Statement) -> list[Loop]:
    """The loops over virtual threads that repeat the statement."""
    return [
        loop
        for loop in statement.loops
        if loop.kind == "vthread" and loop.name not in statement.cooperating
    ]


def tile_loops(statement: Statement) -> list[Loop]:
    """The loops of a thread's tile: from the first that moves what is stored, in registers."""
    stored = next(access for access in statement.accesses if access.write)
    axes = {
        mover
        for form in stored.forms
        for axis in form.coefficients
        for mover in statement.movers(axis)
    }
    threads = [index for index, loop in enumerate(statement.loops) if loop.kind == "thread"]
    inner = statement.loops[threads[-1] + 1 if threads else 0 :]
    return list(dropwhile(lambda loop: not any(a in axes for a, _ in loop.parts), inner))


def inner_loops(statement: Statement) -> list[Loop]:
    """The loops that one thread runs around the body, innermost first."""
    found = []
    for loop in reversed(statement.loops):
        if loop.kind in ("serial", "vectorized", "unrolled"):
            found.append(loop)
        elif loop.kind == "thread" and not statement.flattened:
            # The loops of a copy go on outside the threads that share it.
            break
    return found


def unroll_limit(statement: Statement) -> IntExpr:
    """Executions of the body up to which loops are unrolled."""
    return maximum(statement.unroll_limit, _COMPILER_UNROLLS)


def unrolled(statement: Statement) -> IntExpr:
    """Executions of the body in straight-line code."""
    limit, count, result = unroll_limit(statement), const(1), const(1)
    for loop in inner_loops(statement):
        count = count * loop.extent
        result = select(less(limit, count), result, count)
    return result


def barriers(statement: Statement) -> IntExpr:
    """Number of times that the threads of a block wait for a copy that they make together."""
    return trip_count(
        loop for loop in statement.loops if loop.kind == "serial" and not is_element(loop)
    )


def accumulators_spill(statement: Statement, held: IntExpr, vthreads: IntExpr) -> IntExpr:
    """1 where accumulators are expected to be an array in local memory, else 0.

    A compiler keeps an array in registers only where every index is constant, that is where all
    loops over it are unrolled.

    Args:
        statement: What accumulates.
        held: Registers of accumulators of a thread.
        vthreads: Virtual threads of a thread, whose bodies stand one after the other.
    """
    body = trip_count(tile_loops(statement)) * vthreads
    limit = select(
        less(statement.unroll_limit, _UNROLLED_WHEN_ASKED),
        _UNROLLED_BY_ITSELF,
        _UNROLLED_WHEN_ASKED,
    )
    return less(_LARGE_TILE - 1, held) * less(limit, body)
