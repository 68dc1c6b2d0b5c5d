"""The least time of sums that are added up in the order in which they stand."""

from __future__ import annotations

import math

from autotune.ir.workloads import Workload

__all__ = ["LEAST_IN_SUM", "SECONDS_PER_ADDITION", "serial_seconds"]

SECONDS_PER_ADDITION = 0.3e-9
"""An addition of floats that waits for the last one takes two cycles or more on every x86-64
processor, and none has more than six and a half billion cycles a second."""

LEAST_IN_SUM = 256
"""Of fewer, a compiler may unroll all loops of a sum; it can then vectorise those around it."""


def serial_seconds(workload: Workload) -> float:
    """Seconds that a call of the program made from a workload takes at least; 0.0 if not known.

    The loops of a sum are the innermost ones there, and compilers have no leave to reorder it.
    """
    sums = [
        stage
        for stage in workload.stages
        if stage.combiner == "add"
        and stage.output.element.is_float
        and math.prod(axis.extent for axis in stage.reduce_axes) >= LEAST_IN_SUM
    ]
    return SECONDS_PER_ADDITION * sum(stage.points for stage in sums)
