"""Rule: compute cheap pointwise stages inside their consumers."""

from __future__ import annotations

from autotune.ir.workloads import Stage
from autotune.sketches import Inline
from autotune.sketches.steps import inlined_stages
from autotune.spaces.rules.access import is_gathered, is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.recomputing import repeats_too_much
from autotune.spaces.rules.rule import SketchRule


class InlineRule(SketchRule):
    """Inlines a pointwise stage that only pointwise stages read, unless that repeats too much.

    A pointwise stage that a reduction reads (a padded convolution input) is decided together
    with the reduction.
    """

    name = "inline"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        workload = draft.workload
        consumers = workload.consumers(stage.name)
        if not is_pointwise(stage) or stage.name in workload.outputs or not consumers:
            return None
        if not draft.can("inline"):
            return None
        if not all(is_pointwise(consumer) for consumer in consumers):
            return None
        if is_gathered(workload, stage.name):
            return None
        if repeats_too_much(workload, stage, inlined_stages(draft.steps)):
            return None
        return [draft.extended(settled=[stage.name], steps=[Inline(stage.name)])]
