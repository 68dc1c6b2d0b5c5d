"""Loops of a stage of which each result continues the one before it."""

from __future__ import annotations

from autotune_mlir.schedule.levels import Loops, parallel_sizes, sizes_of
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["is_scan", "scan_loops", "tile_scan"]


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
