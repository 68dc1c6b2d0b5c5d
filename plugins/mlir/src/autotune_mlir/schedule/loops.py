"""Loops of each kind of stage, and what is copied, kept and computed inside of them."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Load
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage
from autotune.sketches import is_indexed, partial_name
from autotune_mlir import bindings
from autotune_mlir.schedule.copies import (
    copy_operand,
    copy_whole_operands,
    pad_stage,
    read_blocks,
    split_copy,
    split_padded,
    split_padding,
    take_apart,
)
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, Tag

__all__ = ["clipped_sizes", "copy_name", "make_loops"]

_SLICES = "tensor.merge_consecutive_insert_extract_slice"


def make_loops(script: Script, plan: Plan) -> None:
    """Make the loops of all stages, those first that must not be drawn into the loops of others.

    Raises:
        InvalidSchedule: stages are inside of another loop, needed outside of it, or pad.
    """
    consumers = plan.consumers
    roots = [
        own
        for own in plan.own
        if not own.inlined and own.inside is None and own.name not in consumers
    ]
    padding = [own for own in roots if own.padding is not None]
    pointwise = [own for own in roots if own.stage.combiner is None and own.padding is None]
    for own in padding:
        pad_stage(script, plan, own)
    # The last one first: a parallel loop hands out what is computed inside it to later stages, and
    # these would have no operation left to compute for themselves.
    for own in reversed(pointwise):
        if plan.is_row_fusion(own):
            _tile_rows(script, plan, own)
        else:
            _tile_alone(script, plan, own)
    for own in roots:
        if own.is_split:
            _tile_reduction(script, plan, own)
        elif own.is_scan:
            _tile_alone(script, plan, own)
        elif own not in padding and own not in pointwise:
            for stage in (own, *plan.stages_in(own.name)):
                copy_whole_operands(script, stage)
            _tile(script, plan, own)


# A stage whose result is kept in a tile


def _tile(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a stage, and of what is computed inside them.

    Loops over the result are made on the last stage that is computed inside (``top``), and what
    it reads follows into them, down to the loop inside of which the result is kept. Stages that
    are computed in its parallel loop have loops of their own there, with their own steps.
    """
    top = own.consumer or own.name
    axes = _axes_in(plan, own, top)
    inside = _stages_inside(plan, own.name, top)
    outermost, *followers = _members(own, top, inside)

    def sizes(*loops: str) -> list[int]:
        found = [0] * len(axes)
        for loop in loops:
            found[axes[own.axis_of(loop)]] = own.tile_inside(loop)
        return found

    if own.parallel:
        loop = script.tile_parallel(script.match(*outermost), sizes(*own.parallel))
        script.annotate(loop, *_parallel_tag(own))
        for follower in followers:
            script.fuse_into(script.match(*follower), script.match(*_parallel_tag(own)))
    _tile_in_parallel_loop(script, plan, own, followers)
    margins = bool(own.padded) or any(plan.stages[it].padding is not None for it in inside)
    clipped = own.is_clipped and top != own.name
    if margins:
        _settle_margins(script, clipped=clipped)
    for loop in own.parallel[-1:]:
        _pack_at(script, plan, own, loop)
    order = [loop for loop in own.order if loop not in own.parallel]
    outer = _outer_count(own, order)
    for loop in order[:outer]:
        made = script.tile_with_producers(script.match(*outermost), sizes(loop))
        _name_loop(script, own, made[1], loop)
        if margins:
            _settle_margins(script, clipped=clipped)
        _pack_at(script, plan, own, loop)
    if own.unpack_tags or own.padded:
        read_blocks(script)
    for loop in order[outer:]:
        if own.is_reduction(loop):
            made = script.tile(script.match("stage", own.name), own.sizes(loop))
            _name_loop(script, own, made[1], loop)
            if loop in own.unrolled:
                script.annotate(made[1], "unroll", f"{own.name}.{loop}")
        _pack_at(script, plan, own, loop)
    take_apart(script, own)
    for packed in own.packed:
        if packed.operand not in inside and packed.operand not in own.padded_operands:
            split_copy(script, own, packed)


