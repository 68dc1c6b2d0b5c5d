"""Loops of a pointwise stage on its own."""

from __future__ import annotations

from autotune_mlir.schedule.levels import Loops, parallel_sizes, sizes_of, tiled_loops
from autotune_mlir.schedule.plan import Plan
from autotune_mlir.schedule.script import Script

__all__ = ["tile_pointwise"]


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
