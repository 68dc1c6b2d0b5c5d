"""Reductions in partial results that are lanes of vectors in registers."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Stage
from autotune.sketches import is_indexed, partial_name
from autotune_mlir import bindings
from autotune_mlir.schedule.lanes import extracts
from autotune_mlir.schedule.levels import Loops, inlined_behind, parallel_sizes
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["is_split", "is_uneven", "reduce_in_lanes", "tile_reduction"]


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
