"""Checks that loops of a warp's threads are what a matrix instruction computes."""

from __future__ import annotations

from autotune.ir.expressions.integer import evaluate
from autotune.nest.loop_nest import Access, Buffer, LoopNest, Statement
from autotune.sketches import Candidate, WarpTensorize
from autotune.sketches.copy_engine import SWIZZLED_ROW_BYTES
from autotune.sketches.intrinsics import Digit, Intrinsic, result_levels

__all__ = ["warp_conflict"]

# `ldmatrix` reads rows of so many bytes, at multiples of as many; so do core matrices lie.
_ROW_BYTES = 16
# Of two-byte elements, rows of core matrices may lie along results.
_TRANSPOSED_BYTES = 2


def warp_conflict(
    nest: LoopNest,
    statement: Statement,
    step: WarpTensorize,
    intrinsic: Intrinsic,
    candidate: Candidate,
) -> str | None:
    """Why a statement's innermost loops are no step of a warp's tile; None where they are.

    The step's loops are fragments of the rows and of the columns, what a lane has of one fragment
    along either, and the terms that one instruction adds. Lanes are the last threads of the block.

    Raises:
        InvalidValueError: the instruction declares no fragment of its result.
    """
    names = [f"{step.stage}.{name}" for name in step.loops]
    innermost = statement.loops[-len(names) :]
    if len(names) != 5 or [loop.name for loop in innermost] != names:
        return f"loops {', '.join(step.loops)} are not its innermost ones"
    levels = [
        digit for axis in intrinsic.spatial_axes for digit in result_levels(intrinsic, axis.name)
    ]
    lanes = [digit for digit in levels if _is_of_lanes(intrinsic, digit)]
    kept = [digit.extent for digit in levels if digit not in lanes]
    wanted = [*kept, intrinsic.reduce_axes[0].extent]
    extents = [int(evaluate(loop.extent, candidate.config)) for loop in innermost]
    found = extents[2:]
    if intrinsic.is_of_warpgroup and found[-1] % wanted[-1] == 0:
        found[-1] = wanted[-1]
    if found != wanted:
        return f"loops {', '.join(step.loops[2:])} have extents {found}, a call has {wanted}"
    problem = _thread_conflict(statement, lanes, candidate)
    if problem is None and intrinsic.is_of_warpgroup:
        if not intrinsic.takes_columns(extents[1]):
            columns = extents[1] * intrinsic.spatial_axes[1].extent
            return f"a tile has {columns} columns, and no instruction has"
        return _core_matrix_conflict(nest, statement, candidate)
    return problem or _row_conflict(nest, statement, candidate)


def _is_of_lanes(intrinsic: Intrinsic, digit: Digit) -> bool:
    fragment = intrinsic.result.fragment
    return fragment is not None and digit in fragment.lanes


def _thread_conflict(statement: Statement, lanes: list[Digit], candidate: Candidate) -> str | None:
    """Return whether the fastest threads are the lanes of the fragment of the result."""
    threads = [loop for loop in statement.loops if loop.kind == "thread"]
    parts = threads[-1].parts[-len(lanes) :] if threads else ()
    found = [int(evaluate(extent, candidate.config)) for _, extent in parts]
    wanted = [digit.extent for digit in lanes]
    return None if found == wanted else f"its last threads are {found}, lanes are {wanted}"


def _row_conflict(nest: LoopNest, statement: Statement, candidate: Candidate) -> str | None:
    """Tell if the factors are copies in shared memory whose rows an instruction can load."""
    for access in _factors(statement):
        known = _shared_buffer(nest, access.buffer)
        if known is None:
            return f"{access.buffer!r} is not in shared memory"
        elements = int(evaluate(known.shape[-1], candidate.config))
        row = elements * nest.element_bytes(access.buffer)
        if known.block_dim is not None:
            return f"{access.buffer!r} lies in core matrices"
        if row % _ROW_BYTES:
            return f"rows of {access.buffer!r} have {row} bytes, no multiple of {_ROW_BYTES}"
    return None


def _core_matrix_conflict(
    nest: LoopNest, statement: Statement, candidate: Candidate
) -> str | None:
    """Return whether the factors are copies in shared memory that consist of core matrices."""
    reduced = {axis.name for axis in nest.workload.stage(statement.stage).reduce_axes}
    for access in _factors(statement):
        known = _shared_buffer(nest, access.buffer)
        if known is None:
            return f"{access.buffer!r} is not in shared memory"
        size = nest.element_bytes(access.buffer)
        width = int(evaluate(known.shape[-1], candidate.config))
        allowed = SWIZZLED_ROW_BYTES if known.bulk else (_ROW_BYTES,)
        if known.block_dim is None or width * size not in allowed:
            rows = ", ".join(map(str, allowed))
            return f"{access.buffer!r} does not lie in rows of {rows} bytes"
        along = access.forms[known.block_dim].axes
        if not along & reduced and size != _TRANSPOSED_BYTES:
            return f"rows of {access.buffer!r}, of {size}-byte elements, lie along results"
    return None


def _factors(statement: Statement) -> list[Access]:
    result = next(access.buffer for access in statement.accesses if access.write)
    return [access for access in statement.accesses if access.buffer != result]


def _shared_buffer(nest: LoopNest, name: str) -> Buffer | None:
    return next((it for it in nest.buffers if it.name == name and it.scope == "shared"), None)
