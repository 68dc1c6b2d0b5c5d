"""The steps of a candidate, sorted by the stage that they are about."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import evolve

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import affine_form
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, padding_of_stage
from autotune.sketches import Candidate, OpenStep, partial_name, split_reduction
from autotune.sketches.steps import (
    Accumulate,
    BoundLoop,
    ChunkReduction,
    ChunkScan,
    FuseConsumer,
    FuseProducer,
    Inline,
    Interleave,
    Order,
    Pack,
    PadExtent,
    Parallel,
    Prefetch,
    Prepack,
    SoftwarePipeline,
    SplitReduction,
    Step,
    Stream,
    Tensorize,
    Tile,
    TileCeil,
    Unroll,
    UnrollLimit,
    Vectorize,
)
from autotune_mlir.schedule.plan import (
    PackedOperand,
    Plan,
    StagePlan,
    WholeOperand,
    shared_loops,
)

__all__ = ["check_said", "plan_of"]

_VECTOR_BYTES = 64
_UNSAID = (Tensorize, Interleave, ChunkReduction, ChunkScan, OpenStep)
# What they save, other pipelines compute: the same numbers.
_LEFT_OUT = (Prepack, Stream, Prefetch, SoftwarePipeline, BoundLoop, UnrollLimit)


def plan_of(candidate: Candidate, workload: Workload) -> Plan:
    """Sort the steps of a candidate.

    Args:
        candidate: The candidate.
        workload: What is computed.

    Raises:
        InvalidSchedule: no script says a step.
    """
    config = candidate.config
    check_said(candidate, workload)
    plans = {stage.name: StagePlan(stage) for stage in workload.stages}
    scheduled = workload
    for step in candidate.sketch.core_steps:
        if isinstance(step, SplitReduction):
            scheduled = _note_partial_results(step, scheduled, plans)
        else:
            _note(step, workload, plans, config)
    for plan in plans.values():
        plan.packed = [
            evolve(packed, lanes=_copy_lanes(workload, plan, packed)) for packed in plan.packed
        ]
    for plan in list(plans.values()):
        for operand in _computed_before(workload, plan, plans):
            _compute_before(plans[operand])
    return Plan(workload, plans)


def check_said(candidate: Candidate, workload: Workload) -> None:
    """Check that operations of the Transform dialect say what a candidate does.

    Raises:
        InvalidSchedule: a step has no operation, or one would make something else of it.
    """
    for step in candidate.sketch.core_steps:
        if isinstance(step, _UNSAID):
            raise InvalidSchedule(f"no script of the Transform dialect says {step}")
    packed = {
        (step.stage, step.operand)
        for step in candidate.sketch.core_steps
        if isinstance(step, Pack)
    }
    for stage in workload.stages:
        for load in stage.loads:
            forms = [affine_form(index) for index in load.indices]
            falls = any(
                form is not None and min(form.coefficients.values(), default=0) < 0
                for form in forms
            )
            is_packed = (stage.name, load.tensor) in packed
            if falls and is_packed:
                raise InvalidSchedule(
                    f"stage {stage.name!r} packs {load.tensor!r}, which it reads backwards: no "
                    "script of the Transform dialect says that"
                )
            divided = any(form.terms for form in stage.forms(load))
            if divided and (stage.reduce_axes or is_packed):
                raise InvalidSchedule(
                    f"stage {stage.name!r} reads {load.tensor!r} at quotients or remainders, "
                    "which no script makes vectors of"
                )


def _computed_before(
    workload: Workload, plan: StagePlan, plans: Mapping[str, StagePlan]
) -> list[str]:
    """Inlined stages that cannot be computed in a stage's copies or views of them.

    These are copies of whole operands, and those that pad something else than an operand of the
    program: only the running program would know how much of a tile there is to compute.
    """
    sources = {whole.operand for whole in plan.whole}
    reads = {*plan.stage.reads, *sources}
    inlined = {name for name in reads if name in plans and plans[name].inlined}
    whole = inlined & sources
    copied = inlined & {packed.operand for packed in plan.packed}
    margins = {name for name in copied if padding_of_stage(plans[name].stage, workload)}
    behind = {
        name
        for margin in margins
        for name in plans[margin].stage.reads
        if name in plans and plans[name].inlined
    }
    return sorted(whole | behind | (copied & plan.padded_operands) - margins)


def _compute_before(plan: StagePlan) -> None:
    """Give a stage without steps loops: its first axis on all cores, its last in vectors."""
    plan.inlined = False
    axes = plan.stage.spatial_axes
    lanes = math.gcd(axes[-1].extent, _VECTOR_BYTES // plan.stage.output.element.bytes)
    plan.split(axes[-1].name, (axes[-1].extent // lanes, lanes))
    plan.vector = f"{axes[-1].name}.1"
    plan.parallel = (f"{axes[0].name}.0",)


def _copy_lanes(workload: Workload, plan: StagePlan, packed: PackedOperand) -> int:
    """Lanes that a copy is made with: those of the step, or what is read in one piece."""
    if packed.lanes > 1:
        return packed.lanes
    tensor = workload.tensors[packed.operand]
    load = next(load for load in plan.stage.loads if load.tensor == packed.operand)
    last = load.indices[-1] if load.indices else None
    if last is None or last.op != "var":
        return 1
    extent = plan.extent_inside(packed.at, str(last.args[0]))
    return math.gcd(extent, _VECTOR_BYTES // tensor.element.bytes)


def _note(
    step: Step, workload: Workload, plans: dict[str, StagePlan], config: Mapping[str, int]
) -> None:
    plan = plans.get(step.stage)
    if plan is None:
        raise InvalidSchedule(f"{step}: there is no stage {step.stage!r}")
    if isinstance(step, Inline):
        plan.inlined = True
    elif isinstance(step, (Tile, TileCeil)):
        factors = tuple(int(evaluate(factor, config)) for factor in step.factors)
        extent, product = plan.whole_extent(step.axis), math.prod(factors)
        if product < extent or (product > extent and isinstance(step, Tile)):
            raise InvalidSchedule(f"{step}: factors {factors} do not make {extent}")
        plan.split(step.axis, factors)
        if product > extent:
            plan.covered.add(step.axis)
    elif isinstance(step, PadExtent):
        _note_padding(step, plan, config)
    elif isinstance(step, Order):
        plan.order = step.loops
    elif isinstance(step, Parallel):
        plan.parallel = step.loops
    elif isinstance(step, Unroll):
        plan.unrolled = step.loops
    elif isinstance(step, Vectorize):
        plan.vector = step.loop
    elif isinstance(step, Pack):
        _note_pack(step, workload, plan, config)
    elif isinstance(step, Accumulate):
        plan.accumulated_at = step.at
    elif isinstance(step, FuseConsumer):
        plans[step.producer].accumulated_at = step.at
        plans[step.producer].consumer = step.stage
    elif isinstance(step, FuseProducer):
        if padding_of_stage(plan.stage, workload) is not None:
            raise InvalidSchedule(f"no script of the Transform dialect says {step}: it pads")
        plan.inside = (step.consumer, step.at)
        plan.shared = {
            axis: plans[step.consumer].tile_inside(loop)
            for axis, loop in shared_loops(plans, plan).items()
        }
        _split_lanes(plan, step)
    elif not isinstance(step, _LEFT_OUT):
        raise InvalidSchedule(f"no script of the Transform dialect says {step}")


def _note_partial_results(
    step: SplitReduction, workload: Workload, plans: dict[str, StagePlan]
) -> Workload:
    """Plan a stage that a step adds; returns the workload with it."""
    workload = split_reduction(workload, step)
    plan, partial = plans[step.stage], partial_name(step.stage)
    plan.partial_lanes = (step.axis, step.lanes)
    plans[partial] = StagePlan(workload.stage(partial), partial_of=step.stage)
    return workload


def _note_pack(step: Pack, workload: Workload, plan: StagePlan, config: Mapping[str, int]) -> None:
    # A copy inside of a loop keeps the operand's order: no operation transposes tiles of it.
    if step.at is None:
        block = None if step.block is None else int(evaluate(step.block, config))
        if step.block_dim != len(workload.tensors[step.operand].shape) - 1:
            raise InvalidSchedule(
                f"no script of the Transform dialect says {step}: it copies as a whole, and "
                "transposes"
            )
        whole = WholeOperand(step.operand, block, step.lanes)
        plan.whole.append(whole)
        return
    plan.packed.append(PackedOperand(step.operand, step.at, step.lanes))


def _split_lanes(plan: StagePlan, step: FuseProducer) -> None:
    """Split the innermost axis of a stage that moves into another's loop by its lanes."""
    if step.lanes == 1:
        return
    axis = plan.stage.spatial_axes[-1]
    if axis.extent % step.lanes:
        raise InvalidSchedule(f"{step}: {step.lanes} lanes do not divide {axis.extent}")
    plan.split(axis.name, (axis.extent // step.lanes, step.lanes))
    plan.vector = f"{axis.name}.1"


def _note_padding(step: PadExtent, plan: StagePlan, config: Mapping[str, int]) -> None:
    extent = int(evaluate(step.extent, config))
    own = plan.stage.axis(step.axis).extent
    if extent < own:
        raise InvalidSchedule(f"{step}: extent {extent} is less than {own}")
    if extent > own:
        plan.padded[step.axis] = extent
