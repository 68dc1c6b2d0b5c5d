"""Rule: fuse a pointwise stage after a reduction into the reduction's tile."""

from __future__ import annotations

from attrs import frozen

from autotune.ir.workloads import Stage
from autotune.sketches import Inline
from autotune.spaces.rules.access import (
    is_expensive,
    is_pointwise,
    is_scan,
    producer_stage,
    reads_at_own_point,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.inline import repeats_too_much
from autotune.spaces.rules.rule import SketchRule


class EpilogueRule(SketchRule):
    """Marks a pointwise stage that reads one reduction, directly or through pointwise stages.

    The pointwise stages between are inlined, and so are those that read no reduction; the tiling
    rule of the reduction then fuses the marked stage at its tile. A stage that reductions read is
    marked if it is expensive: where they copy what they read it would be computed again and again.
    """

    name = "epilogue"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        found = reduction_before(draft, stage)
        if found is None or found.reduction in draft.epilogues:
            return None
        inlined = draft.extended(
            settled=found.inlined, steps=[Inline(name) for name in found.inlined]
        )
        return [inlined.with_epilogue(found.reduction, stage.name)]


@frozen
class Before:
    """Tensors that an epilogue reads.

    Attributes:
        reduction: The stage that it is fused into.
        inlined: Pointwise stages that are inlined into the epilogue, in the order of inlining.
    """

    reduction: str
    inlined: tuple[str, ...]


def reduction_before(draft: SketchDraft, stage: Stage) -> Before | None:
    """The reduction of which a stage becomes the epilogue; None where it becomes none."""
    consumers = draft.workload.consumers(stage.name)
    if not is_pointwise(stage) or not draft.can("fuse_consumer"):
        return None
    if consumers and not (is_expensive(stage) and not any(map(is_pointwise, consumers))):
        return None
    chain: list[str] = []
    reduction = _reduction_behind(draft, stage, chain)
    if reduction is None or (chain and not draft.can("inline")):
        return None
    if [a.extent for a in reduction.spatial_axes] != [a.extent for a in stage.spatial_axes]:
        return None
    return Before(reduction.name, tuple(chain))


def _reduction_behind(draft: SketchDraft, stage: Stage, chain: list[str]) -> Stage | None:
    """The only reduction behind a stage; adds the pointwise stages that are inlined to ``chain``.

    Of several computed tensors that the stage reads all but one are inlined.
    """
    workload = draft.workload
    computed = [
        producer
        for name in stage.reads
        if (producer := producer_stage(workload, name)) is not None
    ]
    if any(
        it.name in workload.outputs or len(workload.consumers(it.name)) != 1 for it in computed
    ):
        return None
    aside = [it for it in computed if _is_aside(draft, it)]
    behind = [it for it in computed if it not in aside] or aside[-1:]
    chain.extend(it.name for it in aside if it not in behind)
    if len(behind) != 1 or not reads_at_own_point(stage, behind[0].name):
        return None
    (producer,) = behind
    if is_scan(producer):
        return None
    if not is_pointwise(producer):
        return producer
    if is_expensive(producer) or repeats_too_much(workload, producer, chain):
        return None
    chain.append(producer.name)
    return _reduction_behind(draft, producer, chain)


def _is_aside(draft: SketchDraft, stage: Stage) -> bool:
    """Return whether a stage is computed from inputs alone, and cheaply."""
    computed = any(producer_stage(draft.workload, name) is not None for name in stage.reads)
    return is_pointwise(stage) and not is_expensive(stage) and not computed
