"""Loops of each kind of stage, and what is copied, kept and computed inside of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Load
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage
from autotune.sketches import is_indexed, partial_name
from autotune_mlir import bindings
from autotune_mlir.schedule.copies import (
    clipped_tags,
    copy_operand,
    copy_tag,
    copy_whole_operands,
    is_padded,
    read_blocks,
    split_copy,
    split_padded,
    take_apart,
    unpack_tags,
)
from autotune_mlir.schedule.levels import (
    Loops,
    assume_inside,
    extracts,
    inlined_behind,
    is_extracted,
    is_padding,
    parallel_sizes,
    sizes_of,
    split_padding,
    tiled_loops,
)
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = [
    "clipped_sizes",
    "common_loop",
    "followers_of",
    "is_row_fusion",
    "is_scan",
    "is_split",
    "is_uneven",
    "reduce_in_lanes",
    "scan_loops",
    "stages_in",
    "tile_pointwise",
    "tile_reduction",
    "tile_rows",
    "tile_scan",
    "tile_stage",
]


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
            split_copy(script, own, packed)


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
            found.extend(copy_tag(own, operand) for operand in padded)
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


def tile_pointwise(script: Script, plan: Plan, name: str) -> None:
    """Make the loops of a pointwise stage; what is inlined into it is computed inside them.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The stage.
    """
    own = plan.stages[name]
    loops = Loops(script, plan, name)
    if sizes := parallel_sizes(own):
        loops.add(sizes, own.parallel[-1], parallel=True)
    for loop in tiled_loops(own):
        loops.add(sizes_of(own, loop), loop)
    loops.finish()


def is_scan(own: StagePlan) -> bool:
    """Return whether results of a stage continue one another."""
    return own.stage.scan_axis is not None


def scan_loops(own: StagePlan) -> list[str]:
    """Loops that run on one core, outermost first; those that are unrolled are among them."""
    return [
        loop
        for loop in own.order
        if loop not in own.parallel and loop != own.vector and own.extent(loop) > 1
    ]


def tile_scan(script: Script, plan: Plan, name: str) -> None:
    """Make the loops of a scan, in their order, until there is one element of its axis.

    What results begin with is computed in the parallel loop: what they continue is then a part of
    that, which loops inside carry in registers.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The stage.
    """
    own = plan.stages[name]
    loops = Loops(script, plan, name)
    if sizes := parallel_sizes(own):
        loops.add(sizes, own.parallel[-1], parallel=True)
        around = script.match(tag("loop", f"{name}.{own.parallel[-1]}"))
        script.fuse_into(script.match(tag("init", name)), around)
    for loop in scan_loops(own):
        loops.add(sizes_of(own, loop), loop)
        if loop in own.unrolled:
            made = script.match(tag("loop", f"{name}.{loop}"))
            script.annotate(made, "unroll", f"{name}.{loop}")
    loops.finish()


def is_split(own: StagePlan) -> bool:
    """Tell if a reduction has partial results, or is a single number that nothing divides."""
    if own.stage.combiner is None:
        return False
    whole = not own.stage.spatial_axes and not own.factors
    return whole or own.partial_lanes is not None


def tile_reduction(script: Script, plan: Plan, name: str) -> None:
    """Make the loops of a reduction with partial results that is in no other stage's loops.

    Results are shared by cores; each is reduced in lanes.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The reduction.
    """
    own = plan.stages[name]
    loops = Loops(script, plan, name)
    if sizes := parallel_sizes(own):
        loops.add(sizes, own.parallel[-1], parallel=True)
    if own.partial_lanes is not None:
        reduce_in_lanes(script, plan, loops, own)
    elif inlined_behind(plan, name):
        # Element by element: what is inlined needs loops to be computed in.
        loops.add([1] * len(own.stage.axes), "elements")
    loops.finish()


def reduce_in_lanes(script: Script, plan: Plan, loops: Loops, own: StagePlan) -> None:
    """A reduction in partial results that are lanes of vectors, a row at a time.

    The loop over the vectors of a row is one, which is unrolled by as much as its inner part has
    iterations.

    Args:
        script: Where to write.
        plan: The schedule.
        loops: Those around it, which get the new ones.
        own: What is split.

    Raises:
        InvalidSchedule: the body has indices, which these bindings would get wrong.
    """
    stage = own.stage
    assert own.partial_lanes is not None
    axis, lanes = own.partial_lanes
    if _has_indices(plan, stage) and not bindings.chosen().keeps_partial_indices:
        raise InvalidSchedule(
            f"reduction {stage.name!r} computes with an index along {axis!r}, which counts from "
            "the start of a tile where LLVM before 23 reduces in lanes"
        )
    results = [item.name for item in loops.axes if item.kind != "reduce"]
    rows = [int(own.extent_on_core(name) > 1) for name in results]
    others = [item.name != axis for item in loops.axes if item.kind == "reduce"]
    if any(rows):
        loops.add([*rows, *(0 for _ in others)], "rows")
    sizes = [*(0 for _ in rows), *(1 if other else lanes for other in others)]
    init, update, final, _ = script.split_reduction(script.match(tag("stage", stage.name)), sizes)
    _annotate(script, stage.name, init, update, final)
    # Of several loops, the transformation returns the outermost.
    (inner,) = script.apply("transform.get_parent_op {}", [update])
    loops.enter(inner, f"{axis}.0")
    for unrolled in plan.stages[partial_name(stage.name)].unrolled:
        # Of a loop with a last round of fewer lanes, the rounds before it are unrolled.
        kind = "peel" if is_uneven(own) else "unroll"
        script.annotate(inner, kind, f"{partial_name(stage.name)}.{unrolled}")


def _has_indices(plan: Plan, stage: Stage) -> bool:
    """Tell if the operation of a reduction has indices in its body: its own, or to read at."""
    reduced = {axis.name for axis in stage.reduce_axes}
    moving = {
        access.tensor
        for access in stage.accesses
        if any(reduced & set(form.axes) for form in stage.forms(access))
    }
    return is_indexed(stage) or any(extracts(stage, it, plan.workload) for it in moving)


def is_uneven(own: StagePlan) -> bool:
    """Return whether the last round of a reduction in lanes has fewer elements than lanes."""
    if own.partial_lanes is None:
        return False
    axis, lanes = own.partial_lanes
    return own.stage.axis(axis).extent % lanes != 0


def _annotate(script: Script, name: str, init: str, update: str, final: str) -> None:
    """Name what a reduction has become: what fills partial results, computes and combines them."""
    script.annotate(init, "init", partial_name(name))
    script.annotate(update, "stage", partial_name(name))
    script.annotate(final, "stage", name)


def stages_in(plan: Plan, name: str) -> list[StagePlan]:
    """Stages of the workload that are computed in the loops of one, in the workload's order.

    Raises:
        InvalidSchedule: one of them pads.
    """
    everything = (plan.stages[stage.name] for stage in plan.workload.stages)
    found = [stage for stage in everything if stage.inside is not None and stage.inside[0] == name]
    for other in found:
        if is_padding(other.stage, plan.workload):
            raise InvalidSchedule(
                f"backend 'mlir' cannot keep stage {other.stage.name!r}, which pads, in a loop "
                "over rows: it can be inlined, or a stage of its own"
            )
    return found


def common_loop(inside: list[StagePlan]) -> str:
    """The one loop that stages are computed in.

    Raises:
        InvalidSchedule: there are several.
    """
    loops = {stage.inside[1] for stage in inside if stage.inside is not None}
    if len(loops) > 1:
        raise InvalidSchedule(
            f"backend 'mlir' computes stages inside of one loop, not of {', '.join(sorted(loops))}"
        )
    return loops.pop()


def followers_of(plan: Plan, name: str) -> list[str]:
    """Attributes of all that moves into the loops of a stage, each after what reads it.

    What is computed in the loops of these stages comes along. What pads waits for the loops in
    which it is computed.

    Raises:
        InvalidSchedule: one of them is needed outside of these loops, too.
    """
    names = {stage.stage.name for stage in _all_in(plan, name)}
    for reader in (name, *names):
        names.update(inlined_behind(plan, reader))
    found = []
    for stage in reversed(plan.workload.stages):
        own = plan.stages[stage.name]
        if stage.name in names and not (own.inlined and is_padding(stage, plan.workload)):
            _check_readers(plan, stage.name, {name, *names})
            found.append(tag("stage", stage.name))
            if stage.combiner is not None:
                found.append(tag("init", stage.name))
            found.extend(unpack_tags(own))
    return found


def _all_in(plan: Plan, name: str) -> list[StagePlan]:
    """Stages that are computed in the loops of one, and in theirs."""
    direct = stages_in(plan, name)
    return [*direct, *(other for stage in direct for other in _all_in(plan, stage.stage.name))]


def _check_readers(plan: Plan, name: str, around: set[str]) -> None:
    """Refuse to move a stage into loops that is needed outside of them."""
    outside = [user.name for user in plan.workload.consumers(name) if user.name not in around]
    if outside or name in plan.workload.outputs:
        raise InvalidSchedule(
            f"stage {name!r} cannot be computed inside loops: it is "
            + (f"read by {', '.join(outside)}" if outside else "an output")
        )


def axes_in(plan: Plan, own: StagePlan, top: str) -> dict[str, int]:
    """Position of each spatial axis of a stage among the dimensions of the stage ``top``."""
    stage = own.stage
    if top == stage.name:
        return {axis.name: position for position, axis in enumerate(stage.spatial_axes)}
    for indices in _loads(plan, top, stage.name):
        return dict(zip((axis.name for axis in stage.spatial_axes), indices, strict=True))
    raise InvalidSchedule(f"stage {top!r} does not read {stage.name!r} point by point")


def stages_inside(plan: Plan, name: str, top: str) -> list[str]:
    """Stages computed inside the loops of ``top``, each after what reads it.

    An inlined one of which single elements are read is computed before.
    """
    between: list[str] = []
    waiting = [top]
    while waiting:
        reader = waiting.pop(0)
        for node in walk(plan.stages[reader].stage.body):
            if isinstance(node, Load) and node.tensor in plan.stages:
                read = plan.stages[node.tensor]
                is_inlined = read.inlined and not is_extracted(plan, node.tensor)
                if node.tensor not in between and (node.tensor == name or is_inlined):
                    between.append(node.tensor)
                    waiting.append(node.tensor)
    return between


def clipped_sizes(plan: Plan) -> dict[str, list[int]]:
    """The largest tiles of stages that follow padded results, per axis, by stage.

    What is beyond the end of the result is left out of such a tile, so that only the running
    program knows its extents: lanes beyond them are masked.
    """
    found: dict[str, list[int]] = {}
    for own in plan.stages.values():
        if not own.is_clipped or own.consumer is None or own.accumulated_at is None:
            continue
        waiting = {own.consumer: _tile_of(plan, own, own.consumer, own.accumulated_at)}
        while waiting:
            reader, tile = waiting.popitem()
            found[reader] = tile
            stage = plan.stages[reader].stage
            names = [axis.name for axis in stage.spatial_axes]
            for load in stage.loads:
                read = plan.stages.get(load.tensor)
                positions = _plain(stage, load, names)
                if read is not None and read.inlined and positions is not None:
                    waiting[load.tensor] = [tile[position] for position in positions]
    return found


def _tile_of(plan: Plan, own: StagePlan, top: str, loop: str) -> list[int]:
    """Extents of the last stage's axes inside the loop in which a result is kept."""
    tile = [axis.extent for axis in plan.stages[top].stage.spatial_axes]
    for name, position in axes_in(plan, own, top).items():
        tile[position] = own.extent_inside(loop, name)
    return tile


