"""Loops over vectors of which the last iteration has fewer elements than lanes."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune.sketches import partial_name
from autotune_mlir.schedule.levels import inlined_behind
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.reductions import is_uneven
from autotune_mlir.schedule.script import Script, tag

__all__ = ["masked_sizes", "separate_last_rounds"]


def separate_last_rounds(script: Script, plan: Plan) -> None:
    """Take the incomplete round out of its loop, so that both parts have constant extents.

    They become vectors as they are, without masks: whole ones in the loop, and shorter ones after
    it.
    """
    for own in plan.stages.values():
        if is_uneven(own):
            partial = plan.stages[partial_name(own.stage.name)]
            for loop in partial.unrolled:
                name = f"{partial.stage.name}.{loop}"
                script.annotate(script.peel(script.match(tag("peel", name))), "unroll", name)
        elif own.vector is not None and _is_separable(own):
            axis = own.axis_of(own.vector)
            script.peel(script.match(tag("loop", f"{own.stage.name}.{axis}.0")))


def masked_sizes(plan: Plan, own: StagePlan) -> list[int] | None:
    """Extents of a vector whose last lanes are masked in some iterations; None where none are.

    Such are those of incomplete rounds that do not leave their loop: where it runs on all cores,
    or is inside of another over the same axis.

    Raises:
        InvalidSchedule: another stage would be computed in these lanes.
    """
    if own.vector is None or own.axis_of(own.vector) not in own.covered or _is_separable(own):
        return None
    if inlined_behind(plan, own.stage.name):
        raise InvalidSchedule(
            f"backend 'mlir' cannot inline stages into {own.stage.name!r}, of which loop "
            f"{own.vector!r} has incomplete vectors in several places"
        )
    axis = own.axis_of(own.vector)
    return [
        own.extent(own.vector) if other.name == axis else 1 for other in own.stage.spatial_axes
    ]


def _is_separable(own: StagePlan) -> bool:
    """Return whether the only loop over the vectors of a covered axis runs on one core."""
    if own.vector is None or own.axis_of(own.vector) not in own.covered:
        return False
    axis = own.axis_of(own.vector)
    return len(own.factors[axis]) == 2 and f"{axis}.0" not in own.parallel
