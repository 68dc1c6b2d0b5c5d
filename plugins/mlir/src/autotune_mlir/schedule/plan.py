"""The plan of a candidate: what its steps make of each stage, with numbers for parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import define, evolve, field, frozen

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import affine_form
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload, padding_of_stage
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

__all__ = [
    "PackedOperand",
    "Plan",
    "StagePlan",
    "WholeOperand",
    "check_said",
    "plan_of",
    "shared_loops",
]


@frozen
class PackedOperand:
    """An operand that is copied inside a loop.

    Attributes:
        operand: Its name.
        at: The loop.
        lanes: Elements of a vector of the copy.
    """

    operand: str
    at: str
    lanes: int


@frozen
class WholeOperand:
    """An operand that is copied as a whole, before the stage.

    Attributes:
        operand: Its name.
        block: Extent of the blocks that the operand's last dimension is split into; None keeps
            the layout.
        lanes: Elements of a vector of the copy.
    """

    operand: str
    block: int | None
    lanes: int


@define
class StagePlan:
    """The plan of one stage.

    Attributes:
        stage: The stage.
        factors: Extents of the loops of each tiled axis, outermost first.
        padded: Extents of axes that are iterated beyond their own.
        shared: Extents of axes in the loop of another stage that it is computed in.
        covered: Axes of which the last iterations of some loops are incomplete.
        order: All loops, outermost first.
        parallel: Loops that run on all cores.
        unrolled: Loops that are unrolled completely.
        vector: The loop that becomes lanes.
        packed: Operands that are copied inside a loop.
        whole: Operands that are copied as a whole.
        accumulated_at: The loop inside of which the result is kept.
        consumer: The stage that is computed inside ``accumulated_at``, if any.
        inlined: Whether it is computed inside its consumers.
        inside: Consumer and its loop that the stage is computed in.
        partial_lanes: Interleaved partial results of the reduced axis: axis and lanes.
        partial_of: The stage of the workload whose partial results it computes.
    """

    stage: Stage
    factors: dict[str, tuple[int, ...]] = field(factory=dict)
    padded: dict[str, int] = field(factory=dict)
    shared: dict[str, int] = field(factory=dict)
    covered: set[str] = field(factory=set)
    order: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    unrolled: tuple[str, ...] = ()
    vector: str | None = None
    packed: list[PackedOperand] = field(factory=list)
    whole: list[WholeOperand] = field(factory=list)
    accumulated_at: str | None = None
    consumer: str | None = None
    inlined: bool = False
    inside: tuple[str, str] | None = None
    partial_lanes: tuple[str, int] | None = None
    partial_of: str | None = None

    def __attrs_post_init__(self) -> None:
        self.order = tuple(f"{axis.name}.0" for axis in self.stage.axes)

    def split(self, axis: str, factors: tuple[int, ...]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        at = self.order.index(f"{axis}.0")
        names = (f"{axis}.{level}" for level in range(len(factors)))
        self.factors[axis] = factors
        self.order = (*self.order[:at], *names, *self.order[at + 1 :])

    def axis_of(self, loop: str) -> str:
        """The axis that a loop belongs to."""
        return loop.rpartition(".")[0]

    def tile_inside(self, loop: str) -> int:
        """Number of iterations of its axis that an iteration of a loop makes."""
        axis, _, level = loop.rpartition(".")
        factors = self.factors.get(axis, (self.whole_extent(axis),))
        return math.prod(factors[int(level) + 1 :])

    def extent_inside(self, loop: str, axis: str) -> int:
        """Iterations of an axis inside one iteration of a loop."""
        inner = self.order[self.order.index(loop) + 1 :]
        return math.prod(self.extent(other) for other in inner if self.axis_of(other) == axis)

    def extent(self, loop: str) -> int:
        """Iterations of a loop."""
        axis, _, level = loop.rpartition(".")
        return self.factors.get(axis, (self.whole_extent(axis),))[int(level)]

    def whole_extent(self, axis: str) -> int:
        """Iterations of an axis in the loop around the stage, those beyond its end included."""
        return self.padded.get(axis, self.shared.get(axis, self.stage.axis(axis).extent))

    def extent_on_core(self, axis: str) -> int:
        """Iterations of an axis inside the loops that run on all cores."""
        tiles = [self.tile_inside(loop) for loop in self.parallel if self.axis_of(loop) == axis]
        return tiles[-1] if tiles else self.whole_extent(axis)

    @property
    def padded_operands(self) -> set[str]:
        """Operands that depend on a padded axis."""
        return {
            load.tensor
            for load in self.stage.loads
            if any(set(index.variables) & set(self.padded) for index in load.indices)
        }

    @property
    def is_clipped(self) -> bool:
        """True if tiles of the result go beyond its end."""
        return any(axis.name in self.padded for axis in self.stage.spatial_axes)

    def is_reduction(self, loop: str) -> bool:
        """Return whether a loop is of a reduced axis."""
        return self.axis_of(loop) in {axis.name for axis in self.stage.reduce_axes}


@frozen
class Plan:
    """Plans of all stages, by name, in the workload's order, then of partial results."""

    workload: Workload
    stages: Mapping[str, StagePlan]


def shared_loops(plans: Mapping[str, StagePlan], plan: StagePlan) -> dict[str, str]:
    """The loops around a stage that is computed inside of another one, by its own axes.

    The leading axes of both are the same; partial results have those of the stage that was split.

    Returns:
        For each of these axes the innermost loop over it around the stage.
    """
    if plan.inside is None:
        return {}
    consumer, at = plans[plan.inside[0]], plan.inside[1]
    around = consumer.order[: consumer.order.index(at) + 1]
    innermost = {consumer.axis_of(loop): loop for loop in around}
    loops = [innermost[it.name] for it in consumer.stage.spatial_axes if it.name in innermost]
    own = plans[plan.partial_of].stage if plan.partial_of else plan.stage
    return dict(zip((it.name for it in own.spatial_axes), loops, strict=False))


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
        if isinstance(step, Pack) and step.at is None and _transposes(step, workload):
            raise InvalidSchedule(
                f"no script of the Transform dialect says {step}: it copies as a whole, and "
                "transposes"
            )
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


def _transposes(step: Pack, workload: Workload) -> bool:
    """Tell whether blocks are along another dimension than the last."""
    return step.block_dim != len(workload.tensors[step.operand].shape) - 1


def _note_pack(step: Pack, workload: Workload, plan: StagePlan, config: Mapping[str, int]) -> None:
    # A copy inside of a loop keeps the operand's order: no operation transposes tiles of it.
    if step.at is None:
        block = None if step.block is None else int(evaluate(step.block, config))
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