def _loads(plan: Plan, reader: str, read: str) -> list[list[int]]:
    """Positions of the axes of ``reader`` by which it reads ``read``, through inlined stages."""
    stage = plan.stages[reader].stage
    names = [axis.name for axis in stage.spatial_axes]
    found = []
    for node in walk(stage.body):
        if not isinstance(node, Load):
            continue
        positions = _plain(stage, node, names)
        if positions is None:
            continue
        if node.tensor == read:
            found.append(positions)
        elif node.tensor in plan.stages and plan.stages[node.tensor].inlined:
            for inner in _loads(plan, node.tensor, read):
                found.append([positions[position] for position in inner])
    return found


def _plain(stage: Stage, load: Load, names: list[str]) -> list[int] | None:
    """Which axis each index of a load is; None where one is more than an axis."""
    positions = []
    for index in load.indices:
        if index.op != "var" or index.args[0] not in names:
            return None
        positions.append(names.index(str(index.args[0])))
    return positions


def is_row_fusion(plan: Plan, own: StagePlan) -> bool:
    """Return whether a pointwise stage has others computed in its loops."""
    return own.stage.combiner is None and bool(stages_in(plan, own.stage.name))


def tile_rows(script: Script, plan: Plan, name: str) -> None:
    """Make the loops of a pointwise stage, and those of what is computed inside them.

    Loops over rows carry all stages along; what a stage does inside them is up to its own steps.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The last stage.

    Raises:
        InvalidSchedule: stages are inside of different loops, needed outside of them, or pad.
    """
    own = plan.stages[name]
    inside = stages_in(plan, name)
    at = own.order.index(common_loop(inside)) + 1
    followers = followers_of(plan, name)
    loops = Loops(script, plan, name)
    if sizes := parallel_sizes(own):
        loops.share(sizes, own.parallel[-1], followers, parallel=True)
    tiled = tiled_loops(own)
    for loop in (it for it in tiled if it in own.order[:at]):
        loops.share(sizes_of(own, loop), loop, followers)
    for loop in _alone(plan, own, [it for it in tiled if it not in own.order[:at]]):
        loops.add(sizes_of(own, loop), loop)
    loops.finish()
    # The last one first: a loop cannot take in what is still read behind it.
    for other in reversed(inside):
        tile_inside(script, plan, other)


def tile_inside(script: Script, plan: Plan, other: StagePlan) -> None:
    """Make the loops of a stage that is in another's, over the rows that there are here.

    Args:
        script: Where to write.
        plan: The schedule.
        other: The stage.
    """
    loops = Loops(script, plan, other.stage.name)
    if other.partial_lanes is not None:
        reduce_in_lanes(script, plan, loops, other)
    elif other.stage.combiner is None:
        tiled = [
            loop
            for loop in tiled_loops(other)
            if other.whole_extent(other.axis_of(loop)) > other.tile_inside(loop)
        ]
        for loop in _alone(plan, other, tiled):
            loops.add(sizes_of(other, loop), loop)
    elif inlined_behind(plan, other.stage.name):
        # Element by element: what is inlined needs loops to be computed in, and so does an end.
        loops.add([1] * len(loops.axes), f"{loops.axes[-1].name}.0")
    loops.finish()


def _alone(plan: Plan, own: StagePlan, tiled: list[str]) -> list[str]:
    """Loops of a pointwise stage alone: at least one, what is inlined needs to be computed in."""
    if tiled or not inlined_behind(plan, own.stage.name):
        return tiled
    return [f"{own.stage.spatial_axes[-1].name}.0"]
