"""Variants of steps: the use of a step in its sketch, finer than its kind.

A backend that replays a step may still lack one use of it. Variants give these uses names,
``STEP.USE``, so that a backend declares exactly what it lacks
(:class:`~autotune.spaces.ScheduleLimits`) and the search space leaves out exactly that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from autotune.ir.workloads import Stage, Workload, padding_of_stage
from autotune.sketches.directions import running_directions, runs_one_way
from autotune.sketches.gpu_steps import Bind, CooperativeFetch
from autotune.sketches.im2col import im2col
from autotune.sketches.rewrites import chunk_scan, is_indexed, is_uneven, split_reduction
from autotune.sketches.sketch import Sketch
from autotune.sketches.steps import (
    Accumulate,
    ChunkReduction,
    ChunkScan,
    FuseConsumer,
    FuseProducer,
    Im2col,
    Inline,
    Order,
    Pack,
    PadExtent,
    SplitReduction,
    Step,
    step_name,
)

STEP_VARIANTS: Mapping[str, str] = MappingProxyType(
    {
        "chunk_reduction.results": "The stage has more than one result.",
        "inline.into_copy": "The stage is computed in the copy that packs or fetches it.",
        "inline.into_whole_copy": "The stage is computed in the copy of a whole operand.",
        "inline.into_reduction": "The stage is computed inside a reduction that reads it.",
        "split_reduction.indexed": "The stage computes with an index of an axis that it reduces.",
        "split_reduction.uneven": "The lanes do not divide the axis.",
        "pad_extent.window": "The stage reads an operand at a sum of axes, as convolutions do.",
        "pad_extent.lanes": "The axis is the innermost of the result, whose lanes are vectors.",
        "pad_extent.computed": "Another stage computes an operand that depends on the axis.",
        "pad_extent.whole": "A whole operand that depends on the axis is copied before the stage.",
        "pad_extent.transposed": "An operand that depends on it is copied with another dimension "
        "innermost.",
        "pack.whole": "`at` is absent: the whole operand is copied before the stage.",
        "pack.inside": "`at` is given: what one iteration reads is copied.",
        "pack.plain": "The layout of the operand is kept.",
        "pack.blocked": "The layout of the copy is blocked.",
        "pack.transposed": "`block_dim` is not the last dimension of the operand.",
        "pack.whole_transposed": "The whole operand, with another dimension innermost.",
        "pack.window": "The operand is read at a sum of axes, as convolutions do.",
        "pack.reversed": "The operand is read backwards along an axis.",
        "pack.crossed": "An index of the operand grows along one axis and falls along another, "
        "whichever way those run that are reduced over.",
        "pack.divided": "An index of the operand is a quotient or a remainder.",
        "pack.mixed_quotients": "An index has a quotient or a remainder, and is more than that of "
        "one axis, or the axis is the innermost of the result.",
        "accumulate.inside_reduction": "`at` is a reduce loop, or inside one.",
        "fuse_consumer.padded": "The producer's extents are padded.",
        "fuse_producer.reduction": "The stage that moves into the loop is a reduction.",
        "fuse_producer.padding": "The stage that moves into the loop surrounds a tensor with a "
        "constant.",
        "fuse_producer.tiled": "The stage that moves into the loop has tiles of its own.",
        "order.scan": "Each result of the stage continues the one before it along an axis.",
        "bind.across_threads": "Loops of a reduce axis are bound to threads.",
    }
)
"""Every variant and what it means."""


def names_used(sketch: Sketch) -> frozenset[str]:
    """Names of all steps of a sketch, and of their variants."""
    workload, found = sketch.workload, set[str]()
    for step in sketch.core_steps:
        if isinstance(step, (SplitReduction, ChunkReduction)):
            found |= step_names(step, workload)
            workload = split_reduction(workload, step)
        elif isinstance(step, Im2col):
            workload = im2col(workload, step)
        elif isinstance(step, ChunkScan):
            workload = chunk_scan(workload, step)
    for step in sketch.core_steps:
        if not isinstance(step, (SplitReduction, ChunkReduction)):
            found |= step_names(step, workload, sketch.core_steps)
    return frozenset(found)


def step_names(step: Step, workload: Workload, steps: Iterable[Step] = ()) -> frozenset[str]:
    """The name of a step and of the variants that it is.

    Args:
        step: The step.
        workload: What is scheduled, with the stages that split reductions have added; for a split
            reduction what is split.
        steps: All steps of the sketch, as far as they are known.
    """
    name = step_name(step)
    uses = _uses(step, workload, tuple(steps))
    return frozenset({name, *(f"{name}.{use}" for use in uses)})


def _uses(step: Step, workload: Workload, steps: Sequence[Step]) -> set[str]:
    if isinstance(step, Inline):
        return _inlined(step, workload, steps)
    if isinstance(step, PadExtent):
        return _padded(step, workload, steps)
    if isinstance(step, SplitReduction):
        indexed = is_indexed(workload.stage(step.stage))
        uneven = is_uneven(workload, step)
        return {*(["indexed"] if indexed else []), *(["uneven"] if uneven else [])}
    if isinstance(step, ChunkReduction):
        return {"results"} if workload.stage(step.stage).output.elements > 1 else set()
    if isinstance(step, Order):
        return {"scan"} if workload.stage(step.stage).scan_axis is not None else set()
    if isinstance(step, Pack):
        return _packed(step, workload.stage(step.stage), workload)
    if isinstance(step, Accumulate):
        inside = _is_inside_reduction(workload.stage(step.stage), step.at, steps)
        return {"inside_reduction"} if inside else set()
    if isinstance(step, FuseConsumer):
        padded = any(
            isinstance(other, PadExtent) and other.stage == step.producer for other in steps
        )
        return {"padded"} if padded else set()
    if isinstance(step, FuseProducer):
        return _fused(step, workload, steps)
    if isinstance(step, Bind) and step.role in ("thread", "thread_y"):
        return (
            {"across_threads"} if _has_reduction(workload.stage(step.stage), step.loops) else set()
        )
    return set()


def _fused(step: FuseProducer, workload: Workload, steps: Sequence[Step]) -> set[str]:
    stage = workload.stage(step.stage)
    found = {"reduction"} if stage.combiner is not None else set[str]()
    if padding_of_stage(stage, workload) is not None:
        found.add("padding")
    if any(isinstance(other, Accumulate) and other.stage == step.stage for other in steps):
        found.add("tiled")
    return found


def _padded(step: PadExtent, workload: Workload, steps: Sequence[Step]) -> set[str]:
    stage = workload.stage(step.stage)
    found = set()
    if any(_has_window(stage, name) for name in stage.reads):
        found.add("window")
    if stage.spatial_axes and step.axis == stage.spatial_axes[-1].name:
        found.add("lanes")
    computed = {other.name for other in workload.stages}
    if any(
        read.tensor in computed and step.axis in form.axes
        for read in stage.accesses
        for form in stage.forms(read)
    ):
        found.add("computed")
    packs = [
        other
        for other in steps
        if isinstance(other, Pack)
        and other.stage == step.stage
        and _depends(stage, other.operand, step.axis)
    ]
    if any(pack.at is None for pack in packs):
        found.add("whole")
    if any(_is_transposed(pack, workload) for pack in packs):
        found.add("transposed")
    return found


def _depends(stage: Stage, tensor: str, axis: str) -> bool:
    loads = (load for load in stage.loads if load.tensor == tensor)
    return any(axis in form.axes for load in loads for form in stage.forms(load))


def _is_transposed(step: Pack, workload: Workload) -> bool:
    return step.block_dim not in (None, len(workload.tensors[step.operand].shape) - 1)


def _inlined(step: Inline, workload: Workload, steps: Sequence[Step]) -> set[str]:
    copied_by = {
        other.stage: "into_whole_copy" if other.at is None else "into_copy"
        for other in steps
        if isinstance(other, (Pack, CooperativeFetch)) and other.operand == step.stage
    }
    found = set()
    for consumer in workload.consumers(step.stage):
        if consumer.name in copied_by:
            found.update({"into_copy", copied_by[consumer.name]})
        elif consumer.combiner is not None:
            found.add("into_reduction")
    return found


def _packed(step: Pack, stage: Stage, workload: Workload) -> set[str]:
    found = {
        "whole" if step.at is None else "inside",
        "plain" if step.block_dim is None else "blocked",
    }
    if _is_transposed(step, workload):
        found.update({"transposed", *(("whole_transposed",) if step.at is None else ())})
    if _has_window(stage, step.operand):
        found.add("window")
    if _is_reversed(stage, step.operand):
        found.add("reversed")
    if _is_crossed(stage, step.operand):
        found.add("crossed")
    if _is_divided(stage, step.operand):
        found.add("divided")
    if _has_mixed_quotients(stage, step.operand):
        found.add("mixed_quotients")
    return found


def _is_divided(stage: Stage, tensor: str) -> bool:
    return any(
        form.terms for load in stage.loads if load.tensor == tensor for form in stage.forms(load)
    )


def _has_mixed_quotients(stage: Stage, tensor: str) -> bool:
    lanes = stage.spatial_axes[-1].name if stage.spatial_axes else None
    return any(
        (bool(form.terms) and form.quotient is None) or lanes in form.divided_axes
        for load in stage.loads
        if load.tensor == tensor
        for form in stage.forms(load)
    )


def _is_crossed(stage: Stage, tensor: str) -> bool:
    directions = running_directions(stage)
    return any(
        not (form.terms or runs_one_way(form, directions))
        for load in stage.loads
        if load.tensor == tensor
        for form in stage.forms(load)
    )


def _is_reversed(stage: Stage, tensor: str) -> bool:
    return any(
        coefficient < 0
        for load in stage.loads
        if load.tensor == tensor
        for form in stage.forms(load)
        for coefficient in form.coefficients.values()
    )


def _has_window(stage: Stage, tensor: str) -> bool:
    return any(
        len(form.axes) > 1
        for load in stage.loads
        if load.tensor == tensor
        for form in stage.forms(load)
    )


def _is_inside_reduction(stage: Stage, at: str, steps: Sequence[Step]) -> bool:
    order = next(
        (other.loops for other in steps if isinstance(other, Order) and other.stage == stage.name),
        (at,),
    )
    return at in order and _has_reduction(stage, order[: order.index(at) + 1])


def _has_reduction(stage: Stage, loops: Iterable[str]) -> bool:
    reduced = {axis.name for axis in stage.reduce_axes}
    return any(loop.rpartition(".")[0] in reduced for loop in loops)
