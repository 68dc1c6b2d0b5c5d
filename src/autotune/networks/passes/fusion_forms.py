"""Composed workloads that have the schedules of their parts: what may be fused.

These are questions about structure, of the rules by which sketches are made: a consumer is
computed in the tile of the reduction before it, reductions of rows and what is computed of them in
one loop over rows, what only a reduction reads inside of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from attrs import frozen

from autotune.ir.expressions import IndexValue, Load, var
from autotune.ir.workloads import Stage, Workload
from autotune.ir.workloads.composing import computed_where_read
from autotune.sketches import STEP_TYPES
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules import SketchDraft
from autotune.spaces.rules.access import (
    is_expensive,
    is_pointwise,
    is_without_reuse,
    numbers_behind,
    rows_behind,
)
from autotune.spaces.rules.inline import reduction_before
from autotune.targets import Target

__all__ = [
    "Form",
    "form_of",
    "is_gathered_from",
    "reads_each_once",
    "reads_in_place",
    "reads_in_rows",
    "scheduled_as_one",
]


@frozen
class Form:
    """Facts about a workload that decide what it is fused with.

    Attributes:
        is_pointwise: Whether every stage computes its elements each on its own.
        is_anchor: Whether it is a reduction that others may be fused with.
        is_product: Whether it has a reduction that reads elements several times.
        is_expensive: Whether it is pointwise and costs more than a buffer.
    """

    is_pointwise: bool
    is_anchor: bool
    is_product: bool
    is_expensive: bool


def form_of(workload: Workload) -> Form:
    """The form of a workload with one output."""
    stages = workload.stages
    reductions = [it for it in stages if not is_pointwise(it)]
    scans = any(it.scan_axis is not None for it in stages)
    products = [it for it in reductions if not is_without_reuse(it)]
    several = bool(products) and len(reductions) > 1
    return Form(
        not reductions,
        bool(reductions) and not scans and not several,
        bool(products),
        not reductions and any(map(is_expensive, stages)),
    )


def _loads(stage: Stage, tensor: str) -> Iterator[Load]:
    return (it for it in stage.loads if it.tensor == tensor)


def is_gathered_from(workload: Workload, tensor: str) -> bool:
    """Return whether elements of a tensor are read where data says."""
    return any(it.tensor == tensor for stage in workload.stages for it in stage.gathers)


def reads_in_place(workload: Workload, tensor: str) -> bool:
    """Return whether a pointwise workload reads a tensor only at the place that it computes."""
    if is_gathered_from(workload, tensor):
        return False
    for stage in workload.stages:
        here = [axis.name for axis in stage.axes]
        for load in _loads(stage, tensor):
            places = [it.args[0] if it.op == "var" else None for it in load.indices]
            if places != here:
                return False
    return True


def reads_in_rows(workload: Workload, tensor: str) -> bool:
    """Tell if neighbours along the last axis of each stage are neighbours in a tensor, or one."""
    for stage in workload.stages:
        last = stage.axes[-1].name if stage.axes else ""
        for read in (it for it in stage.accesses if it.tensor == tensor):
            moving = [at for at, it in enumerate(stage.forms(read)) if last in it.axes]
            if moving not in ([], [len(read.indices) - 1]):
                return False
            if moving and read.indices[-1] not in (var(last), IndexValue(var(last))):
                return False
    return True


def reads_each_once(workload: Workload, tensor: str, elements: int) -> bool:
    """Return whether no stage reads more elements of a tensor than there are."""
    return all(
        prod(axis.extent for axis in stage.axes) * len({*_loads(stage, tensor)}) <= elements
        for stage in workload.stages
        if any(_loads(stage, tensor))
    )


def without_movements(workload: Workload) -> Workload:
    """The workload whose readers of what is only moved read from where it was."""
    moved = [
        it.name
        for it in workload.stages
        if isinstance(it.body, Load)
        and is_pointwise(it)
        and it.name not in workload.outputs
        and it.output.dtype == workload.tensors[it.body.tensor].dtype
    ]
    return computed_where_read(workload, moved)


def with_readers_joined(workload: Workload) -> Workload:
    """The workload in which one stage alone reads its last reduction, as epilogues have it.

    Behind the reduction, stages are kept through which everything goes, unless they are expensive
    and read again. The others are computed where they are read, as is all but the last of what is
    only computed of operands that they read besides.
    """
    last = max(
        (at for at, it in enumerate(workload.stages) if not is_pointwise(it)),
        default=len(workload.stages),
    )
    if last >= len(workload.stages) - 1:
        return workload
    behind = {workload.stages[last].name}
    waiting = {workload.stages[last].name: _reader_names(workload, workload.stages[last].name)}
    joined: list[str] = []
    heavy: set[str] = set()
    for stage in workload.stages[last + 1 :]:
        for readers in waiting.values():
            readers.discard(stage.name)
        waiting = {name: readers for name, readers in waiting.items() if readers}
        if not behind & {*stage.reads}:
            continue
        behind.add(stage.name)
        readers = _reader_names(workload, stage.name)
        # What is joined makes its reader as heavy as it is.
        if is_expensive(stage) or heavy & {*stage.reads}:
            heavy.add(stage.name)
        if readers and (waiting or stage.name in heavy):
            joined.append(stage.name)
        if readers:
            waiting[stage.name] = readers
    return computed_where_read(workload, [*_beside(workload, last, behind), *joined])


def _beside(workload: Workload, last: int, behind: Collection[str]) -> list[str]:
    """Stages that neither read a reduction nor are read by it, and that only such ones read."""
    needed = _ancestors(workload, workload.stages[last].name) | {workload.stages[last].name}
    beside = {
        it.name
        for it in workload.stages
        if is_pointwise(it)
        and not is_expensive(it)
        and it.name not in needed
        and it.name not in behind
    }
    return [name for name in beside if _reader_names(workload, name) <= beside]


def _reader_names(workload: Workload, tensor: str) -> set[str]:
    return {it.name for it in workload.consumers(tensor)}


_ANY_STEPS = ScheduleLimits(
    steps=frozenset(STEP_TYPES), stack_bytes=1 << 16, unrolled_statements=1 << 12, source="any"
)


def scheduled_as_one(workload: Workload, machine: Target) -> Workload | None:
    """A workload in the form in which rules compute all of it in one loop nest.

    Args:
        workload: Has one output, its last stage.
        machine: What it runs on.

    Returns:
        The workload, or one of fewer stages; None where the last stage would have loops of its
        own behind those of a reduction.
    """
    whole = without_movements(workload)
    last = whole.stages[-1]
    if not is_pointwise(last) or all(map(is_pointwise, whole.stages)):
        # What a reduction reads is decided together with it.
        return whole
    draft = SketchDraft(whole, machine, _ANY_STEPS)
    found = rows_behind(draft, last) or numbers_behind(draft, last)
    if found is not None and len(found[0]) + 1 == len(whole.stages):
        return whole
    joined = with_readers_joined(whole)
    before = reduction_before(SketchDraft(joined, machine, _ANY_STEPS), joined.stages[-1])
    if before is None:
        return None
    after = {before.reduction, *before.inlined, joined.stages[-1].name}
    needed = _ancestors(joined, before.reduction)
    return joined if all(it.name in after or it.name in needed for it in joined.stages) else None


def _ancestors(workload: Workload, name: str) -> set[str]:
    found = {name}
    for stage in reversed(workload.stages):
        if stage.name in found:
            found |= {*stage.reads}
    return found - {name}
