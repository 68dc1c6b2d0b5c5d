"""Running sketch rules over a workload."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import UnsupportedWorkload
from autotune.sketches import Sketch
from autotune.sketches.steps import STEP_NAMES
from autotune.spaces.limits import ScheduleLimits
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.rule import SketchRule
from autotune.targets import Target
from autotune.workloads import Stage, Workload


def generate_sketches(
    workload: Workload, target: Target, limits: ScheduleLimits, rules: Sequence[SketchRule]
) -> tuple[Sketch, ...]:
    """Every sketch that the rules make, without those whose steps the backend cannot replay.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or no sketch can be replayed.
    """
    drafts = [SketchDraft(workload, target, limits)]
    for stage in reversed(workload.stages):
        drafts = [
            result
            for draft in drafts
            for result in (
                [draft] if stage.name in draft.settled else _settle(draft, stage, rules)
            )
        ]
    sketches = [draft.finished() for draft in drafts]
    replayable = [
        sketch
        for sketch in sketches
        if {STEP_NAMES[type(step)] for step in sketch.steps} <= limits.steps
    ]
    if not replayable:
        raise UnsupportedWorkload(
            f"workload {workload.name!r}: none of its {len(sketches)} sketches can be replayed "
            f"by {limits.source}, which supports the steps {', '.join(sorted(limits.steps))}"
        )
    return tuple(replayable)


def _settle(draft: SketchDraft, stage: Stage, rules: Sequence[SketchRule]) -> list[SketchDraft]:
    for rule in rules:
        result = rule.apply(draft, stage)
        if result is not None:
            return result
    raise UnsupportedWorkload(
        f"no sketch rule applies to stage {stage.name!r}; rules: "
        + ", ".join(rule.name for rule in rules)
    )
