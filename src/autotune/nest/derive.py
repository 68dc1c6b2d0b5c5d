"""Deriving the symbolic loop nest from a sketch's steps.

The derivation mirrors what backends do when they replay the steps; tests hold it against the
extents and allocations of lowered programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    IntExpr,
    Load,
    ScalarExpr,
    const,
    gathers,
    substitute,
    transform,
)
from autotune.ir.workloads import Stage, Workload
from autotune.nest.emission import StageSchedule, emit_nest
from autotune.nest.loop_nest import EarlyRead, Loop, LoopBound, LoopNest, Statement
from autotune.sketches import (
    BIND_ROLES,
    Accumulate,
    Bind,
    BoundLoop,
    BulkCopy,
    ChunkReduction,
    ChunkScan,
    CooperativeFetch,
    CoreMatrices,
    FuseConsumer,
    FuseProducer,
    Im2col,
    Inline,
    Interleave,
    OpenStep,
    Order,
    Pack,
    PadExtent,
    Parallel,
    PipelineFetches,
    Prefetch,
    Prepack,
    SharedLayout,
    Sketch,
    SoftwarePipeline,
    SplitReduction,
    Stream,
    Tensorize,
    Tile,
    TileCeil,
    Unroll,
    UnrollLimit,
    Vectorize,
    WarpTensorize,
    chunk_scan,
    im2col,
    is_prepackable,
    partial_name,
    per_sketch,
    split_reduction,
)

__all__ = ["check_pipelines", "check_scan", "kept_buffers"]


def check_pipelines(statements: Sequence[Statement]) -> None:
    """Check that nothing is overwritten before a late statement has read it.

    Raises:
        InvalidValueError: a statement that runs late is not the last one in its loop, the one in
            whose loops it runs is not there, or something that it reads is gone by then.
    """
    for late in statements:
        if late.pipelined is not None:
            loop, host = late.pipelined
            _check(late, [it for it in statements if _is_inside(it, loop)], host)


def kept_buffers(late: Statement, inside: Sequence[Statement]) -> frozenset[str]:
    """Buffers of the others that a late statement reads inside its loop."""
    written = {other.stored.buffer for other in inside if other is not late}
    return frozenset(access.buffer for access in late.accesses if access.buffer in written)


def _check(late: Statement, inside: list[Statement], host: str) -> None:
    names = [statement.name for statement in inside]
    problem = f"{late.name!r} cannot run late in the loops of {host!r}"
    if host not in names[:-1] or names[-1] != late.name:
        raise InvalidValueError(f"{problem}: it is not the last statement of one loop around both")
    kept = kept_buffers(late, inside)
    for statement in inside[: names.index(host) + 1]:
        buffer = statement.stored.buffer
        if buffer in kept:
            raise InvalidValueError(f"{problem}: {statement.name!r} overwrites {buffer!r} before")


def _is_inside(statement: Statement, loop: str) -> bool:
    return any(other.name == loop for other in statement.loops)


@per_sketch
def derive_nest(sketch: Sketch) -> LoopNest:
    """The loop nest of ``sketch`` with extents as expressions of its parameters.

    Raises:
        InvalidValueError: a step names a stage or loop that does not exist, or the schedule is a
            compiler's own.
    """
    if sketch.is_opaque:
        raise InvalidValueError(
            f"sketch {sketch.name!r} has no symbolic loop nest: its schedule is the compiler's "
            "own; models and strategies that read the nest work in the built-in space 'sketch'"
        )
    derivation = _Derivation(sketch)
    for step in sketch.core_steps:
        try:
            derivation.apply(step)
        except (KeyError, ValueError) as error:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: {step} names what does not exist: {error}"
            ) from error
    try:
        nest = emit_nest(derivation.workload, derivation.schedules)
    except (KeyError, ValueError) as error:
        raise InvalidValueError(
            f"sketch {sketch.name!r}: its steps name what does not exist: {error}"
        ) from error
    check_pipelines(nest.statements)
    return nest


_MARKS = (SoftwarePipeline, UnrollLimit, Vectorize, Unroll, Tensorize, WarpTensorize)
"""Steps that say how loops run, and move none."""


class _Derivation:
    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.workload = sketch.workload
        self.schedules: dict[str, StageSchedule] = {}
        for stage in self.workload.stages:
            self._start(stage)

    def _start(self, stage: Stage) -> None:
        extents = {axis.name: const(axis.extent) for axis in stage.axes}
        loops = {
            f"{name}.0": Loop(f"{stage.name}.{name}.0", extent, ((name, extent),))
            for name, extent in extents.items()
        }
        self.schedules[stage.name] = StageSchedule(stage, stage.body, extents, loops, list(loops))

    def apply(self, step: Any) -> None:
        check_scan(step, self.workload)
        if isinstance(step, OpenStep):
            step.derive(self.schedules)
            return
        if isinstance(step, Inline):
            self._inline(step)
            return
        if isinstance(step, (SplitReduction, ChunkReduction, ChunkScan, Im2col)):
            self._rewrite(step)
            return
        schedule = self.schedules[step.stage]
        if isinstance(step, _MARKS):
            self._mark_loops(schedule, step)
        elif isinstance(step, PadExtent):
            schedule.extents[step.axis] = step.extent
            schedule.padded.add(step.axis)
        elif isinstance(step, Tile):
            schedule.split(step.axis, step.factors)
        elif isinstance(step, Order):
            schedule.arrange(step.loops)
        elif isinstance(step, Pack):
            schedule.packs.append(step)
        elif isinstance(step, Interleave):
            schedule.interleaved[step.operand] = step
        elif isinstance(step, Prepack):
            self._prepack(schedule, step)
        elif isinstance(step, Accumulate):
            schedule.accumulate = step
            schedule.write_factors = step.write_factors
        elif isinstance(step, FuseConsumer):
            schedule.attached = (step.producer, step.at)
            schedule.fused_after = True
            schedule.write_factors = step.write_factors
        elif isinstance(step, FuseProducer):
            schedule.attached = (step.consumer, step.at)
            schedule.lanes = step.lanes
        elif isinstance(step, Parallel):
            self._fuse(schedule, step.loops, "parallel")
        elif isinstance(step, Bind):
            if step.role not in BIND_ROLES:
                raise ValueError(f"role {step.role!r} is not one of {', '.join(BIND_ROLES)}")
            self._bind(schedule, step)
        elif isinstance(step, CooperativeFetch):
            schedule.fetches.append(step)
        elif isinstance(step, (SharedLayout, CoreMatrices, BulkCopy)):
            self._lay_out(schedule, step)
        elif isinstance(step, PipelineFetches):
            self._pipeline(schedule, step)
        elif isinstance(step, TileCeil):
            schedule.split(step.axis, step.factors)
            schedule.covered.add(step.axis)
        elif isinstance(step, Stream):
            self._stream(schedule, step)
        elif isinstance(step, Prefetch):
            self._prefetch(schedule, step)
        elif isinstance(step, BoundLoop):
            self._bound(schedule, step)

    def _mark_loops(self, schedule: StageSchedule, step: Any) -> None:
        """Note how loops run that stay as they are."""
        if isinstance(step, SoftwarePipeline):
            schedule.pipelined = schedule.loops[step.loop].name, step.inside
        elif isinstance(step, UnrollLimit):
            schedule.unroll_limit = step.limit
        elif isinstance(step, Vectorize):
            self._mark(schedule, (step.loop,), "vectorized")
        elif isinstance(step, Unroll):
            self._mark(schedule, step.loops, "unrolled")
        elif isinstance(step, Tensorize):
            self._mark(schedule, step.loops[:-1], "unrolled")
            self._mark(schedule, step.loops[-1:], "vectorized")
            schedule.intrinsic = step.intrinsic
        elif isinstance(step, WarpTensorize):
            self._mark(schedule, step.loops, "unrolled")
            schedule.intrinsic, schedule.in_fragments = step.intrinsic, True

    def _rewrite(self, step: SplitReduction | ChunkReduction | ChunkScan | Im2col) -> None:
        """Go on with a workload of which some stages are others."""
        if isinstance(step, (ChunkScan, Im2col)):
            workload = self.workload
            self.workload = (
                im2col(workload, step) if isinstance(step, Im2col) else chunk_scan(workload, step)
            )
            changed = [it for it in self.workload.stages if not self._has_begun(it)]
        else:
            self.workload = split_reduction(self.workload, step)
            changed = [self.workload.stage(it) for it in (partial_name(step.stage), step.stage)]
        for stage in changed:
            self._start(stage)

    def _has_begun(self, stage: Stage) -> bool:
        known = self.schedules.get(stage.name)
        return known is not None and known.stage == stage

    def _stream(self, schedule: StageSchedule, step: Stream) -> None:
        """Mark what passes the caches: it moves the same elements in the same loops."""
        if step.stage not in self.workload.outputs:
            raise ValueError(f"{step.stage!r} is no output, and only outputs pass the caches")
        schedule.streams = step.choice

    def _prefetch(self, schedule: StageSchedule, step: Prefetch) -> None:
        """Mark what is asked for early: it is read once all the same."""
        if step.at not in self.schedules[step.consumer].loops:
            raise ValueError(f"{step.consumer!r} has no loop {step.at!r}")
        if not any(tensor.name == step.operand for tensor in self.workload.inputs):
            raise ValueError(f"{step.operand!r} is no input")
        if step.operand not in self.workload.stage(step.stage).reads:
            raise ValueError(f"{step.stage!r} reads no {step.operand!r}")
        loop = self.schedules[step.consumer].loops[step.at].name
        schedule.early = (*schedule.early, EarlyRead(step.operand, loop, step.choice))

    def _bound(self, schedule: StageSchedule, step: BoundLoop) -> None:
        loop = schedule.loops[step.loop]
        schedule.stage.axis(step.axis)
        serial = loop.kind == "serial" and len(loop.parts) == 1
        if not serial or loop.axis == step.axis or loop.axis in schedule.covered:
            raise ValueError(f"{step.loop!r} is no serial loop over whole tiles of another axis")
        if step.scale < 1 or step.stride == 0:
            raise ValueError(f"a scale of {step.scale} is below 1, or a stride of 0")
        values = schedule.stage.axis(loop.axis).extent
        bound = LoopBound(
            *(step.axis, step.offset, step.scale), step.stride, step.least, values=values
        )
        schedule.loops[step.loop] = evolve(loop, bound=bound)

    def _prepack(self, schedule: StageSchedule, step: Prepack) -> None:
        if not is_prepackable(self.workload, schedule.stage, step.operand):
            raise ValueError(f"{step.operand!r} is no constant that only this stage reads, once")
        if not any(pack.operand == step.operand and pack.at is None for pack in schedule.packs):
            raise ValueError(f"no step packs all of {step.operand!r} before")
        schedule.prepacked.add(step.operand)

    def _lay_out(
        self, schedule: StageSchedule, step: SharedLayout | CoreMatrices | BulkCopy
    ) -> None:
        if all(fetch.operand != step.operand for fetch in schedule.fetches):
            raise ValueError(f"no step fetches {step.operand!r} before")
        rank = len(self.workload.tensors[step.operand].shape)
        if isinstance(step, CoreMatrices):
            if step.dim not in range(rank) or rank < 2:
                raise ValueError(f"{step.dim} is none of the dimensions of a matrix")
        elif isinstance(step, BulkCopy):
            if rank < 2 or not any(it.name == step.operand for it in self.workload.inputs):
                raise ValueError(f"{step.operand!r} is no matrix that is an input")
        elif sorted(step.dims) != list(range(rank)):
            raise ValueError(f"{list(step.dims)} is no order of the {rank} dimensions")
        schedule.layouts[step.operand] = step

    def _pipeline(self, schedule: StageSchedule, step: PipelineFetches) -> None:
        if all(fetch.at != step.at for fetch in schedule.fetches):
            raise ValueError(f"no step fetches anything inside {step.at!r} before")
        schedule.fetch_stages[step.at] = step.depth

    def _inline(self, step: Inline) -> None:
        schedule = self.schedules[step.stage]
        schedule.inlined = True
        axes = [axis.name for axis in schedule.stage.spatial_axes]

        def replace(node: ScalarExpr) -> ScalarExpr | None:
            if not isinstance(node, Load) or node.tensor != step.stage:
                return None
            return substitute(schedule.body, dict(zip(axes, node.indices, strict=True)))

        for consumer in self.schedules.values():
            if any(gather.tensor == step.stage for gather in gathers(consumer.body)):
                raise InvalidValueError(
                    f"{step}: stage {consumer.stage.name!r} reads it at indices that are computed"
                )
            if step.stage not in consumer.copied:
                consumer.body = transform(consumer.body, replace)

    def _fuse(self, schedule: StageSchedule, names: tuple[str, ...], kind: str) -> None:
        parts: list[tuple[str, IntExpr]] = []
        units: list[IntExpr | None] = []
        extent = const(1)
        for name in names:
            loop = _unbounded(schedule.loops[name])
            parts.extend(loop.parts)
            units.extend(loop.units or [None] * len(loop.parts))
            extent = extent * loop.extent
        label = "*".join(schedule.loops[name].name for name in names)
        known = tuple(units) if any(unit is not None for unit in units) else ()
        fused = Loop(label, extent, tuple(parts), kind, known)
        schedule.loops.update(dict.fromkeys(names, fused))

    def _bind(self, schedule: StageSchedule, step: Bind) -> None:
        """Both dimensions of threads are of one kind; the last one's neighbours share a warp."""
        kind = step.role.removesuffix("_y")
        self._fuse(schedule, step.loops, kind)
        threads = [loop.name for loop in schedule.ordered_loops if loop.kind == "thread"]
        if kind == "thread" and threads[-1] != schedule.loops[step.loops[0]].name:
            raise ValueError(f"threads in {threads} are bound outermost first, thread_y first")

    def _mark(self, schedule: StageSchedule, names: tuple[str, ...], kind: str) -> None:
        for name in names:
            schedule.loops[name] = evolve(_unbounded(schedule.loops[name]), kind=kind)


