"""Workloads under other names, and in another order, that compute the same."""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import evolve

from autotune.ir.workloads import Stage, Workload
from autotune.ir.workloads.canonical import Names


def other_names(workload: Workload, seed: int) -> Names:
    """Random names, among them some that mean another tensor or axis of the workload."""
    source = random.Random(seed)

    def shuffled(names: Sequence[str], prefix: str) -> dict[str, str]:
        fresh = [f"{prefix}{source.randrange(10**4)}_{number}" for number in range(len(names))]
        pool = source.sample([*names, *fresh], len(names))
        return dict(zip(names, pool, strict=True))

    axes = {it.name: shuffled(list(it.extents), "ax") for it in workload.stages}
    return Names(shuffled(list(workload.tensors), "lv"), axes)


def reordered(workload: Workload, seed: int) -> Workload:
    """Inputs, and stages as far as they allow it, in a random order."""
    source = random.Random(seed)
    left, stages = list(workload.stages), list[Stage]()
    while left:
        pending = {stage.name for stage in left}
        free = [stage for stage in left if not pending & set(stage.reads)]
        stages.append(source.choice(free))
        left.remove(stages[-1])
    inputs = source.sample(workload.inputs, len(workload.inputs))
    return evolve(workload, inputs=tuple(inputs), stages=tuple(stages))


def respelled(workload: Workload, seed: int) -> Workload:
    """The workload under random names; inputs and stages keep their order."""
    return workload.renamed(other_names(workload, seed))
