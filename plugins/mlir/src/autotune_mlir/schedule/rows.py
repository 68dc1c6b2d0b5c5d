"""Several stages inside the loops over rows of the last of them."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.backends import InvalidSchedule
from autotune_mlir.schedule.levels import (
    Loops,
    inlined_behind,
    parallel_sizes,
    sizes_of,
    tiled_loops,
)
from autotune_mlir.schedule.padding import is_padding
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.reductions import reduce_in_lanes
from autotune_mlir.schedule.script import Script, tag

__all__ = ["is_row_fusion", "tile_rows"]


def is_row_fusion(plan: Plan, name: str) -> bool:
    """Whether other stages are computed inside the loops of this one."""
    return bool(_inside(plan, name))


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
    inside = _inside(plan, name)
    _check_inside(plan, inside)
    at = own.order.index(_common_loop(inside)) + 1
    followers = _followers(plan, name, inside)
    loops = Loops(script, plan, name)
    if sizes := parallel_sizes(own):
        loops.share(sizes, own.parallel[-1], followers, parallel=True)
    for loop in tiled_loops(own):
        if loop in own.order[:at]:
            loops.share(sizes_of(own, loop), loop, followers)
        else:
            loops.add(sizes_of(own, loop), loop)
    loops.finish()
    # The last one first: a loop cannot take in what is still read behind it.
    for other in reversed(inside):
        _tile_inside(script, plan, other, _extents(own, other, own.order[:at]))


def _inside(plan: Plan, name: str) -> list[StagePlan]:
    """Stages of the workload that are computed inside the loops of one."""
    found = (plan.stages[stage.name] for stage in plan.workload.stages)
    return [stage for stage in found if stage.inside is not None and stage.inside[0] == name]


def _check_inside(plan: Plan, inside: list[StagePlan]) -> None:
    """Refuse what cannot be kept inside of loops over rows."""
    for other in inside:
        if is_padding(other.stage, plan.workload):
            raise InvalidSchedule(
                f"backend 'mlir' cannot keep stage {other.stage.name!r}, which pads, in a loop "
                "over rows: it can be inlined, or a stage of its own"
            )


def _common_loop(inside: list[StagePlan]) -> str:
    loops = {stage.inside[1] for stage in inside if stage.inside is not None}
    if len(loops) > 1:
        raise InvalidSchedule(
            f"backend 'mlir' computes stages inside of one loop, not of {', '.join(sorted(loops))}"
        )
    return loops.pop()


def _followers(plan: Plan, name: str, inside: list[StagePlan]) -> list[str]:
    """Attributes of all that moves into the loops over rows, each after what reads it.

    What pads waits for the loops in which it is computed.
    """
    names = {stage.stage.name for stage in inside}
    for reader in (name, *names):
        names.update(inlined_behind(plan, reader))
    found = []
    for stage in reversed(plan.workload.stages):
        if stage.name in names and not (
            plan.stages[stage.name].inlined and is_padding(stage, plan.workload)
        ):
            _check_readers(plan, stage.name, {name, *names})
            found.append(tag("stage", stage.name))
            if stage.combiner is not None:
                found.append(tag("init", stage.name))
    return found


def _check_readers(plan: Plan, name: str, around: set[str]) -> None:
    """Refuse to move a stage into loops that is needed outside of them."""
    outside = [user.name for user in plan.workload.consumers(name) if user.name not in around]
    if outside or name in plan.workload.outputs:
        raise InvalidSchedule(
            f"stage {name!r} cannot be computed inside loops: it is "
            + (f"read by {', '.join(outside)}" if outside else "an output")
        )


def _extents(own: StagePlan, other: StagePlan, shared: tuple[str, ...]) -> dict[str, int]:
    """Extents of the spatial axes of a stage inside the loops over rows.

    Args:
        own: The stage with the loops over rows; both have the same axes in front.
        other: The stage inside.
        shared: The loops around both.
    """
    innermost = {own.axis_of(loop): loop for loop in shared}
    rows = [axis.name for axis in own.stage.spatial_axes if axis.name in innermost]
    extents = {axis.name: axis.extent for axis in other.stage.spatial_axes}
    for axis, row in zip(other.stage.spatial_axes, rows, strict=False):
        extents[axis.name] = own.tile_inside(innermost[row])
    return extents


def _tile_inside(script: Script, plan: Plan, other: StagePlan, extents: Mapping[str, int]) -> None:
    """The loops of a stage over the rows that there are at this place."""
    loops = Loops(script, plan, other.stage.name)
    if other.partial_lanes is not None:
        reduce_in_lanes(script, plan, loops, other, extents)
    elif other.stage.combiner is None:
        for loop in tiled_loops(other):
            if extents[other.axis_of(loop)] > other.tile_inside(loop):
                loops.add(sizes_of(other, loop), loop)
    elif inlined_behind(plan, other.stage.name):
        # Element by element: what is inlined needs loops to be computed in.
        loops.add([1] * len(other.stage.axes), "elements")
    loops.finish()
