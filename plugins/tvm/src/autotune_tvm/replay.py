"""Replaying the steps of a sketch on a TVM module through ``s_tir.Schedule``.

The table in ``docs/steps`` lists, for every step, the primitives used here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field
from tvm import s_tir, tirx
from tvm.ir import IRModule, TensorLoad
from tvm.tirx import floordiv, floormod

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage, Workload
from autotune.nest import layout_conflict
from autotune.sketches import (
    Accumulate,
    Bind,
    Candidate,
    ChunkReduction,
    CooperativeFetch,
    FuseConsumer,
    FuseProducer,
    Inline,
    Interleave,
    OpenStep,
    Order,
    Pack,
    PadExtent,
    Parallel,
    Prepack,
    SplitReduction,
    Step,
    Tensorize,
    Tile,
    TileCeil,
    Unroll,
    UnrollLimit,
    Vectorize,
    added_axis,
    is_prepackable,
    partial_name,
    split_reduction,
)
from autotune.sketches.intrinsics import find_intrinsic
from autotune_tvm import dot_products
from autotune_tvm.blocks import Block
from autotune_tvm.pad import PaddedBlock, pad_block
from autotune_tvm.pad_reduction import with_padded_reductions
from autotune_tvm.passes.vectorize_full_groups import INTERLEAVED
from autotune_tvm.threads import check_threads

_THREAD_TAGS = {"block": "blockIdx.x", "vthread": "vthread.x", "thread": "threadIdx.x"}
_LOCAL_TAGS = {_THREAD_TAGS["vthread"], _THREAD_TAGS["thread"]}


def schedule(
    module: IRModule,
    candidate: Candidate,
    workload: Workload,
    blocks: Mapping[str, Block] | None = None,
) -> Any:
    """The schedule that results from the candidate's steps on ``module``.

    Everything is done by schedule primitives that survive in the trace, so that the trace alone
    replays it on ``module``; but for split reductions whose lanes do not divide the axis
    (:mod:`autotune_tvm.pad_reduction`).

    Args:
        module: One function ``main``; blocks are found by the names of the stages.
        candidate: Sketch and configuration.
        workload: What the function computes.
        blocks: The block that computes each stage; None where it is called as the stage is, and
            has its axes in the stage's order.

    Raises:
        InvalidSchedule: TVM refuses a step, or elements would not lie as an instruction reads
            them; the message names the step.
    """
    opaque = candidate.sketch.is_opaque
    conflict = None if opaque else layout_conflict(candidate)
    if conflict is not None:
        raise InvalidSchedule(conflict)
    replay = _Replay(workload, candidate.config, dict(blocks or {}))
    try:
        replay.start(with_padded_reductions(module, candidate, workload, replay.known))
        replay.note_groups(candidate.sketch.core_steps)
        replay.pad(candidate.sketch.core_steps)
        replay.name_loops()
        for step in candidate.sketch.core_steps:
            replay.current = step
            replay.apply(step)
        if not opaque:
            replay.finish()
    except KeyError as error:
        raise InvalidSchedule(f"{replay.current}: there is no loop or stage {error}") from error
    except (InvalidValueError, ValueError, TypeError, RuntimeError) as error:
        raise InvalidSchedule(f"{replay.current}: {_first_line(error)}") from error
    return replay.sch


def sorted_schedule(
    module: IRModule, workload: Workload, blocks: Mapping[str, Block] | None = None
) -> tuple[Any, dict[str, Any]]:
    """A schedule in which loops and block variables are in the order of the stages' axes.

    Args:
        module: As of :func:`schedule`.
        workload: What the function computes.
        blocks: As of :func:`schedule`.

    Returns:
        The ``tvm.s_tir.Schedule``, and the block of each stage in it.
    """
    replay = _Replay(workload, {}, dict(blocks or {}))
    replay.start(module)
    return replay.sch, replay.blocks


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if line.startswith(("ScheduleError", "Error message"))]
    return " ".join((wanted or lines or [type(error).__name__])[:2])[:400]


@define(eq=False)
class _Replay:
    """Schedule under construction: blocks by statement, loops by stage and loop name.

    ``placed`` says where the buffers that hold the results of stages are: inside which loop, given
    by its stage and its name. ``groups`` says how copies of operands are interleaved, by stage and
    operand; ``called`` which loops become calls; ``features`` what a target surely has, by the
    stage whose calls need it. ``bound`` says whether any loop is bound to a level of a GPU.
    """

    workload: Workload
    config: Mapping[str, int]
    known: dict[str, Block]
    sch: Any = None
    current: Step | None = None
    blocks: dict[str, Any] = field(factory=dict)
    loops: dict[tuple[str, str], Any] = field(factory=dict)
    padded: dict[str, PaddedBlock] = field(factory=dict)
    order: dict[str, tuple[str, ...]] = field(factory=dict)
    placed: dict[str, tuple[str, str]] = field(factory=dict)
    groups: dict[tuple[str, str], Interleave] = field(factory=dict)
    called: list[Tensorize] = field(factory=list)
    features: dict[str, tuple[str, ...]] = field(factory=dict)
    bound: bool = False

    def value(self, expression: IntExpr) -> int:
        return int(evaluate(expression, self.config))

    def start(self, module: IRModule) -> None:
        """Find the blocks, and bring their loops and variables into the stages' order."""
        self.sch = s_tir.Schedule(module)
        for stage in self.workload.stages:
            known = self.known.get(stage.name)
            block = self.sch.get_sblock(stage.name if known is None else known.name)
            self.blocks[stage.name] = block
            if known is not None:
                names = [axis.name for axis in stage.axes]
                self._sort_axes(block, names, known)

    def _sort_axes(self, block: Any, names: list[str], known: Block) -> None:
        order = [known.loop_axes.index(name) for name in names]
        if order != sorted(order):
            loops = self.sch.get_loops(block)
            self.sch.reorder(*(loops[position] for position in order))
        order = [known.variable_axes.index(name) for name in names]
        if order != sorted(order):
            self.sch.reorder_block_iter_var(block, order)

    def note_groups(self, steps: tuple[Step, ...]) -> None:
        """Note the copies that are interleaved: their layouts are made where they are made."""
        for step in steps:
            if isinstance(step, Interleave):
                self.groups[step.stage, step.operand] = step
            if isinstance(step, Tensorize):
                self.features[step.stage] = find_intrinsic(step.intrinsic).features

    def pad(self, steps: tuple[Step, ...]) -> None:
        """Give padded stages their padded operands and result before anything else is done."""
        by_stage: dict[str, dict[str, int]] = {}
        for step in steps:
            if isinstance(step, PadExtent):
                self.current = step
                extent = self.value(step.extent)
                own = self.workload.stage(step.stage).axis(step.axis).extent
                if extent < own:
                    raise InvalidSchedule(f"{step}: extent {extent} is less than {own}")
                if extent > own:
                    by_stage.setdefault(step.stage, {})[step.axis] = extent
        for name, extents in by_stage.items():
            packed = {
                step.operand
                for step in steps
                if isinstance(step, (Pack, CooperativeFetch)) and step.stage == name
            }
            self._pad_stage(self.workload.stage(name), extents, packed)

    def _pad_stage(self, stage: Stage, extents: dict[str, int], packed: set[str]) -> None:
        buffers = {name: self._buffer_of(name) for name in self.blocks}
        padded = pad_block(self.sch, self.blocks[stage.name], stage, extents, buffers)
        if not set(padded.copies) <= packed:
            missing = ", ".join(sorted(set(padded.copies) - packed))
            raise InvalidSchedule(f"padding {stage.name} needs {missing} to be packed")
        self.padded[stage.name] = padded

    def name_loops(self) -> None:
        """Name the loops of every stage after its axes."""
        for stage, block in self.blocks.items():
            self._name_loops(stage, self.sch.get_loops(block))

    def _name_loops(self, stage: str, loops: list[Any]) -> None:
        axes = self.workload.stage(stage).axes
        for axis, loop in zip(axes, loops, strict=True):
            self.loops[stage, f"{axis.name}.0"] = loop

    def apply(self, step: Step) -> None:
        handlers: dict[type[Any], Any] = {
            Inline: self._inline,
            PadExtent: lambda step: None,
            SplitReduction: self._split_reduction,
            ChunkReduction: self._split_reduction,
            Tile: self._tile,
            Order: self._order,
            Pack: self._pack,
            Interleave: lambda step: None,
            Prepack: self._prepack,
            Accumulate: self._accumulate,
            FuseConsumer: self._fuse_consumer,
            FuseProducer: self._fuse_producer,
            Parallel: self._parallel,
            Vectorize: self._vectorize,
            Unroll: self._unroll,
            Tensorize: self.called.append,
            Bind: self._bind,
            CooperativeFetch: self._fetch,
            TileCeil: self._tile,
            UnrollLimit: self._unroll_limit,
        }
        if isinstance(step, OpenStep):
            step.replay("tvm", self, self.config)
        else:
            handlers[type(step)](step)

    def _prepack(self, step: Prepack) -> None:
        """Nothing changes: what is replayed here is whole, and is split where it is built."""
        if not is_prepackable(self.workload, self.workload.stage(step.stage), step.operand):
            raise InvalidSchedule(f"{step}: it is no constant that only this stage reads, once")

    def _inline(self, step: Inline) -> None:
        self.sch.compute_inline(self.blocks.pop(step.stage))

    def _split_reduction(self, step: SplitReduction | ChunkReduction) -> None:
        stage = self.workload.stage(step.stage)
        reduced = self.loops.pop((step.stage, f"{step.axis}.0"))
        chunked = isinstance(step, ChunkReduction)
        parts = [step.chunks, None] if isinstance(step, ChunkReduction) else [None, step.lanes]
        split = self.sch.split(reduced, parts, preserve_unit_iters=True)
        for block in self.blocks.values():
            if not self.sch.get_loops(block):
                # TVM fails at blocks without loops beside the one that it factors.
                self.sch.add_unit_loop(block)
        partial = self.sch.rfactor(split[0 if chunked else 1], factor_axis=0)
        self.workload = split_reduction(self.workload, step)
        name, lane = partial_name(step.stage), added_axis(step)
        self.blocks[name] = partial
        own = [f"{axis.name}.0" for axis in stage.axes]
        at = own.index(f"{step.axis}.0") + (0 if chunked else 1)
        own[at:at] = [f"{lane}.0"]
        for label, loop in zip(own, self.sch.get_loops(partial), strict=True):
            self.loops[name, label] = loop
        if chunked:
            # What is split once more is in the order of its axes.
            axes = self.workload.stage(name).axes
            self.sch.reorder(*(self.loops[name, f"{axis.name}.0"] for axis in axes))
        final = [f"{axis.name}.0" for axis in stage.spatial_axes] + [f"{lane}.0"]
        for label, loop in zip(final, self.sch.get_loops(self.blocks[step.stage]), strict=True):
            self.loops[step.stage, label] = loop

    def _tile(self, step: Tile | TileCeil) -> None:
        self.split(step.stage, step.axis, [self.value(factor) for factor in step.factors])

    def split(self, stage: str, axis: str, factors: Sequence[int]) -> None:
        """Split the one loop of an axis into ``AXIS.0``, ``AXIS.1``, ..., outermost first."""
        loop = self.loops.pop((stage, f"{axis}.0"))
        for level, part in enumerate(self.sch.split(loop, factors, preserve_unit_iters=True)):
            self.loops[stage, f"{axis}.{level}"] = part

    def _order(self, step: Order) -> None:
        self.order[step.stage] = step.loops
        self.sch.reorder(*(self.loops[step.stage, name] for name in step.loops))

    def _parallel(self, step: Parallel) -> None:
        self.sch.parallel(self._fused(step.stage, step.loops))

    def _bind(self, step: Bind) -> None:
        self.sch.bind(self._fused(step.stage, step.loops), _THREAD_TAGS[step.role])
        self.bound = True

    def _fused(self, stage: str, names: tuple[str, ...]) -> Any:
        """The loop that results from fusing loops of a stage, which all its names then mean."""
        loops = [self.loops[stage, name] for name in names]
        fused = self.sch.fuse(*loops, preserve_unit_iters=True)
        for name in names:
            self.loops[stage, name] = fused
        return fused

    def _copied(self, step: Pack | CooperativeFetch, scope: str) -> tuple[Any, str]:
        """The block that copies an operand, and the name of the buffer that it fills."""
        main = self.blocks[step.stage]
        padded = self.padded.get(step.stage)
        if padded is not None and step.operand in padded.copies:
            copy = padded.copies[step.operand]
            if scope != "global":
                self.sch.set_scope(copy, 0, scope)
        else:
            position = self._read_position(main, self._buffer_of(step.operand))
            copy = self.sch.cache_read(main, position, scope, [main])
        return copy, str(self.sch.get(copy).writes[0].source.name)

    def _pack(self, step: Pack) -> None:
        main = self.blocks[step.stage]
        copy, buffer = self._copied(step, "global")
        if step.block_dim is not None and step.block is not None:
            group = self.groups.get((step.stage, step.operand))
            self._set_layout(main, buffer, step.block_dim, self.value(step.block), group)
        if step.at is not None:
            loop = self.loops[step.stage, step.at]
            self.sch.compute_at(copy, loop, preserve_unit_loops=True)
            own = self._loops_inside(copy, loop)
        else:
            own = self.sch.get_loops(copy)
        *outer, last = own
        if step.lanes > 1:
            rest, vector = self.sch.split(last, [None, step.lanes], preserve_unit_iters=True)
            group = self.groups.get((step.stage, step.operand))
            if group is None or group.dim == len(own) - 1:
                self.sch.vectorize(vector)
            else:
                outer[group.dim] = self._interleave(copy, outer[group.dim], rest, vector, step)
        if step.at is None and outer:
            count = max(1, len(outer) - 1)
            self.sch.parallel(self.sch.fuse(*outer[:count], preserve_unit_iters=True))

    def _interleave(self, copy: Any, rows: Any, rest: Any, vector: Any, step: Pack) -> Any:
        """Copy several vectors at a time into groups; returns the loop over groups of rows."""
        size = self.groups[step.stage, step.operand].size
        groups, row = self.sch.split(rows, [None, size], preserve_unit_iters=True)
        self.sch.reorder(rest, row, vector)
        block = self.sch.get(copy)
        dtype = str(block.writes[0].source.dtype)
        features = self.features.get(step.stage, ())
        name = dot_products.interleaving(dtype, step.lanes, size, features)
        if isinstance(block.body, tirx.BufferStore) and isinstance(block.body.value, TensorLoad):
            self.sch.tensorize(row, name)
        else:
            self.sch.annotate(copy, INTERLEAVED, name)
            self.sch.unroll(row)
            self.sch.vectorize(vector)
        return groups

    def _fetch(self, step: CooperativeFetch) -> None:
        loop = self.loops[step.stage, step.at]
        copy, _ = self._copied(step, "shared")
        self.sch.compute_at(copy, loop, preserve_unit_loops=True)
        elements = self.sch.fuse(*self._loops_inside(copy, loop), preserve_unit_iters=True)
        extents = [None, self.value(step.threads), self.value(step.lanes)]
        _, threads, lanes = self.sch.split(elements, extents, preserve_unit_iters=True)
        self.sch.bind(threads, _THREAD_TAGS["thread"])
        self.sch.vectorize(lanes)

    def _buffer_of(self, tensor: str) -> str:
        """Name of the buffer that holds ``tensor`` in the module."""
        if tensor in self.blocks:
            return str(self.sch.get(self.blocks[tensor]).writes[0].source.name)
        return tensor

    def _read_position(self, block: Any, buffer: str) -> int:
        names = [read.source.name for read in self.sch.get(block).reads]
        return names.index(buffer)

    def _set_layout(
        self, main: Any, buffer: str, dim: int, block: int, group: Interleave | None
    ) -> None:
        position = self._read_position(main, buffer)

        def panels(*indices: Any) -> list[Any]:
            others, inside = list(indices), []
            if group is not None:
                others[group.dim] = floordiv(indices[group.dim], group.size)
                inside = [floormod(indices[group.dim], group.size)]
            blocked = others.pop(dim)
            return [floordiv(blocked, block), *others, floormod(blocked, block), *inside]

        self.sch.transform_layout(main, ("read", position), panels)

    def _loops_inside(self, block: Any, loop: Any) -> list[Any]:
        """Loops around ``block`` that lie inside ``loop``."""
        loops = list(self.sch.get_loops(block))
        outer = self.sch.get(loop).loop_var
        for position, candidate in enumerate(loops):
            if self.sch.get(candidate).loop_var.same_as(outer):
                return loops[position + 1 :]
        raise InvalidSchedule(f"{self.current}: the statement is not inside the loop")

    def _accumulate(self, step: Accumulate) -> None:
        main = self.blocks[step.stage]
        if step.stage in self.padded:
            copy = self.padded[step.stage].write
        else:
            copy = self.sch.cache_write(main, 0, "global")
        self._write_back(copy, self.loops[step.stage, step.at], step.write_factors)
        self.placed[step.stage] = step.stage, step.at

    def _fuse_consumer(self, step: FuseConsumer) -> None:
        if step.producer in self.padded:
            self.sch.compute_inline(self.padded[step.producer].write)
        block = self.blocks[step.stage]
        self._write_back(block, self.loops[step.producer, step.at], step.write_factors)
        self.placed[step.producer] = step.producer, step.at

    def _write_back(self, copy: Any, loop: Any, factors: tuple[IntExpr, ...]) -> None:
        self.sch.reverse_compute_at(copy, loop, preserve_unit_loops=True)
        last = self._loops_inside(copy, loop)[-1]
        values = [self.value(factor) for factor in factors]
        parts = self.sch.split(last, values, preserve_unit_iters=True)
        self.sch.vectorize(parts[-1])

    def _fuse_producer(self, step: FuseProducer) -> None:
        block = self.blocks[step.stage]
        loop = self.loops[step.consumer, step.at]
        self.sch.compute_at(block, loop, preserve_unit_loops=True)
        self.placed[step.stage] = step.consumer, step.at
        own = self._loops_inside(block, loop)
        self._name_loops(step.stage, own)
        if step.lanes > 1:
            rest, vector = self.sch.split(own[-1], [None, step.lanes], preserve_unit_iters=True)
            self.sch.vectorize(vector)
            last = self.workload.stage(step.stage).axes[-1].name
            self.loops[step.stage, f"{last}.0"] = rest

    def _vectorize(self, step: Vectorize) -> None:
        self.sch.vectorize(self.loops[step.stage, step.loop])

    def _unroll(self, step: Unroll) -> None:
        for name in step.loops:
            self.sch.unroll(self.loops[step.stage, name])

    def _unroll_limit(self, step: UnrollLimit) -> None:
        limit = self.value(step.limit)
        if limit > 0:
            outermost = self.sch.get_loops(self.blocks[step.stage])[0]
            self.sch.annotate(outermost, "pragma_auto_unroll_max_step", limit)
            self.sch.annotate(outermost, "pragma_unroll_explicit", 1)

    def finish(self) -> None:
        """Put buffers where their loops are, and hoist the initialisation of reductions."""
        for producer, (owner, at) in self.placed.items():
            scope = self._scope_inside(owner, at)
            if scope != "global":
                self.sch.set_scope(self.blocks[producer], 0, scope)
        for stage in self.workload.stages:
            if stage.reduce_axes and stage.name in self.blocks:
                self._hoist_init(stage)
        for step in self.called:
            self.current = step
            self._tensorize(step)
        if self.bound:
            check_threads(self.sch.mod["main"])

    def _scope_inside(self, stage: str, at: str) -> str:
        """The memory of a buffer that is allocated inside loop ``at`` of ``stage``."""
        innermost = self.loops[stage, at]
        inside = len(self._loops_inside(self.blocks[stage], innermost))
        loops = self.sch.get_loops(self.blocks[stage])
        tags = {self._tag(loop) for loop in loops[: len(loops) - inside]}
        if tags & _LOCAL_TAGS:
            return "local"
        return "shared" if _THREAD_TAGS["block"] in tags else "global"

    def _tag(self, loop: Any) -> str:
        """The level of a GPU that a loop is bound to, as TVM calls it; empty when to none."""
        binding = self.sch.get(loop).thread_binding
        return "" if binding is None else str(binding.thread_tag)

    def _hoist_init(self, stage: Stage) -> None:
        """Move the initialisation of a reduction in front of its reduce loops.

        A reduction across threads keeps it: TVM gives every thread a partial result.
        """
        reduce = {axis.name for axis in stage.reduce_axes}
        names = self.order.get(stage.name, tuple(f"{axis.name}.0" for axis in stage.axes))
        first = next(name for name in names if name.rsplit(".", 1)[0] in reduce)
        loops = [
            loop
            for (owner, name), loop in self.loops.items()
            if owner == stage.name and name.rsplit(".", 1)[0] in reduce
        ]
        if not any(self._tag(loop) for loop in loops):
            main = self.blocks[stage.name]
            init = self.sch.decompose_reduction(main, self.loops[stage.name, first])
            if any(step.stage == stage.name for step in self.called):
                self.sch.vectorize(self.sch.get_loops(init)[-1])

    def _tensorize(self, step: Tensorize) -> None:
        outermost = self.loops[step.stage, step.loops[0]]
        name = dot_products.registered(step.intrinsic, self._row_step(step))
        self.sch.tensorize(outermost, name)

    def _row_step(self, step: Tensorize) -> int:
        """Rows of the left factor between two that follow each other in a call."""
        intrinsic = find_intrinsic(step.intrinsic)
        if len(intrinsic.spatial_axes) < 2:
            return 1
        stage = self.workload.stage(step.stage)
        row, vector = (axis.name for axis in stage.spatial_axes[-2:])
        for load in stage.loads:
            forms = stage.access_map(load)
            if not any(vector in form.coefficients for form in forms):
                return max(form.coefficients.get(row, 0) for form in forms)
        raise InvalidSchedule(f"{step}: no operand is the same for all lanes")