def _settle_margins(script: Script, *, clipped: bool) -> None:
    """Simplify what tiles of padded operands, and of clipped results, leave behind.

    Args:
        script: Where to write.
        clipped: Whether stages follow a padded result. The extents of their tiles are otherwise
            asked of what was computed outside of the loop, which would be computed for that alone.
    """
    script.assume_inside()
    if clipped:
        script.patterns(script.function(), ["memref.resolve_ranked_shaped_type_result_dims"])
        script.drop_unused()


def _outer_count(own: StagePlan, order: list[str]) -> int:
    """Number of loops outside of the place where the result is kept, or of all that reduce."""
    if own.accumulated_at is None:
        kept = {own.vector, *own.unrolled}
        inner = (at for at, it in enumerate(order) if it in kept or own.is_reduction(it))
        return next(inner, len(order))
    return order.index(own.accumulated_at) + 1 if own.accumulated_at in order else 0


def _members(own: StagePlan, top: str, inside: list[str]) -> list[Tag]:
    """Attributes of what moves into the loops over the result, each after what reads it."""
    found: list[Tag] = []
    for name in (top, *inside):
        is_own = name == own.name
        found += [*(own.clipped_tags if is_own else ()), ("stage", name)]
        if is_own:
            # Of what pads an operand with another number, copies that pad it further are readers.
            padded = own.padded_operands
            found += [own.copy_tag(it.operand) for it in own.packed if it.operand in padded]
    if own.stage.reduce_axes:
        found.append(("init", own.name))
    return [*found, *own.unpack_tags]


def _tile_in_parallel_loop(
    script: Script, plan: Plan, own: StagePlan, present: Sequence[Tag]
) -> None:
    """Move stages into the parallel loop of one, and make their loops before its others.

    Otherwise they would follow it into these. What is ``present`` is in the loop.
    """
    inside = plan.stages_in(own.name)
    if not inside:
        return
    if (loop := _common_loop(inside)) not in own.parallel[-1:]:
        raise InvalidSchedule(
            f"backend 'mlir' computes stages in the parallel loop of {own.name!r}, not in {loop!r}"
        )
    around = _parallel_tag(own)
    fused = [("stage", other.name) for other in inside if plan.is_row_fusion(other)]
    for follower in _followers_of(plan, own.name):
        if follower in present:
            continue
        script.fuse_into(script.match(*follower), script.match(*around))
        # What is read twice is there twice.
        script.merge(script.match(*around))
        if follower in fused:
            # A tensor of its own: what is computed in loops over its rows would write there first.
            script.patterns(script.match(*around), ["tensor.fold_tensor_empty"])
    script.drop_unused()
    for other in reversed(inside):
        if other.accumulated_at is not None:
            _tile(script, plan, other)
        elif plan.is_row_fusion(other):
            _tile_rows(script, plan, other)
        else:
            _tile_inside(script, plan, other)


def _name_loop(script: Script, own: StagePlan, made: str, loop: str) -> None:
    """Name a loop that others may depend on, unless it is one iteration and vanishes."""
    if own.extent(loop) > 1:
        script.annotate(made, "loop", f"{own.name}.{loop}")


def _parallel_tag(own: StagePlan) -> Tag:
    """Attribute of the parallel loop."""
    return "loop", f"{own.name}.{own.parallel[-1]}"


def _pack_at(script: Script, plan: Plan, own: StagePlan, loop: str) -> None:
    for packed in own.packed:
        if packed.at != loop:
            continue
        # What has been computed inside a loop instead is still there, and would be given a copy.
        script.drop_unused()
        source = plan.stages.get(packed.operand)
        inlined = source if source is not None and source.inlined else None
        padded = packed.operand in own.padded_operands
        if padded:
            split_padded(script, plan, own, packed)
        if inlined is not None:
            split_padding(script, plan, inlined)
        elif not padded:
            copy_operand(script, own, packed)


# Stages with loops of their own kind


