"""Stages that read each other row by row."""

from __future__ import annotations

from autotune.ir.workloads import Stage
from autotune.spaces.rules.access import depends_on, is_pointwise, producer_stage
from autotune.spaces.rules.draft import SketchDraft


def rows_behind(draft: SketchDraft, stage: Stage) -> tuple[list[Stage], int] | None:
    """The stages behind a pointwise one over reductions along its rows, and its row axes.

    Reductions that gain by tiling, and what only they need, are not among them: they are computed
    before.

    Returns:
        None unless there is a reduction, and every one of these stages is indexed by the same
        leading axes, of which the number is returned.
    """
    if not is_pointwise(stage):
        return None
    behind = _producers(draft, stage)
    if all(map(is_pointwise, behind)):
        return None
    rows = _shared_rows(draft, [stage, *behind])
    if rows == 0 or len(stage.spatial_axes) <= rows:
        return None
    return behind, rows


def _producers(draft: SketchDraft, stage: Stage) -> list[Stage]:
    """Unsettled stages that only ``stage`` and each other need, in topological order."""
    within = {stage.name}
    found: list[Stage] = []
    for candidate in reversed(draft.workload.stages):
        users = {user.name for user in draft.workload.consumers(candidate.name)}
        if candidate.name in draft.settled or not users or not users <= within:
            continue
        if is_pointwise(candidate) or is_without_reuse(candidate):
            within.add(candidate.name)
            found.insert(0, candidate)
    return found


def _shared_rows(draft: SketchDraft, stages: list[Stage]) -> int:
    """Number of leading spatial axes by which all stages read each other in step."""
    shared = min(len(stage.spatial_axes) for stage in stages)
    names = {stage.name for stage in stages}
    for stage in stages:
        own = [axis.name for axis in stage.spatial_axes]
        if names & {gather.tensor for gather in stage.gathers}:
            return 0
        for load in stage.loads:
            if load.tensor not in names:
                continue
            if any(form.terms for form in stage.forms(load)):
                return 0
            producer = producer_stage(draft.workload, load.tensor)
            if producer is None or load.tensor in draft.workload.outputs:
                return 0
            for position, form in enumerate(stage.forms(load)[:shared]):
                in_step = form.coefficients == {own[position]: 1} and form.constant == 0
                same = producer.spatial_axes[position].extent == stage.extents[own[position]]
                if not in_step or not same:
                    shared = position
                    break
    return shared


def is_without_reuse(stage: Stage) -> bool:
    """Whether every operand moves along every spatial axis: tiling would gain nothing."""
    return all(
        depends_on(stage.forms(read), axis.name)
        for read in stage.accesses
        for axis in stage.spatial_axes
        if axis.extent > 1
    )
