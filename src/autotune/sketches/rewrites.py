"""Rewrites of the workload by steps that change more than loops."""

from __future__ import annotations

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import Load, substitute, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches.steps import SplitReduction


def partial_name(stage: str) -> str:
    """Name of the stage that computes the partial results of a split reduction."""
    return f"{stage}_partial"


def lane_axis(axis: str) -> str:
    """Name of the axis over the partial results."""
    return f"{axis}_lane"


def split_reduction(workload: Workload, step: SplitReduction) -> Workload:
    """The workload with the stage split in two: partial results by lane, then their reduction.

    Raises:
        InvalidValueError: the axis is not reduced over, or the lanes do not divide it.
    """
    stage = workload.stage(step.stage)
    axis = stage.axis(step.axis)
    if axis.kind != "reduce" or step.lanes < 1 or axis.extent % step.lanes:
        raise InvalidValueError(
            f"cannot split axis {axis.name!r} of stage {stage.name!r}: "
            f"{step.lanes} lanes of a {axis.kind} axis of extent {axis.extent}"
        )
    lane = lane_axis(axis.name)
    position = {axis.name: var(axis.name) * step.lanes + var(lane)}
    shape = (step.lanes, *stage.output.shape)
    partial = Stage(
        Tensor(partial_name(stage.name), shape, stage.output.dtype),
        (
            Axis(lane, step.lanes),
            *(
                evolve(other, extent=axis.extent // step.lanes) if other is axis else other
                for other in stage.axes
            ),
        ),
        substitute(stage.body, position),
        stage.combiner,
    )
    names = (lane, *(other.name for other in stage.spatial_axes))
    final = Stage(
        stage.output,
        (Axis(lane, step.lanes, "reduce"), *stage.spatial_axes),
        Load(partial.name, tuple(var(name) for name in names)),
        stage.combiner,
    )
    stages = [
        part
        for other in workload.stages
        for part in ((partial, final) if other.name == stage.name else (other,))
    ]
    return evolve(workload, stages=tuple(stages))