@define
class Loops:
    """The loops of one stage, made from the outermost to the innermost.

    Stages that are inlined into it get copies of their own in its outermost loop, which follow it
    into the others: in vectors they are computed in registers. Loops that several stages share
    are made before.

    Attributes:
        script: Where to write.
        plan: The schedule.
        own: The stage.
    """

    script: Script
    plan: Plan
    own: StagePlan
    _inlined: list[str] = field(init=False)
    _paddings: list[str] = field(init=False)
    _has_copies: bool = field(init=False, default=False)
    _innermost: Tag | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        stages, inlined = self.plan.stages, self.plan.inlined_behind(self.own.name)
        self._paddings = [name for name in inlined if stages[name].padding is not None]
        self._inlined = [name for name in inlined if name not in self._paddings]

    def share(
        self, sizes: Sequence[int], loop: str, followers: Sequence[Tag], *, parallel: bool = False
    ) -> None:
        """Make loops around several stages.

        Args:
            sizes: A tile size for each dimension of the stage's operation; 0 leaves it whole.
            loop: Name of the innermost loop.
            followers: Attributes of what moves into the loops, each after what reads it.
            parallel: Whether it is one loop for all cores, over all dimensions.
        """
        self._make(sizes, loop, parallel=parallel)
        self._read_directly()
        for follower in followers:
            self._fuse(follower)

    def add(self, sizes: Sequence[int], loop: str, *, parallel: bool = False) -> None:
        """Make loops around the stage alone; see :meth:`share`."""
        self._make(sizes, loop, parallel=parallel)
        self._follow()

    def add_elements(self, loop: str) -> None:
        """Make loops around single elements: what is inlined needs loops to be computed in."""
        if self.plan.inlined_behind(self.own.name):
            self.add([1] * len(self.own.axes), loop)

    def enter(self, made: str, loop: str) -> None:
        """Continue inside of an existing loop around the stage alone, of this name."""
        self._name(made, loop)
        self._follow()

    def finish(self) -> None:
        """Pad what is padded in the innermost loop: tiles of padding cannot be tiled again."""
        if self._innermost is None or not self._paddings:
            return
        self._read_directly()
        self._copy(self._paddings, has_copies=False)
        self.script.assume_inside()

    def _make(self, sizes: Sequence[int], loop: str, *, parallel: bool) -> None:
        target = self.script.match("stage", self.own.name)
        if parallel:
            made = self.script.tile_parallel(target, sizes)
        else:
            made = self.script.tile(target, sizes)[-1]
        self._name(made, loop)

    def _name(self, made: str, loop: str) -> None:
        self._innermost = "loop", f"{self.own.name}.{loop}"
        self.script.annotate(made, *self._innermost)

    def _follow(self) -> None:
        if not self._inlined:
            return
        if not self._has_copies:
            self._read_directly()
        self._copy(self._inlined, has_copies=self._has_copies)
        self._has_copies = True

    def _copy(self, names: Sequence[str], *, has_copies: bool) -> None:
        for name in names:
            copy = copy_name(name, self.own.name)
            in_parts = any(it.reads_part(name) for it in self.plan.readers(name))
            if not has_copies and in_parts:
                # By stages that were copied after the loop was made.
                self._read_directly()
            fused = self._fuse(("stage", copy if has_copies else name))
            self.script.annotate(fused, "stage", copy)
        # What was inlined must not be read by what it was inlined for.
        self.script.drop_unused()

    def _read_directly(self) -> None:
        """Have the loop read slices of stages, and not slices of slices."""
        self.script.patterns(self.script.function(), [_SLICES])

    def _fuse(self, follower: Tag) -> str:
        assert self._innermost is not None
        producer = self.script.match(*follower)
        fused = self.script.fuse_into(producer, self.script.match(*self._innermost))
        # What is read twice is there twice.
        self.script.merge(self.script.match(*self._innermost))
        return fused


def copy_name(inlined: str, consumer: str) -> str:
    """The stage, in attributes, of the copy of an inlined stage in a consumer's loops."""
    return f"{inlined}>{consumer}"


