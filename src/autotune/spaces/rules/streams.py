"""Tell whether a result is written past the caches: a choice for those that no cache holds."""

from __future__ import annotations

from autotune.ir.expressions import var
from autotune.ir.workloads import Stage
from autotune.sketches import Ordinal, Param, Step, Stream
from autotune.spaces.rules.draft import SketchDraft

__all__ = ["stream_choice"]


def stream_choice(draft: SketchDraft, stage: Stage) -> tuple[list[Param], list[Step]]:
    """A parameter and its step, or nothing where the choice makes no difference.

    It does for outputs that are at least as large as the last-level cache, and of which each row
    consists of whole lines.

    Args:
        draft: The sketch so far.
        stage: What writes the result.
    """
    output, caches = stage.output, draft.target.caches
    is_last = stage.name in draft.workload.outputs and not draft.workload.consumers(stage.name)
    if not (is_last and caches and output.shape and draft.can("stream")):
        return [], []
    if output.elements * output.element.bytes < caches[-1].size_bytes:
        return [], []
    if output.shape[-1] * output.element.bytes % caches[-1].line_bytes:
        return [], []
    name = f"{stage.name}.stream"
    return [Ordinal(name, (0, 1))], [Stream(stage.name, var(name))]
