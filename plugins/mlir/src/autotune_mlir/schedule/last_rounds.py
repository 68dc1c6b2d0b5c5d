"""Loops over vectors of which the last iteration has fewer elements than lanes."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune.sketches import partial_name
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.reductions import is_uneven
from autotune_mlir.schedule.script import Script, tag

__all__ = ["separate_last_rounds"]


def separate_last_rounds(script: Script, plan: Plan) -> None:
    """Take the incomplete round out of its loop, so that both parts have constant extents.

    They become vectors as they are, without masks: whole ones in the loop, and shorter ones after
    it.

    Raises:
        InvalidSchedule: such a loop runs on all cores.
    """
    for own in plan.stages.values():
        if is_uneven(own):
            partial = plan.stages[partial_name(own.stage.name)]
            for loop in partial.unrolled:
                name = f"{partial.stage.name}.{loop}"
                script.annotate(script.peel(script.match(tag("peel", name))), "unroll", name)
        if own.vector is not None and own.axis_of(own.vector) in own.covered:
            around = _loop_around(own, own.vector)
            script.peel(script.match(tag("loop", f"{own.stage.name}.{around}")))


def _loop_around(own: StagePlan, vector: str) -> str:
    """The loop over the vectors of an axis."""
    axis, _, level = vector.rpartition(".")
    around = f"{axis}.{int(level) - 1}"
    if around in own.parallel:
        raise InvalidSchedule(
            f"backend 'mlir' cannot run loop {around!r} of stage {own.stage.name!r} in parallel: "
            "its last vector is incomplete"
        )
    return around
