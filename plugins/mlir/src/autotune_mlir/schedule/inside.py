"""Stages that are computed in the loops of others, and all that moves into loops with them."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune_mlir.schedule.levels import inlined_behind
from autotune_mlir.schedule.padding import is_padding
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import tag
from autotune_mlir.schedule.whole import unpack_tags

__all__ = ["common_loop", "followers_of", "stages_in"]


def stages_in(plan: Plan, name: str) -> list[StagePlan]:
    """Stages of the workload that are computed in the loops of one, in the workload's order.

    Raises:
        InvalidSchedule: one of them pads.
    """
    everything = (plan.stages[stage.name] for stage in plan.workload.stages)
    found = [stage for stage in everything if stage.inside is not None and stage.inside[0] == name]
    for other in found:
        if is_padding(other.stage, plan.workload):
            raise InvalidSchedule(
                f"backend 'mlir' cannot keep stage {other.stage.name!r}, which pads, in a loop "
                "over rows: it can be inlined, or a stage of its own"
            )
    return found


def common_loop(inside: list[StagePlan]) -> str:
    """The one loop that stages are computed in.

    Raises:
        InvalidSchedule: there are several.
    """
    loops = {stage.inside[1] for stage in inside if stage.inside is not None}
    if len(loops) > 1:
        raise InvalidSchedule(
            f"backend 'mlir' computes stages inside of one loop, not of {', '.join(sorted(loops))}"
        )
    return loops.pop()


def followers_of(plan: Plan, name: str) -> list[str]:
    """Attributes of all that moves into the loops of a stage, each after what reads it.

    What is computed in the loops of these stages comes along. What pads waits for the loops in
    which it is computed.

    Raises:
        InvalidSchedule: one of them is needed outside of these loops, too.
    """
    names = {stage.stage.name for stage in _all_in(plan, name)}
    for reader in (name, *names):
        names.update(inlined_behind(plan, reader))
    found = []
    for stage in reversed(plan.workload.stages):
        own = plan.stages[stage.name]
        if stage.name in names and not (own.inlined and is_padding(stage, plan.workload)):
            _check_readers(plan, stage.name, {name, *names})
            found.append(tag("stage", stage.name))
            if stage.combiner is not None:
                found.append(tag("init", stage.name))
            found.extend(unpack_tags(own))
    return found


def _all_in(plan: Plan, name: str) -> list[StagePlan]:
    """Stages that are computed in the loops of one, and in theirs."""
    direct = stages_in(plan, name)
    return [*direct, *(other for stage in direct for other in _all_in(plan, stage.stage.name))]


def _check_readers(plan: Plan, name: str, around: set[str]) -> None:
    """Refuse to move a stage into loops that is needed outside of them."""
    outside = [user.name for user in plan.workload.consumers(name) if user.name not in around]
    if outside or name in plan.workload.outputs:
        raise InvalidSchedule(
            f"stage {name!r} cannot be computed inside loops: it is "
            + (f"read by {', '.join(outside)}" if outside else "an output")
        )
