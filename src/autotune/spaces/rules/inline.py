"""Rule: compute cheap pointwise stages inside their consumers, unless that repeats too much."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from autotune.ir.expressions import Gather, Load, ScalarExpr, Select
from autotune.ir.expressions.scalar import children, reads, walk
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import Inline
from autotune.sketches.steps import inlined_stages
from autotune.spaces.rules.access import is_expensive, is_gathered, is_pointwise
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
