"""Loops, packed operands and kept results of a stage that is tiled on several levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.backends import InvalidSchedule
from autotune_mlir.schedule.following import axes_in, stages_inside
from autotune_mlir.schedule.inside import common_loop, followers_of, stages_in
from autotune_mlir.schedule.pack import copy_operand, split_copy
from autotune_mlir.schedule.padded import (
    clipped_tags,
    is_padded,
    padding_tag,
    split_padded,
)
from autotune_mlir.schedule.padding import assume_inside, is_padding, split_padding
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.rows import is_row_fusion, tile_inside, tile_rows
from autotune_mlir.schedule.script import Script, tag
from autotune_mlir.schedule.whole import copy_whole_operands, read_blocks, unpack_tags
from autotune_mlir.schedule.windows import take_apart

__all__ = ["tile_stage"]


def tile_stage(
    script: Script, plan: Plan, name: str, operands: Mapping[str, Sequence[str]]
) -> None:
    """Make the loops of a stage, and of what is computed inside them.

    Loops over the result are made on the last stage that is computed inside (``top``), and what
    it reads follows into them, down to the loop inside of which the result is kept. Stages that
    are computed in its parallel loop have loops of their own there, with their own steps.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The stage.
        operands: Tensors that the operation of each stage reads, in the order of its operands.

    Raises:
        InvalidSchedule: stages are inside of another loop, needed outside of it, or pad.
    """
    for stage in (plan.stages[name], *stages_in(plan, name)):
        copy_whole_operands(script, plan.workload, stage, operands[stage.stage.name])
    _tile(script, plan, name, operands)


def _tile(script: Script, plan: Plan, name: str, tensors: Mapping[str, Sequence[str]]) -> None:
    """The loops of a stage of which whole operands have been copied."""
    own, operands = plan.stages[name], tensors[name]
    top = own.consumer or name
    axes = axes_in(plan, own, top)
    inside = stages_inside(plan, name, top)
    outermost, *followers = _members(own, top, inside)
    _parallel_loops(script, own, outermost, axes, followers)
    _tile_in_parallel_loop(script, plan, own, followers, tensors)
    margins = bool(own.padded) or any(
        is_padding(plan.stages[name].stage, plan.workload) for name in inside
    )
    clipped = own.is_clipped and top != name
    if margins:
        _settle_margins(script, clipped=clipped)
    for loop in own.parallel[-1:]:
        _pack_at(script, plan, own, loop, operands)
    order = [loop for loop in own.order if loop not in own.parallel]
    for loop in order[: _outer_count(own, order)]:
        _loop_of_result(script, own, outermost, axes, loop)
        if margins:
            _settle_margins(script, clipped=clipped)
        _pack_at(script, plan, own, loop, operands)
    if unpack_tags(own) or own.padded:
        read_blocks(script)
    for loop in order[_outer_count(own, order) :]:
        if own.is_reduction(loop):
            _loop_of_reduction(script, own, loop)
        _pack_at(script, plan, own, loop, operands)
    take_apart(script, own)
    for packed in own.packed:
        if packed.operand not in inside and not is_padded(own, packed.operand):
            split_copy(script, plan.workload, own, packed)


def _settle_margins(script: Script, *, clipped: bool) -> None:
    """Simplify what tiles of padded operands, and of clipped results, leave behind.

    Args:
        script: Where to write.
        clipped: Whether stages follow a padded result. The extents of their tiles are otherwise
            asked of what was computed outside of the loop, which would be computed for that alone.
    """
    assume_inside(script)
    if clipped:
        function = script.match_kind("func.func")
        script.patterns(function, ["memref.resolve_ranked_shaped_type_result_dims"])
        script.drop_unused()


def _outer_count(own: StagePlan, order: list[str]) -> int:
    """Number of loops outside of the place where the result is kept, or of all that reduce."""
    if own.accumulated_at is None:
        kept = {own.vector, *own.unrolled}
        inner = (at for at, it in enumerate(order) if it in kept or own.is_reduction(it))
        return next(inner, len(order))
    if own.accumulated_at not in order:
        return 0
    return order.index(own.accumulated_at) + 1


def _members(own: StagePlan, top: str, inside: list[str]) -> list[str]:
    """Attributes of what moves into the loops over the result, each after what reads it."""
    found: list[str] = []
    for name in (top, *inside):
        if name == own.stage.name:
            found.extend(clipped_tags(own))
        found.append(tag("stage", name))
        if name == own.stage.name:
            # Of what pads an operand with another number, copies that pad it further are readers.
            padded = (it.operand for it in own.packed if is_padded(own, it.operand))
            found.extend(padding_tag(own, operand) for operand in padded)
    if own.stage.reduce_axes:
        found.append(tag("init", own.stage.name))
    return [*found, *unpack_tags(own)]


def _parallel_loops(
    script: Script, own: StagePlan, outermost: str, axes: dict[str, int], followers: list[str]
) -> None:
    if not own.parallel:
        return
    sizes = [0] * len(axes)
    for loop in own.parallel:
        sizes[axes[own.axis_of(loop)]] = own.tile_inside(loop)
    loop, name = script.tile_parallel(script.match(outermost), sizes), _loop_name(own)
    script.annotate(loop, "loop", name)
    for follower in followers:
        script.fuse_into(script.match(follower), script.match(tag("loop", name)))


def _tile_in_parallel_loop(
    script: Script,
    plan: Plan,
    own: StagePlan,
    present: Sequence[str],
    operands: Mapping[str, Sequence[str]],
) -> None:
    """Move stages into the parallel loop of one, and make their loops before its others.

    Otherwise they would follow it into these.

    Args:
        script: Where to write.
        plan: The schedule.
        own: The stage with the loop.
        present: Attributes of what is in the loop.
        operands: As of :func:`tile_stage`.
    """
    name = own.stage.name
    inside = stages_in(plan, name)
    if not inside:
        return
    if (loop := common_loop(inside)) not in own.parallel[-1:]:
        raise InvalidSchedule(
            f"backend 'mlir' computes stages in the parallel loop of {name!r}, not in {loop!r}"
        )
    around = tag("loop", _loop_name(own))
    fused = [tag("stage", other.stage.name) for other in inside if is_row_fusion(plan, other)]
    for follower in followers_of(plan, name):
        if follower in present:
            continue
        script.fuse_into(script.match(follower), script.match(around))
        # What is read twice is there twice.
        script.merge(script.match(around))
        if follower in fused:
            # A tensor of its own: what is computed in loops over its rows would write there first.
            script.patterns(script.match(around), ["tensor.fold_tensor_empty"])
    script.drop_unused()
    for other in reversed(inside):
        if other.accumulated_at is not None:
            _tile(script, plan, other.stage.name, operands)
        elif is_row_fusion(plan, other):
            tile_rows(script, plan, other.stage.name)
        else:
            tile_inside(script, plan, other)


def _loop_of_result(
    script: Script, own: StagePlan, outermost: str, axes: dict[str, int], loop: str
) -> None:
    sizes = [0] * len(axes)
    sizes[axes[own.axis_of(loop)]] = own.tile_inside(loop)
    made = script.tile_with_producers(script.match(outermost), sizes)
    _name_loop(script, own, made[1], loop)


def _loop_of_reduction(script: Script, own: StagePlan, loop: str) -> None:
    names = [axis.name for axis in (*own.stage.spatial_axes, *own.stage.reduce_axes)]
    sizes = [0] * len(names)
    sizes[names.index(own.axis_of(loop))] = own.tile_inside(loop)
    made = script.tile(script.match(tag("stage", own.stage.name)), sizes)
    _name_loop(script, own, made[1], loop)
    if loop in own.unrolled:
        script.annotate(made[1], "unroll", f"{own.stage.name}.{loop}")


def _name_loop(script: Script, own: StagePlan, made: str, loop: str) -> None:
    """Name a loop that others may depend on, unless it is one iteration and vanishes."""
    if own.extent(loop) > 1:
        script.annotate(made, "loop", f"{own.stage.name}.{loop}")


def _loop_name(own: StagePlan) -> str:
    """The name of the parallel loop."""
    return f"{own.stage.name}.{own.parallel[-1]}"


def _pack_at(
    script: Script, plan: Plan, own: StagePlan, loop: str, operands: Sequence[str]
) -> None:
    for packed in own.packed:
        if packed.at != loop:
            continue
        # What has been computed inside a loop instead is still there, and would be given a copy.
        script.add(f"transform.apply_dce to {script.match_kind('func.func')} : !transform.any_op")
        source = plan.stages.get(packed.operand)
        if is_padded(own, packed.operand):
            split_padded(script, plan.workload, own, packed)
            if source is not None and source.inlined:
                split_padding(script, plan, source)
        elif source is not None and source.inlined:
            split_padding(script, plan, source)
        else:
            copy_operand(script, plan.workload, own, packed, operands)
