"""Directions that the axes of stages run in, so that no operand is read backwards.

Tiles of what falls along an iterator are beyond MLIR. Axes that are reduced over may run in any
order. Where an index grows along one axis of the result and falls along another, the outer one
runs backwards, and the result is reversed; so is that of a stage which is computed in its loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.expressions import Load
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import Candidate, Step, running_directions, runs_one_way
from autotune.sketches.steps import (
    BoundLoop,
    FuseConsumer,
    FuseProducer,
    Pack,
    SoftwarePipeline,
    inlined_stages,
)

__all__ = ["axis_directions", "reversed_places"]


def axis_directions(workload: Workload, candidate: Candidate) -> dict[str, dict[str, int]]:
    """The directions of the axes of stages that gain by it, by stage: 1, or -1 for backwards.

    Args:
        workload: What is computed.
        candidate: The steps.
    """
    steps = candidate.sketch.core_steps
    found: dict[str, dict[str, int]] = {}
    for stage in workload.stages:
        if not _is_worth_it(stage, steps):
            continue
        directions = running_directions(stage)
        if not _reads_one_way(stage, directions):
            outer = running_directions(stage, results=True)
            together = _fused_with(stage, outer, workload, steps)
            if _reads_one_way(stage, outer) and together is not None:
                found |= together
                continue
        found.setdefault(stage.name, directions)
    return found


def reversed_places(stage: Stage, directions: Mapping[str, int]) -> tuple[int, ...]:
    """Dimensions of a stage's result along which axes run backwards."""
    return tuple(
        place for place, axis in enumerate(stage.spatial_axes) if directions[axis.name] < 0
    )


def _is_worth_it(stage: Stage, steps: Sequence[Step]) -> bool:
    """Whether elements are read again and again, so that reversing them is little of it."""
    packed = any(isinstance(step, Pack) and step.stage == stage.name for step in steps)
    return bool(stage.reduce_axes) and (len(stage.reads) > 1 or packed)


def _reads_one_way(stage: Stage, directions: Mapping[str, int]) -> bool:
    forms = (form for load in stage.loads for form in stage.forms(load))
    return all(form.terms or runs_one_way(form, directions) for form in forms)


def _fused_with(
    stage: Stage, directions: dict[str, int], workload: Workload, steps: Sequence[Step]
) -> dict[str, dict[str, int]] | None:
    """Directions of a stage and of those that are computed in its loops.

    Returns:
        None where one of them has loops whose order or ends are not its own.
    """
    found = {stage.name: directions}
    fused = (
        step.stage
        for step in steps
        if isinstance(step, FuseConsumer) and step.producer == stage.name
    )
    consumer = next(fused, None)
    if consumer is not None:
        inlined = inlined_stages(steps)
        between = _between(workload, stage.name, consumer, inlined)
        for reader in workload.stages:
            if reader.name not in between:
                continue
            theirs = _of_reader(reader, workload, found)
            if theirs is None:
                return None
            found[reader.name] = theirs
        for name in between - {consumer}:
            if any(reader.name not in found for reader in workload.consumers(name)):
                return None
    bound = any(
        isinstance(step, (BoundLoop, FuseProducer, SoftwarePipeline))
        and {step.stage, getattr(step, "consumer", step.stage)} & set(found)
        for step in steps
    )
    return None if bound else found


def _between(workload: Workload, first: str, last: str, inlined: frozenset[str]) -> set[str]:
    """The last stage and the inlined ones through which it reads the first one."""
    reading = {first}
    for stage in workload.stages:
        if stage.name in (*inlined, last) and reading & set(stage.reads):
            reading.add(stage.name)
    behind = {last}
    for stage in reversed(workload.stages):
        readers = {reader.name for reader in workload.consumers(stage.name)}
        if stage.name in reading and readers & behind:
            behind.add(stage.name)
    return behind - {first}


def _of_reader(
    reader: Stage, workload: Workload, found: Mapping[str, Mapping[str, int]]
) -> dict[str, int] | None:
    """Directions of a stage that reads others point by point; None where it does not."""
    backwards: set[str] = set()
    forwards: set[str] = set()
    for access in reader.accesses:
        if access.tensor not in found:
            continue
        read = workload.stage(access.tensor)
        if not isinstance(access, Load) or any(index.op != "var" for index in access.indices):
            return None
        for index, axis in zip(access.indices, read.spatial_axes, strict=True):
            turned = found[read.name][axis.name] < 0
            (backwards if turned else forwards).add(str(index.args[0]))
    if backwards & forwards:
        return None
    return {axis.name: -1 if axis.name in backwards else 1 for axis in reader.axes}