def _tile_alone(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a pointwise stage, or of a scan, with what is inlined inside them.

    Those of a scan are made in their order, until there is one element of its axis. What results
    begin with is computed in the parallel loop: what they continue is then a part of that, which
    loops inside carry in registers.
    """
    loops = Loops(script, plan, own)
    if sizes := own.parallel_sizes:
        loops.add(sizes, own.parallel[-1], parallel=True)
        if own.is_scan:
            around = script.match(*_parallel_tag(own))
            script.fuse_into(script.match("init", own.name), around)
    for loop in own.tiled_loops:
        loops.add(own.sizes(loop), loop)
        if own.is_scan and loop in own.unrolled:
            made = script.match("loop", f"{own.name}.{loop}")
            script.annotate(made, "unroll", f"{own.name}.{loop}")
    loops.finish()


def _tile_reduction(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a reduction with partial results that is in no other stage's loops.

    Results are shared by cores; each is reduced in lanes.
    """
    loops = Loops(script, plan, own)
    if sizes := own.parallel_sizes:
        loops.add(sizes, own.parallel[-1], parallel=True)
    if own.partial_lanes is not None:
        _reduce_in_lanes(loops)
    else:
        loops.add_elements("elements")
    loops.finish()


def _reduce_in_lanes(loops: Loops) -> None:
    """Reduce in partial results that are lanes of vectors, a row at a time.

    The loop over the vectors of a row is one, which is unrolled by as much as its inner part has
    iterations.

    Raises:
        InvalidSchedule: the body has indices, which these bindings would get wrong.
    """
    script, plan, own = loops.script, loops.plan, loops.own
    assert own.partial_lanes is not None
    axis, lanes = own.partial_lanes
    if _has_indices(plan, own.stage) and not bindings.chosen().keeps_partial_indices:
        raise InvalidSchedule(
            f"reduction {own.name!r} computes with an index along {axis!r}, which counts from "
            "the start of a tile where LLVM before 23 reduces in lanes"
        )
    results = [item.name for item in own.axes if item.kind != "reduce"]
    rows = [int(own.extent_on_core(name) > 1) for name in results]
    reduced = [item.name for item in own.axes if item.kind == "reduce"]
    if any(rows):
        loops.add([*rows, *(0 for _ in reduced)], "rows")
    sizes = [*(0 for _ in rows), *(lanes if name == axis else 1 for name in reduced)]
    partial = partial_name(own.name)
    init, update, final, _ = script.split_reduction(script.match("stage", own.name), sizes)
    script.annotate(init, "init", partial)
    script.annotate(update, "stage", partial)
    script.annotate(final, "stage", own.name)
    # Of several loops, the transformation returns the outermost.
    (inner,) = script.apply("transform.get_parent_op {}", [update])
    loops.enter(inner, f"{axis}.0")
    for unrolled in plan.stages[partial].unrolled:
        # Of a loop with a last round of fewer lanes, the rounds before it are unrolled.
        script.annotate(inner, "peel" if own.is_uneven else "unroll", f"{partial}.{unrolled}")


def _has_indices(plan: Plan, stage: Stage) -> bool:
    """Tell if the operation of a reduction has indices in its body: its own, or to read at."""
    reduced = {axis.name for axis in stage.reduce_axes}
    moving = {
        access.tensor
        for access in stage.accesses
        if any(reduced & set(form.axes) for form in stage.forms(access))
    }
    return is_indexed(stage) or any(map(plan.stages[stage.name].extracts, moving))


def _tile_rows(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a pointwise stage, and those of what is computed inside them.

    Loops over rows carry all stages along; what a stage does inside them is up to its own steps.
    """
    inside = plan.stages_in(own.name)
    shared = own.order[: own.order.index(_common_loop(inside)) + 1]
    followers = _followers_of(plan, own.name)
    loops = Loops(script, plan, own)
    if sizes := own.parallel_sizes:
        loops.share(sizes, own.parallel[-1], followers, parallel=True)
    tiled = own.tiled_loops
    for loop in (it for it in tiled if it in shared):
        loops.share(own.sizes(loop), loop, followers)
    for loop in _alone(plan, own, [it for it in tiled if it not in shared]):
        loops.add(own.sizes(loop), loop)
    loops.finish()
    # The last one first: a loop cannot take in what is still read behind it.
    for other in reversed(inside):
        _tile_inside(script, plan, other)


def _tile_inside(script: Script, plan: Plan, own: StagePlan) -> None:
    """Make the loops of a stage that is in another's, over the rows that there are here."""
    loops = Loops(script, plan, own)
    if own.partial_lanes is not None:
        _reduce_in_lanes(loops)
    elif own.stage.combiner is None:
        several = [
            it for it in own.tiled_loops if own.whole_extent(own.axis_of(it)) > own.tile_inside(it)
        ]
        for loop in _alone(plan, own, several):
            loops.add(own.sizes(loop), loop)
    else:
        loops.add_elements(f"{own.axes[-1].name}.0")
    loops.finish()


def _alone(plan: Plan, own: StagePlan, tiled: list[str]) -> list[str]:
    """Loops of a pointwise stage alone: at least one, what is inlined needs to be computed in."""
    if tiled or not plan.inlined_behind(own.name):
        return tiled
    return [f"{own.stage.spatial_axes[-1].name}.0"]


# Stages that are computed in the loops of others


def _common_loop(inside: list[StagePlan]) -> str:
    """The one loop that stages are computed in.

    Raises:
        InvalidSchedule: there are several.
    """
    loops = {own.inside[1] for own in inside if own.inside is not None}
    if len(loops) > 1:
        raise InvalidSchedule(
            f"backend 'mlir' computes stages inside of one loop, not of {', '.join(sorted(loops))}"
        )
    return loops.pop()


def _followers_of(plan: Plan, name: str) -> list[Tag]:
    """Attributes of all that moves into the loops of a stage, each after what reads it.

    What is computed in the loops of these stages comes along. What pads waits for the loops in
    which it is computed.

    Raises:
        InvalidSchedule: one of them is needed outside of these loops, too.
    """
    names = {own.name for own in plan.all_in(name)}
    for reader in (name, *names):
        names.update(plan.inlined_behind(reader))
    found: list[Tag] = []
    for own in reversed(plan.own):
        if own.name in names and not (own.inlined and own.padding is not None):
            _check_readers(plan, own.name, {name, *names})
            found.append(("stage", own.name))
            if own.stage.combiner is not None:
                found.append(("init", own.name))
            found += own.unpack_tags
    return found


def _check_readers(plan: Plan, name: str, around: set[str]) -> None:
    """Refuse to move a stage into loops that is needed outside of them."""
    outside = [user.name for user in plan.readers(name) if user.name not in around]
    if outside or name in plan.workload.outputs:
        raise InvalidSchedule(
            f"stage {name!r} cannot be computed inside loops: it is "
            + (f"read by {', '.join(outside)}" if outside else "an output")
        )


def _axes_in(plan: Plan, own: StagePlan, top: str) -> dict[str, int]:
    """Position of each spatial axis of a stage among the dimensions of the stage ``top``."""
    names = [axis.name for axis in own.stage.spatial_axes]
    if top == own.name:
        return {name: position for position, name in enumerate(names)}
    for indices in _loads(plan, top, own.name):
        return dict(zip(names, indices, strict=True))
    raise InvalidSchedule(f"stage {top!r} does not read {own.name!r} point by point")


def _stages_inside(plan: Plan, name: str, top: str) -> list[str]:
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
                is_inlined = read.inlined and not plan.is_extracted(node.tensor)
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
        tile = [axis.extent for axis in plan.stages[own.consumer].stage.spatial_axes]
        for name, position in _axes_in(plan, own, own.consumer).items():
            tile[position] = own.extent_inside(own.accumulated_at, name)
        waiting = {own.consumer: tile}
        while waiting:
            reader, tile = waiting.popitem()
            found[reader] = tile
            stage = plan.stages[reader].stage
            for load in stage.loads:
                read = plan.stages.get(load.tensor)
                positions = _plain(stage, load)
                if read is not None and read.inlined and positions is not None:
                    waiting[load.tensor] = [tile[position] for position in positions]
    return found


def _loads(plan: Plan, reader: str, read: str) -> list[list[int]]:
    """Positions of the axes of ``reader`` by which it reads ``read``, through inlined stages."""
    stage = plan.stages[reader].stage
    found = []
    for node in walk(stage.body):
        positions = _plain(stage, node) if isinstance(node, Load) else None
        if not isinstance(node, Load) or positions is None:
            continue
        if node.tensor == read:
            found.append(positions)
        elif node.tensor in plan.stages and plan.stages[node.tensor].inlined:
            for inner in _loads(plan, node.tensor, read):
                found.append([positions[position] for position in inner])
    return found


def _plain(stage: Stage, load: Load) -> list[int] | None:
    """The axis that each index of a load is; None where one is more than an axis."""
    names = [axis.name for axis in stage.spatial_axes]
    axes = [str(index.args[0]) if index.op == "var" else "" for index in load.indices]
    return [names.index(axis) for axis in axes] if set(axes) <= set(names) else None
