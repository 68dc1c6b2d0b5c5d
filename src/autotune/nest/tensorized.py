"""Checks that operands of tensor instructions have the declared layout in memory."""

from __future__ import annotations

from autotune.ir.expressions.integer import evaluate
from autotune.nest.derive import derive_nest
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.nest.quantities.strides import Walk
from autotune.nest.warp_tensorized import warp_conflict
from autotune.sketches import Candidate, Tensorize, WarpTensorize
from autotune.sketches.intrinsics import Intrinsic, IntrinsicOperand, find_intrinsic

__all__ = ["layout_conflict"]


def layout_conflict(candidate: Candidate) -> str | None:
    """Why loops cannot become calls of the intrinsics that the candidate's steps name.

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
    result = next(access.buffer for access in statement.accesses if access.write)
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
