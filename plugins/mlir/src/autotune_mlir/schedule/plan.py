"""The plan of a candidate: what its steps make of each stage, with numbers for parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from attrs import define, evolve, field, frozen

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import AffineForm, Load, affine_form
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Axis, Padding, Stage, Workload, padding_of_stage
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
from autotune_mlir.emit import is_operand, iterator_axes, operand_names
from autotune_mlir.schedule.script import Tag

__all__ = ["Copied", "Plan", "StagePlan", "check_said", "plan_of"]


@frozen
class Copied:
    """An operand that is copied.

    Attributes:
        operand: Its name.
        at: The loop inside of which it is; None of one that is copied as a whole, before the
            stage.
        lanes: Elements of a vector of the copy.
        block: Extent of the blocks that the last dimension of a whole operand is split into; None
            keeps the layout.
    """

    operand: str
    at: str | None
    lanes: int
    block: int | None = None


@define(eq=False, slots=False)
class StagePlan:
    """The plan of one stage.

    Attributes:
        stage: The stage.
        workload: What it is a part of.
        operands: Tensors that its operation reads, in the order of its operands; an empty name is
            of an operand that is no tensor of the workload.
        factors: Extents of the loops of each tiled axis, outermost first.
        padded: Extents of axes that are iterated beyond their own.
        shared: Extents of axes in the loop of another stage that it is computed in.
        covered: Axes of which the last iterations of some loops are incomplete.
        order: All loops, outermost first.
        parallel: Loops that run on all cores.
        unrolled: Loops that are unrolled completely.
        vector: The loop that becomes lanes.
        copied: Operands that are copied.
        accumulated_at: The loop inside of which the result is kept.
        consumer: The stage that is computed inside ``accumulated_at``, if any.
        inlined: Whether it is computed inside its consumers.
        inside: Consumer and its loop that the stage is computed in.
        partial_lanes: Interleaved partial results of the reduced axis: axis and lanes.
        partial_of: The stage of the workload whose partial results it computes.
    """

    stage: Stage
    workload: Workload
    operands: tuple[str, ...] = ()
    factors: dict[str, tuple[int, ...]] = field(factory=dict)
    padded: dict[str, int] = field(factory=dict)
    shared: dict[str, int] = field(factory=dict)
    covered: set[str] = field(factory=set)
    order: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    unrolled: tuple[str, ...] = ()
    vector: str | None = None
    copied: list[Copied] = field(factory=list)
    accumulated_at: str | None = None
    consumer: str | None = None
    inlined: bool = False
    inside: tuple[str, str] | None = None
    partial_lanes: tuple[str, int] | None = None
    partial_of: str | None = None

    def __attrs_post_init__(self) -> None:
        self.order = tuple(f"{axis.name}.0" for axis in self.stage.axes)

    @property
    def name(self) -> str:
        """Of the stage."""
        return self.stage.name

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of the operation, in the order of its dimensions."""
        return iterator_axes(self.stage)

    # Loops

    def split(self, axis: str, factors: tuple[int, ...]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        at = self.order.index(f"{axis}.0")
        names = (f"{axis}.{level}" for level in range(len(factors)))
        self.factors[axis] = factors
        self.order = (*self.order[:at], *names, *self.order[at + 1 :])

    def axis_of(self, loop: str) -> str:
        """The axis that a loop belongs to."""
        return loop.rpartition(".")[0]

    def _levels(self, loop: str) -> tuple[tuple[int, ...], int]:
        """Extents of the loops of its axis, and its place among them."""
        axis, _, level = loop.rpartition(".")
        return self.factors.get(axis, (self.whole_extent(axis),)), int(level)

    def extent(self, loop: str) -> int:
        """Iterations of a loop."""
        factors, level = self._levels(loop)
        return factors[level]

    def tile_inside(self, loop: str) -> int:
        """Number of iterations of its axis that an iteration of a loop makes."""
        factors, level = self._levels(loop)
        return math.prod(factors[level + 1 :])

    def extent_inside(self, loop: str, axis: str) -> int:
        """Iterations of an axis inside one iteration of a loop."""
        inner = self.order[self.order.index(loop) + 1 :]
        return math.prod(self.extent(other) for other in inner if self.axis_of(other) == axis)

    def whole_extent(self, axis: str) -> int:
        """Iterations of an axis in the loop around the stage, those beyond its end included."""
        return self.padded.get(axis, self.shared.get(axis, self.stage.axis(axis).extent))

    def extent_on_core(self, axis: str) -> int:
        """Iterations of an axis inside the loops that run on all cores."""
        tiles = [self.tile_inside(loop) for loop in self.parallel if self.axis_of(loop) == axis]
        return tiles[-1] if tiles else self.whole_extent(axis)

    def is_reduction(self, loop: str) -> bool:
        """Return whether a loop is of a reduced axis."""
        return self.axis_of(loop) in {axis.name for axis in self.stage.reduce_axes}

    def sizes(self, *loops: str) -> list[int]:
        """Tile sizes for loops of different axes: 0 where they do not tile."""
        sizes = {axis.name: 0 for axis in self.axes}
        for loop in loops:
            sizes[self.axis_of(loop)] = self.tile_inside(loop)
        return list(sizes.values())

    @property
    def parallel_sizes(self) -> list[int]:
        """Tile sizes for the loops on all cores, or nothing if these are one iteration."""
        if all(self.extent(loop) == 1 for loop in self.parallel):
            return []
        return self.sizes(*self.parallel)

    @property
    def tiled_loops(self) -> list[str]:
        """Loops that run on one core, without those of one iteration and without the lanes."""
        return [
            loop
            for loop in self.order
            if loop not in self.parallel and loop != self.vector and self.extent(loop) > 1
        ]

    # Kinds

    @cached_property
    def padding(self) -> Padding | None:
        """Set if it is a ``tensor.pad`` in the program."""
        return padding_of_stage(self.stage, self.workload)

    @property
    def is_shifted(self) -> bool:
        """True if it pads with a margin in front of the innermost dimension.

        It is computed in single elements: what a vector loads is not shifted.
        """
        return self.padding is not None and self.padding.low[-1] > 0

    @property
    def is_scan(self) -> bool:
        """True if its results continue one another."""
        return self.stage.scan_axis is not None

    @property
    def is_split(self) -> bool:
        """True if it is a reduction with partial results, or a single number undivided."""
        if self.stage.combiner is None:
            return False
        whole = not self.stage.spatial_axes and not self.factors
        return whole or self.partial_lanes is not None

    @property
    def is_uneven(self) -> bool:
        """True if the last round of a reduction in lanes has fewer elements than lanes."""
        if self.partial_lanes is None:
            return False
        axis, lanes = self.partial_lanes
        return self.stage.axis(axis).extent % lanes != 0

    @property
    def is_clipped(self) -> bool:
        """True if tiles of the result go beyond its end."""
        return any(axis.name in self.padded for axis in self.stage.spatial_axes)

    @property
    def is_separable(self) -> bool:
        """True if the only loop over the vectors of a covered axis runs on one core."""
        axis = self.axis_of(self.vector or "")
        if axis not in self.covered:
            return False
        return len(self.factors[axis]) == 2 and f"{axis}.0" not in self.parallel

    @property
    def window_axes(self) -> tuple[str, ...]:
        """Spatial axes that an operand is read at together with another, or at a multiple of.

        Vectors along such an axis are no slices of the operand: a tile is taken apart until each
        piece is one iteration of it. Stages that reduce nothing read such operands element by
        element.
        """
        found: set[str] = set()
        for load in self.stage.loads if self.stage.reduce_axes else ():
            for form in self.stage.forms(load):
                scales = form.coefficients
                if len(scales) > 1 or any(scale != 1 for scale in scales.values()):
                    found.update(scales)
        return tuple(axis.name for axis in self.stage.spatial_axes if axis.name in found)

    @property
    def pieces(self) -> list[str]:
        """Loops around the pieces of the innermost tile, unrolled before there are vectors."""
        loops = (
            [it for it in self.order if self.axis_of(it) == axis] for axis in self.window_axes
        )
        return [own[-1] for own in loops if own and own[-1] in self.unrolled]

    @property
    def has_vectors(self) -> bool:
        """True if the lanes of a stage with windows are next to each other in all that it reads.

        Where they are not, as at every second element, what is innermost stays as it is.
        """
        if self.vector is None:
            return False
        lanes = self.axis_of(self.vector)
        forms = [affine_form(index) for load in self.stage.loads for index in load.indices]
        return all(form is None or form.coefficients.get(lanes, 1) <= 1 for form in forms)

    # Reads

    def extracts(self, tensor: str) -> bool:
        """Tell if it reads a tensor element by element: there is no part of it that it needs."""
        reads = (load for load in self.stage.loads if load.tensor == tensor)
        gathered = any(gather.tensor == tensor for gather in self.stage.gathers)
        return gathered or not all(map(self._is_operand, reads))

    def _is_operand(self, load: Load) -> bool:
        return is_operand(self.stage, load, self.workload.tensors[load.tensor].shape)

    @property
    def reads_boxes(self) -> bool:
        """True if operands can be read by vectors: a tile's part of each is a box."""
        return all(
            self._is_box(forms)
            for load in self.stage.loads
            if (forms := _forms(load)) is not None and self._is_operand(load)
        )

    def _is_box(self, forms: Sequence[AffineForm]) -> bool:
        """Return whether every index is one axis or none, and no axis is the index twice."""
        return all(list(form.coefficients.values()) in ([], [1]) for form in forms) and all(
            sum(axis.name in form.coefficients for form in forms) <= 1 for axis in self.stage.axes
        )

    def reads_part(self, tensor: str) -> bool:
        """Return whether it reads a part of a tensor, of which nothing else is needed for it."""
        shape = self.workload.tensors[tensor].shape
        return any(
            form.bounds(self.stage.extents) != (0, extent - 1)
            for load in self.stage.loads
            if load.tensor == tensor
            for form, extent in zip(_forms(load) or (), shape, strict=False)
        )

    # Copies

    @property
    def packed(self) -> list[Copied]:
        """Operands that are copied inside a loop."""
        return [it for it in self.copied if it.at is not None]

    @property
    def whole(self) -> list[Copied]:
        """Operands that are copied as a whole."""
        return [it for it in self.copied if it.at is None]

    @property
    def padded_operands(self) -> set[str]:
        """Operands that depend on a padded axis: copies of them pad."""
        return {
            load.tensor
            for load in self.stage.loads
            if any(set(index.variables) & set(self.padded) for index in load.indices)
        }

    # Attributes

    def copy_tag(self, operand: str) -> Tag:
        """Attribute of the copy of an operand, also where it is what pads it."""
        return "pack", f"{self.name}.{operand}"

    @property
    def clipped_tags(self) -> list[Tag]:
        """Attributes of what takes a padded result out of tiles, and of what puts it into them."""
        return [("clip", self.name), ("tile", self.name)] if self.is_clipped else []

    @property
    def unpack_tags(self) -> list[Tag]:
        """Attributes of what takes blocks apart."""
        blocked = [whole.operand for whole in self.whole if whole.block is not None]
        return [("unpack", f"{self.name}.{operand}") for operand in blocked]


def _forms(load: Load) -> list[AffineForm] | None:
    """The indices of a load; None where one is not affine."""
    forms = [affine_form(index) for index in load.indices]
    known = [form for form in forms if form is not None]
    return known if len(known) == len(forms) else None


@frozen
class Plan:
    """Plans of all stages, by name, in the workload's order, then of partial results."""

    workload: Workload
    stages: Mapping[str, StagePlan]

    @property
    def own(self) -> list[StagePlan]:
        """Plans of the workload's stages."""
        return [self.stages[stage.name] for stage in self.workload.stages]

    @property
    def consumers(self) -> set[str]:
        """Names of stages that are computed where a result is kept."""
        return {own.consumer for own in self.stages.values() if own.consumer is not None}

    def readers(self, name: str) -> list[StagePlan]:
        """The stages that read one."""
        return [self.stages[user.name] for user in self.workload.consumers(name)]

    def is_extracted(self, name: str) -> bool:
        """Tell if single elements of a stage are read: it is computed as a whole before."""
        return any(user.extracts(name) for user in self.readers(name))

    def inlined_behind(self, name: str) -> list[str]:
        """Inlined stages that are computed inside a stage that reads them, each after its readers.

        They are read directly or through each other. A stage of which single elements are read, at
        indices that are computed or may be outside, is not among them: it is computed before.
        """
        found: list[str] = []
        for own in reversed(self.own):
            readers = (user.name for user in self.readers(own.name))
            if own.inlined and not self.is_extracted(own.name) and {name, *found} & {*readers}:
                found.append(own.name)
        return found

    def stages_in(self, name: str) -> list[StagePlan]:
        """Stages of the workload that are computed in the loops of one, in the workload's order.

        Raises:
            InvalidSchedule: one of them pads.
        """
        found = [own for own in self.own if own.inside is not None and own.inside[0] == name]
        for other in found:
            if other.padding is not None:
                raise InvalidSchedule(
                    f"backend 'mlir' cannot keep stage {other.name!r}, which pads, in a loop "
                    "over rows: it can be inlined, or a stage of its own"
                )
        return found

    def all_in(self, name: str) -> list[StagePlan]:
        """Stages that are computed in the loops of one, and in theirs."""
        direct = self.stages_in(name)
        return [*direct, *(other for own in direct for other in self.all_in(own.name))]

    def is_row_fusion(self, own: StagePlan) -> bool:
        """Return whether a pointwise stage has others computed in its loops."""
        return own.stage.combiner is None and bool(self.stages_in(own.name))


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
    check_said(candidate, workload)
    operands = operand_names(workload)
    plans = {it.name: StagePlan(it, workload, operands[it.name]) for it in workload.stages}
    scheduled = workload
    for step in candidate.sketch.core_steps:
        if isinstance(step, SplitReduction):
            scheduled = split_reduction(scheduled, step)
            partial = partial_name(step.stage)
            plans[step.stage].partial_lanes = (step.axis, step.lanes)
            stage = scheduled.stage(partial)
            plans[partial] = StagePlan(stage, workload, partial_of=step.stage)
        else:
            _note(step, plans, candidate.config)
    for plan in plans.values():
        plan.copied = [evolve(it, lanes=_copy_lanes(plan, it)) for it in plan.copied]
    for plan in list(plans.values()):
        for operand in _computed_before(plan, plans):
            _compute_before(plans[operand])
    return Plan(workload, plans)


def check_said(candidate: Candidate, workload: Workload) -> None:
    """Check that operations of the Transform dialect say what a candidate does.

    Raises:
        InvalidSchedule: a step has no operation, or one would make something else of it.
    """
    packed = set()
    for step in candidate.sketch.core_steps:
        if isinstance(step, _UNSAID):
            raise InvalidSchedule(f"no script of the Transform dialect says {step}")
        if isinstance(step, Pack):
            packed.add((step.stage, step.operand))
            if step.at is None and step.block_dim != len(workload.tensors[step.operand].shape) - 1:
                raise InvalidSchedule(
                    f"no script of the Transform dialect says {step}: it copies as a whole, and "
                    "transposes"
                )
    for stage in workload.stages:
        for load in stage.loads:
            forms = (affine_form(index) for index in load.indices)
            known = (form for form in forms if form is not None)
            falls = any(min(form.coefficients.values(), default=0) < 0 for form in known)
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


def _computed_before(plan: StagePlan, plans: Mapping[str, StagePlan]) -> list[str]:
    """Inlined stages that cannot be computed in a stage's copies or views of them.

    These are copies of whole operands, and those that pad something else than an operand of the
    program: only the running program would know how much of a tile there is to compute.
    """

    def inlined(names: Sequence[str]) -> set[str]:
        return {name for name in names if name in plans and plans[name].inlined}

    whole = inlined([it.operand for it in plan.whole])
    copied = inlined([it.operand for it in plan.packed])
    margins = {name for name in copied if plans[name].padding is not None}
    behind = {it for margin in margins for it in inlined(plans[margin].stage.reads)}
    return sorted(whole | behind | (copied & plan.padded_operands) - margins)


def _compute_before(plan: StagePlan) -> None:
    """Give a stage without steps loops: its first axis on all cores, its last in vectors."""
    plan.inlined = False
    axes = plan.stage.spatial_axes
    lanes = math.gcd(axes[-1].extent, _VECTOR_BYTES // plan.stage.output.element.bytes)
    plan.split(axes[-1].name, (axes[-1].extent // lanes, lanes))
    plan.vector = f"{axes[-1].name}.1"
    plan.parallel = (f"{axes[0].name}.0",)


def _copy_lanes(plan: StagePlan, copied: Copied) -> int:
    """Lanes that a copy is made with: those of the step, or what is read in one piece."""
    if copied.lanes > 1 or copied.at is None:
        return copied.lanes
    load = next(load for load in plan.stage.loads if load.tensor == copied.operand)
    last = load.indices[-1] if load.indices else None
    if last is None or last.op != "var":
        return 1
    extent = plan.extent_inside(copied.at, str(last.args[0]))
    element = plan.workload.tensors[copied.operand].element
    return math.gcd(extent, _VECTOR_BYTES // element.bytes)


def _note(step: Step, plans: Mapping[str, StagePlan], config: Mapping[str, int]) -> None:
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
        extent, own = int(evaluate(step.extent, config)), plan.stage.axis(step.axis).extent
        if extent < own:
            raise InvalidSchedule(f"{step}: extent {extent} is less than {own}")
        if extent > own:
            plan.padded[step.axis] = extent
    elif isinstance(step, Order):
        plan.order = step.loops
    elif isinstance(step, Parallel):
        plan.parallel = step.loops
    elif isinstance(step, Unroll):
        plan.unrolled = step.loops
    elif isinstance(step, Vectorize):
        plan.vector = step.loop
    elif isinstance(step, Pack):
        # A copy inside of a loop keeps the operand's order: no operation transposes tiles of it.
        block = None
        if step.at is None and step.block is not None:
            block = int(evaluate(step.block, config))
        plan.copied.append(Copied(step.operand, step.at, step.lanes, block))
    elif isinstance(step, Accumulate):
        plan.accumulated_at = step.at
    elif isinstance(step, FuseConsumer):
        plans[step.producer].accumulated_at = step.at
        plans[step.producer].consumer = step.stage
    elif isinstance(step, FuseProducer):
        _move_inside(step, plan, plans)
    elif not isinstance(step, _LEFT_OUT):
        raise InvalidSchedule(f"no script of the Transform dialect says {step}")


def _move_inside(step: FuseProducer, plan: StagePlan, plans: Mapping[str, StagePlan]) -> None:
    """Compute a stage in a loop of another, over its rows; its innermost axis gets the lanes.

    The leading axes of both are the same; partial results have those of the stage that was split.
    """
    if plan.padding is not None:
        raise InvalidSchedule(f"no script of the Transform dialect says {step}: it pads")
    plan.inside = (step.consumer, step.at)
    consumer, split = plans[step.consumer], plans[plan.partial_of or plan.name]
    around = consumer.order[: consumer.order.index(step.at) + 1]
    innermost = {consumer.axis_of(loop): loop for loop in around}
    axes = [it.name for it in consumer.stage.spatial_axes if it.name in innermost]
    plan.shared = {
        axis.name: consumer.tile_inside(innermost[theirs])
        for axis, theirs in zip(split.stage.spatial_axes, axes, strict=False)
    }
    if step.lanes == 1:
        return
    axis = plan.stage.spatial_axes[-1]
    if axis.extent % step.lanes:
        raise InvalidSchedule(f"{step}: {step.lanes} lanes do not divide {axis.extent}")
    plan.split(axis.name, (axis.extent // step.lanes, step.lanes))
    plan.vector = f"{axis.name}.1"
