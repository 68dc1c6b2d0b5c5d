"""Checks that operands of tensor instructions have the declared layout in memory."""

from __future__ import annotations

from autotune.ir.expressions.integer import evaluate
from autotune.nest.derive import derive_nest
from autotune.nest.loop_nest import Access, Buffer, LoopNest, Statement
from autotune.nest.quantities.reuse import Walk
from autotune.sketches import Candidate, Tensorize, WarpTensorize
from autotune.sketches.copy_engine import SWIZZLED_ROW_BYTES
from autotune.sketches.intrinsics import (
    Digit,
    Intrinsic,
    IntrinsicOperand,
    find_intrinsic,
    result_levels,
)

__all__ = ["layout_conflict"]


def layout_conflict(candidate: Candidate) -> str | None:
    """Say why loops cannot become calls of the intrinsics that the candidate's steps name.

    An instruction reads a fixed number of bytes that lie together: where the loops that it
    replaces go through memory in another way, it computes something else, and nothing fails.

    Returns:
        What the first contradiction is; None where all calls do what their loops do.

    Raises:
        UnknownNameError: there is no such intrinsic.
    """
    kinds = (Tensorize, WarpTensorize)
    steps = [step for step in candidate.sketch.core_steps if isinstance(step, kinds)]
    if not steps:
        return None
    nest = derive_nest(candidate.sketch)
    for step in steps:
        intrinsic = find_intrinsic(step.intrinsic)
        statement = next(item for item in nest.statements if item.name == step.stage)
        if isinstance(step, WarpTensorize):
            problem = warp_conflict(nest, statement, step, intrinsic, candidate)
        else:
            problem = _loop_conflict(statement, step, intrinsic, candidate)
            if problem is None:
                problem = _stride_conflict(nest, statement, intrinsic, candidate)
        if problem is not None:
            return f"{step.intrinsic} in stage {step.stage!r}: {problem}"
    return None


def _loop_conflict(
    statement: Statement, step: Tensorize, intrinsic: Intrinsic, candidate: Candidate
) -> str | None:
    names = [f"{step.stage}.{name}" for name in step.loops]
    innermost = statement.loops[-len(names) :]
    if [loop.name for loop in innermost] != names:
        return f"loops {', '.join(step.loops)} are not its innermost ones"
    found = [int(evaluate(loop.extent, candidate.config)) for loop in innermost]
    wanted = [axis.extent for axis in intrinsic.axes]
    if found != wanted:
        return f"loops {', '.join(step.loops)} have extents {found}, a call has {wanted}"
    return None


def _stride_conflict(
    nest: LoopNest, statement: Statement, intrinsic: Intrinsic, candidate: Candidate
) -> str | None:
    """Describe how an operand deviates from the declared layout."""
    for buffer, operand in _operands(nest, statement, intrinsic):
        strides = Walk(nest, statement, buffer, {}).strides[-len(intrinsic.axes) :]
        for axis, stride in zip(intrinsic.axes, strides, strict=True):
            wanted = _wanted(operand, axis.name)
            found = int(evaluate(stride, candidate.config))
            if wanted not in (None, found):
                return (
                    f"{buffer!r} has neighbours along {axis.name!r} {found} elements apart, but "
                    f"a call reads {operand.name!r} {wanted} apart"
                )
    return None


def _wanted(operand: IntrinsicOperand, axis: str) -> int | None:
    """Elements between neighbours along an axis; None where rows may be anywhere."""
    strides = operand.strides(axis)
    if operand.row_stride and operand.layout[0][0] == axis and len(strides) == 1:
        return None
    return strides[-1][1] if strides else 0


def _operands(
    nest: LoopNest, statement: Statement, intrinsic: Intrinsic
) -> list[tuple[str, IntrinsicOperand]]:
    """The buffers that a statement's calls read and update, with what the calls take them for."""
    result = statement.stored.buffer
    reads = [access.buffer for access in statement.accesses if access.buffer != result]
    vector = intrinsic.spatial_axes[-1].name
    moved = {
        buffer: Walk(nest, statement, buffer, {}).strides[-1].value != 0
        for buffer in dict.fromkeys(reads)
    }
    found = [(result, intrinsic.result)]
    for buffer, along_lanes in moved.items():
        left_has_lanes = any(name == vector for name, _ in intrinsic.left.layout)
        left = along_lanes == left_has_lanes
        found.append((buffer, intrinsic.left if left else intrinsic.right))
    return found


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
    """Say why a statement's innermost loops are no step of a warp's tile; None where they are.

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
    result = statement.stored.buffer
    return [access for access in statement.accesses if access.buffer != result]


def _shared_buffer(nest: LoopNest, name: str) -> Buffer | None:
    return next((it for it in nest.buffers if it.name == name and it.scope == "shared"), None)