def _unbounded(loop: Loop) -> Loop:
    """A loop that may be run otherwise than one iteration after the other."""
    if loop.bound is not None:
        raise ValueError(f"loop {loop.name!r} is bounded, and stays serial")
    return loop


# Each keeps a part of the results, or computes a part of them again.
_OF_A_PART = (
    *(Accumulate, BoundLoop, FuseConsumer, FuseProducer, Inline),
    *(PadExtent, Tensorize, WarpTensorize),
)


def check_scan(step: Any, workload: Workload) -> None:
    """Refuse a step after which results of a scan would not continue those before them.

    Raises:
        InvalidValueError: names the step and what it does to a scan.
    """
    scans = {stage.name: stage.scan_axis for stage in workload.stages}
    if isinstance(step, FuseConsumer) and scans.get(step.producer) is not None:
        raise InvalidValueError(f"{step}: a scan keeps all of its results, not those of a tile")
    axis = scans.get(getattr(step, "stage", ""))
    if axis is None:
        return
    if isinstance(step, _OF_A_PART):
        raise InvalidValueError(f"{step}: a scan is computed whole, and in a buffer of its own")
    if isinstance(step, Order):
        levels = _levels(step.loops, axis.name)
        if levels != sorted(levels):
            raise InvalidValueError(f"{step}: {axis.name!r} is scanned in its order")
    loops: tuple[str, ...] = ()
    if isinstance(step, (Parallel, Bind)):
        loops = step.loops
    elif isinstance(step, Vectorize):
        loops = (step.loop,)
    if _levels(loops, axis.name):
        raise InvalidValueError(f"{step}: {axis.name!r} is scanned in its order, not at once")


def _levels(loops: Iterable[str], axis: str) -> list[int]:
    """Numbers of the levels of an axis, in the order of the loops."""
    parts = (loop.rpartition(".") for loop in loops)
    return [int(level) for name, _, level in parts if name == axis]
