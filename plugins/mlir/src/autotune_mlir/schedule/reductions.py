"""Reductions in partial results: of lanes in registers, and of chunks on all cores."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.backends import InvalidSchedule
from autotune.sketches import partial_name
from autotune_mlir.schedule.levels import Loops, inlined_behind, parallel_sizes
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["is_split", "is_uneven", "reduce_in_lanes", "tile_reduction"]


def is_split(own: StagePlan) -> bool:
    """Whether a reduction has partial results, or is a single number that nothing divides."""
    if own.stage.combiner is None:
        return False
    whole = not own.stage.spatial_axes and not own.factors
    return whole or own.chunks is not None or own.partial_lanes is not None


def tile_reduction(script: Script, plan: Plan, name: str) -> None:
    """Make the loops of a reduction with partial results that is in no other stage's loops.

    Results are shared by cores, or chunks of the only result are; what there is of either is
    reduced in lanes.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The reduction.

    Raises:
        InvalidSchedule: there are chunks of several results.
    """
    own = plan.stages[name]
    part, loops = own, Loops(script, plan, name)
    if own.chunks is not None:
        part = plan.stages[partial_name(name)]
        loops = Loops(script, plan, name, part=part.stage.name)
        _reduce_chunks(script, loops, own)
    elif sizes := parallel_sizes(own):
        loops.add(sizes, own.parallel[-1], parallel=True)
    if part.partial_lanes is not None:
        shared = own.parallel if own.chunks is None else ()
        reduce_in_lanes(script, plan, loops, part, _extents(own, shared))
    elif inlined_behind(plan, name):
        # Element by element: what is inlined needs loops to be computed in.
        loops.add([1] * len(own.stage.axes), "elements")
    loops.finish()


def _extents(own: StagePlan, shared: tuple[str, ...]) -> dict[str, int]:
    """Results along each axis in one iteration of the loops that cores share."""
    axes = {own.axis_of(loop): own.tile_inside(loop) for loop in shared}
    return {axis.name: axes.get(axis.name, axis.extent) for axis in own.stage.spatial_axes}


def _reduce_chunks(script: Script, loops: Loops, own: StagePlan) -> None:
    """The loop over chunks, which all cores share; their results are combined behind it."""
    assert own.chunks is not None
    axis, chunks = own.chunks
    name = own.stage.name
    if own.stage.output.elements > 1:
        raise InvalidSchedule(
            f"backend 'mlir' cannot reduce chunks of several results of {name!r}"
        )
    threads = [
        *(0 for _ in own.stage.spatial_axes),
        *(chunks if other.name == axis else 0 for other in own.stage.reduce_axes),
    ]
    init, update, final, loop = script.split_for_cores(script.match(tag("stage", name)), threads)
    _annotate(script, name, init, update, final)
    loops.enter(loop, f"{axis}_chunk")


def reduce_in_lanes(
    script: Script, plan: Plan, loops: Loops, own: StagePlan, extents: Mapping[str, int]
) -> None:
    """A reduction in partial results that are lanes of vectors, a row at a time.

    The loop over the vectors of a row is one, which is unrolled by as much as its inner part has
    iterations.

    Args:
        script: Where to write.
        plan: The schedule.
        loops: Those around it, which get the new ones.
        own: What is split: a stage, or what computes its chunks.
        extents: Results along each axis inside these loops.
    """
    stage = own.stage
    assert own.partial_lanes is not None
    axis, lanes = own.partial_lanes
    rows = [int(extents.get(item.name, 1) > 1) for item in loops.axes if item.kind != "reduce"]
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


def is_uneven(own: StagePlan) -> bool:
    """Whether the last round of a reduction in lanes has fewer elements than lanes."""
    if own.partial_lanes is None:
        return False
    axis, lanes = own.partial_lanes
    return own.stage.axis(axis).extent % lanes != 0


def _annotate(script: Script, name: str, init: str, update: str, final: str) -> None:
    """Name what a reduction has become: what fills partial results, computes and combines them."""
    script.annotate(init, "init", partial_name(name))
    script.annotate(update, "stage", partial_name(name))
    script.annotate(final, "stage", name)
