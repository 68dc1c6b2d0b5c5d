"""Reductions over padding that move into a loop, and that no step gives vectors.

An average pooling is one in the loops of what divides its sums. Element by element, each would
have a tile of the padding of its own, of extents that are computed, in memory. So a vector along
the innermost dimension is computed at once, of which lanes in a margin are masked, as other
compilers do with the loops that these steps leave to them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.ir.expressions import AffineForm
from autotune.ir.workloads import Workload, padding_of_stage
from autotune_mlir.schedule.levels import copy_name
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["element_sizes", "give_lanes", "vectorize_margins"]

_VECTOR_BYTES = 64


def give_lanes(plans: Mapping[str, StagePlan], workload: Workload) -> None:
    """Give such reductions vectors along their last axis, and what pads for them, too.

    They stay as they are where what is read does not lie along that axis, or is padded along it.

    Args:
        plans: Plans of all stages, by name; changed.
        workload: What is computed.
    """
    for own in plans.values():
        stage = own.stage
        named = own.vector or own.partial_lanes or own.factors or own.accumulated_at
        if own.inside is None or not stage.reduce_axes or named:
            continue
        axis = stage.spatial_axes[-1]
        lanes = math.gcd(axis.extent, _VECTOR_BYTES // stage.output.element.bytes)
        margins = [name for name in stage.reads if _is_margin(plans, workload, name, axis.extent)]
        if margins and lanes > 1 and _lies_along(own, axis.name):
            own.split(axis.name, (axis.extent // lanes, lanes))
            own.vector = f"{axis.name}.1"
            own.margins = tuple(margins)


def _is_margin(plans: Mapping[str, StagePlan], workload: Workload, name: str, extent: int) -> bool:
    """Whether an inlined stage pads, other dimensions than its last one of this extent."""
    if name not in plans or not plans[name].inlined:
        return False
    padding = padding_of_stage(plans[name].stage, workload)
    return padding is not None and padding.sizes[-1] == extent


def _lies_along(own: StagePlan, axis: str) -> bool:
    """Whether everything is read at an axis in its last dimension, and nowhere else."""
    forms = [own.stage.forms(load) for load in own.stage.loads]
    return all(
        read[-1] == AffineForm({axis: 1}, 0) and not any(axis in form.axes for form in read[:-1])
        for read in forms
    )


def element_sizes(own: StagePlan) -> list[int]:
    """What is computed at once of each axis of a reduction that is bare: an element, or lanes."""
    lanes = {} if own.vector is None else {own.axis_of(own.vector): own.extent(own.vector)}
    axes = (*own.stage.spatial_axes, *own.stage.reduce_axes)
    return [lanes.get(axis.name, 1) for axis in axes]


def vectorize_margins(script: Script, plan: Plan, own: StagePlan) -> None:
    """Turn what pads into loads of which the lanes in margins are masked."""
    for name in own.margins:
        assert own.vector is not None
        rank = len(plan.stages[name].stage.spatial_axes)
        sizes = [*[1] * (rank - 1), own.extent(own.vector)]
        margin = script.match(tag("stage", copy_name(name, own.stage.name)))
        script.vectorize(margin, f" vector_sizes {sizes}")
