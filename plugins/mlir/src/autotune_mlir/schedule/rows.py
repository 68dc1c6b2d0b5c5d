"""Several stages inside the loops over rows of the last of them."""

from __future__ import annotations

from autotune_mlir.schedule.inside import common_loop, followers_of, stages_in
from autotune_mlir.schedule.levels import (
    Loops,
    inlined_behind,
    parallel_sizes,
    sizes_of,
    tiled_loops,
)
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.reductions import reduce_in_lanes
from autotune_mlir.schedule.script import Script

__all__ = ["is_row_fusion", "tile_inside", "tile_rows"]


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
