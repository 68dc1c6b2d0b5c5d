"""Rules: pointwise stages inside their consumers, or fused after a reduction into its tile."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from attrs import frozen

from autotune.ir.expressions import Gather, Load, ScalarExpr, Select
from autotune.ir.expressions.scalar import children, reads, walk
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import Inline
from autotune.sketches.steps import inlined_stages
from autotune.spaces.rules.access import (
    is_expensive,
    is_gathered,
    is_pointwise,
    is_scan,
    producer_stage,
    reads_at_own_point,
)
from autotune.spaces.rules.draft import SketchDraft
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


# Nodes of an expression that a stage adds to those that are computed. Compilers keep trees, in
# which stages that read another one several times each multiply.
_MOST_NODES = 512


def repeats_too_much(workload: Workload, stage: Stage, inlined: Collection[str]) -> bool:
    """Return whether a buffer is better than to compute ``stage`` wherever it is read.

    It is for a stage that is expensive and computed at several places for one element of what is
    kept, and for one whose copies are many nodes.

    Args:
        workload: What the stage is of.
        stage: A pointwise stage.
        inlined: Stages that are inlined where they are read.
    """
    if is_expensive(stage) and _times_read(workload, stage, inlined, _places) > 1:
        return True
    nodes = sum(1 for _ in walk(stage.body))
    return nodes * _times_read(workload, stage, inlined, _occurrences) > _MOST_NODES


def nodes_if_inlined(workload: Workload) -> int:
    """Nodes of all expressions together, with every pointwise stage inlined where it is read."""
    pointwise = [it for it in workload.stages if is_pointwise(it)]
    inlined = {it.name for it in pointwise if it.name not in workload.outputs}
    known: dict[str, int] = {}
    return sum(
        sum(1 for _ in walk(it.body))
        * (_times_read(workload, it, inlined, _occurrences, known) if it.name in inlined else 1)
        for it in workload.stages
    )


def _times_read(
    workload: Workload,
    stage: Stage,
    inlined: Collection[str],
    count: Callable[[ScalarExpr, str], int],
    known: dict[str, int] | None = None,
) -> int:
    """Number of reads of ``stage`` by kept stages, through those that are inlined.

    ``known`` has, and gets, what was found of other stages.
    """
    known = {} if known is None else known

    def times(of: str) -> int:
        if of not in known:
            known[of] = sum(
                count(it.body, of) * (times(it.name) if it.name in inlined else 1)
                for it in workload.consumers(of)
            )
        return known[of]

    return times(stage.name)


def _occurrences(body: ScalarExpr, tensor: str) -> int:
    return sum(1 for read in reads(body) if read.tensor == tensor)


def _places(body: ScalarExpr, tensor: str) -> int:
    """At how many different indices one evaluation reads ``tensor``: one branch is taken."""
    return len(_indices(body, tensor))


def _indices(body: ScalarExpr, tensor: str) -> frozenset[Any]:
    if isinstance(body, Select):
        arms = (_indices(body.on_true, tensor), _indices(body.on_false, tensor))
        return _indices(body.condition, tensor) | max(arms, key=len)
    found = frozenset[Any]().union(*(_indices(child, tensor) for child in children(body)))
    if isinstance(body, (Load, Gather)) and body.tensor == tensor:
        return found | {body.indices}
    return found


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
    if len(behind) != 1 or not reads_at_own_point(stage, behind[0]):
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
