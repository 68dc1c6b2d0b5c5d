"""Loops of a pointwise stage on its own."""

from __future__ import annotations

from autotune_mlir.schedule.levels import Loops, parallel_sizes, sizes_of, tiled_loops
from autotune_mlir.schedule.plan import Plan
from autotune_mlir.schedule.script import Script
from autotune_mlir.schedule.transposing import rows_together, with_rows

__all__ = ["tile_pointwise"]


def tile_pointwise(script: Script, plan: Plan, name: str) -> None:
    """Make the loops of a pointwise stage; what is inlined into it is computed inside them.

    Args:
        script: Where to write.
        plan: The schedule.
        name: The stage.
    """
    own = plan.stages[name]
    loops, together = Loops(script, plan, name), rows_together(plan, own)
    if sizes := parallel_sizes(own):
        loops.add(with_rows(own, sizes, together), own.parallel[-1], parallel=True)
    for loop in tiled_loops(own):
        loops.add(with_rows(own, sizes_of(own, loop), together), loop)
    loops.finish()
