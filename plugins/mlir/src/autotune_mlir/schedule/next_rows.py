"""What is done for one row while another one is computed."""

from __future__ import annotations

import math

from autotune.backends import InvalidSchedule
from autotune.sketches.steps import Prefetch
from autotune_mlir.passes import pipeline_rows as pipelines
from autotune_mlir.passes import prefetch_rows as prefetches
from autotune_mlir.passes.pipeline_rows import LateStage
from autotune_mlir.passes.prefetch_rows import NextRow
from autotune_mlir.schedule.plan import Plan, StagePlan
from autotune_mlir.schedule.script import Script

__all__ = ["mark_late_stages", "mark_prefetches"]


def mark_prefetches(script: Script, plan: Plan) -> None:
    """Say which stages ask for the next row, and how far ahead it is.

    What asks is made long after the schedule.

    Raises:
        InvalidSchedule: a stage asks for what is no input, or does not read it at affine indices.
    """
    rows = [_next_row(plan, own, step) for own in plan.stages.values() for step in own.prefetches]
    if rows:
        script.annotate(script.match_kind("func.func"), "prefetch", prefetches.mark_of(rows))


def mark_late_stages(script: Script, plan: Plan) -> None:
    """Say which stages run an iteration late; they are moved long after the schedule.

    Raises:
        InvalidSchedule: one is no output.
    """
    outputs, inputs = plan.workload.outputs, len(plan.workload.inputs)
    late = []
    for name, own in plan.stages.items():
        if own.host is not None:
            if name not in outputs:
                raise InvalidSchedule(f"backend 'mlir' runs outputs late, and not {name!r}")
            late.append(LateStage(inputs + outputs.index(name), name, own.host))
    if late:
        script.annotate(script.match_kind("func.func"), "pipeline", pipelines.mark_of(late))


def _next_row(plan: Plan, own: StagePlan, step: Prefetch) -> NextRow:
    workload = plan.workload
    # What computes partial results reads as the stage does that was split.
    stage = workload.stage(own.partial_of or step.stage)
    names = [tensor.name for tensor in workload.inputs]
    load = next((it for it in stage.loads if it.tensor == step.operand), None)
    if step.operand not in names or load is None:
        raise InvalidSchedule(f"{step}: it reads no such input")
    consumer = plan.stages[step.consumer]
    rows = [axis.name for axis in consumer.stage.spatial_axes]
    at = consumer.axis_of(step.at)
    if at not in rows[: len(stage.spatial_axes)]:
        raise InvalidSchedule(f"{step}: {step.stage} has no axis for loop {step.at!r}")
    axis = stage.spatial_axes[rows.index(at)].name
    shape = workload.tensors[step.operand].shape
    forms = stage.forms(load)
    if any(form.terms for form in forms):
        raise InvalidSchedule(f"{step}: what it reads next is known only when it runs")
    ahead = sum(
        form.coefficients.get(axis, 0) * math.prod(shape[dimension + 1 :])
        for dimension, form in enumerate(forms)
    )
    return NextRow(stage.name, names.index(step.operand), ahead * consumer.tile_inside(step.at))
