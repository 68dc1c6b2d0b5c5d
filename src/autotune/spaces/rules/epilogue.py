"""Rule: fuse the last pointwise stage after a reduction into the reduction's tile."""

from __future__ import annotations

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
from autotune.spaces.rules.rule import SketchRule


class EpilogueRule(SketchRule):
    """Marks a pointwise output that reads one reduction, directly or through pointwise stages.

    The pointwise stages between are inlined; the tiling rule of the reduction then fuses the
    marked stage at its tile.
    """

    name = "epilogue"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if not is_pointwise(stage) or draft.workload.consumers(stage.name):
            return None
        if not draft.can("fuse_consumer"):
            return None
        chain: list[str] = []
        reduction = self._reduction_behind(draft, stage, chain)
        if reduction is None or reduction.name in draft.epilogues:
            return None
        if chain and not draft.can("inline"):
            return None
        if [a.extent for a in reduction.spatial_axes] != [a.extent for a in stage.spatial_axes]:
            return None
        inlined = draft.extended(settled=chain, steps=[Inline(name) for name in chain])
        return [inlined.with_epilogue(reduction.name, stage.name)]

    def _reduction_behind(
        self, draft: SketchDraft, stage: Stage, chain: list[str]
    ) -> Stage | None:
        """The only computed tensor behind ``stage`` if it is a reduction; fills ``chain``."""
        computed = [
            producer
            for name in stage.reads
            if (producer := producer_stage(draft.workload, name)) is not None
        ]
        if len(computed) != 1 or not reads_at_own_point(stage, computed[0].name):
            return None
        producer = computed[0]
        if producer.name in draft.workload.outputs:
            return None
        if len(draft.workload.consumers(producer.name)) != 1:
            return None
        if is_scan(producer):
            return None
        if not is_pointwise(producer):
            return producer
        if is_expensive(producer):
            return None
        chain.append(producer.name)
        return self._reduction_behind(draft, producer, chain)
