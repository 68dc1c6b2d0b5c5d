"""Replaying the steps of a sketch on a TVM module through ``s_tir.Schedule``.

The table in ``docs/steps`` lists, for every step, the primitives used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm.tirx import IndexMap, floordiv, floormod
from tvm.tirx.analysis import undefined_vars

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.lower.instructions.fetches import COPIED_BYTES, MOST_STAGES
from autotune.nest import layout_conflict
from autotune.sketches import (
    TERMS,
    Accumulate,
    Bind,
    BoundLoop,
    BulkCopy,
    Candidate,
    ChunkReduction,
    CooperativeFetch,
    CoreMatrices,
    FuseConsumer,
    FuseProducer,
    Group,
    Im2col,
    Inline,
    MatrixForm,
    OpenStep,
    Order,
    Pack,
    PadExtent,
    Parallel,
    PipelineFetches,
    Prefetch,
    Prepack,
    SharedLayout,
    SoftwarePipeline,
    SplitReduction,
    Step,
    Stream,
    Tile,
    TileCeil,
    Unroll,
    UnrollLimit,
    Vectorize,
    WarpTensorize,
    added_axis,
    columns_name,
    im2col,
    is_prepackable,
    is_uneven,
    matrix_form,
    partial_name,
    split_reduction,
    weights_name,
)
from autotune.sketches.copy_engine import SWIZZLED_ROW_BYTES, VECTOR_BYTES
from autotune_tvm.blocks import Block
from autotune_tvm.passes.bulk_copies import BULK
from autotune_tvm.passes.pipeline_fetches import AHEAD, STAGES
from autotune_tvm.passes.statements import statements
from autotune_tvm.scans import opened
from autotune_tvm.schedule_state import (
    THREAD_TAGS,
    FetchedCopy,
    ScheduleState,
    declare_read,
    pad_block,
    undeclare_reads,
)
from autotune_tvm.warp_products import lay_out_fragments, make_warp_call

# Of buffers that begin at multiples of 64 bytes, as many as any compiler places by itself.
_STATIC_BYTES = 48 * 1024 - 2 * 63


def pad_stages(state: ScheduleState, steps: tuple[Step, ...]) -> None:
    """Give padded stages their padded operands and result before anything else is done."""
    by_stage: dict[str, dict[str, int]] = {}
    for step in steps:
        if isinstance(step, PadExtent):
            state.current = step
            extent = state.value(step.extent)
            own = state.workload.stage(step.stage).axis(step.axis).extent
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
        _pad_stage(state, state.workload.stage(name), extents, packed)


def pack(state: ScheduleState, step: Pack) -> None:
    """Copy an operand in front of its stage, or inside one of the stage's loops."""
    main = state.blocks[step.stage]
    copy, buffer = _copied(state, step, "global")
    if step.block_dim is not None and step.block is not None:
        _set_layout(state, main, buffer, step.block_dim, state.value(step.block))
    if step.at is not None:
        loop = state.loops[step.stage, step.at]
        state.sch.compute_at(copy, loop, preserve_unit_loops=True)
        own = state.loops_inside(copy, loop)
    else:
        own = state.sch.get_loops(copy)
    *outer, last = own
    if step.lanes > 1:
        _, vector = state.sch.split(last, [None, step.lanes], preserve_unit_iters=True)
        state.sch.vectorize(vector)
    if step.at is None and outer:
        count = max(1, len(outer) - 1)
        state.sch.parallel(state.sch.fuse(*outer[:count], preserve_unit_iters=True))


def fetch(state: ScheduleState, step: CooperativeFetch) -> None:
    """Let the threads of a block copy an operand to its shared memory."""
    loop = state.loops[step.stage, step.at]
    copy, _ = _copied(state, step, "shared")
    state.sch.compute_at(copy, loop, preserve_unit_loops=True)
    own = state.loops_inside(copy, loop)
    region = tuple(int(state.sch.get(loop).extent) for loop in own)
    lanes = state.value(step.lanes)
    size = state.workload.tensors[step.operand].element.bytes
    state.fetched[step.stage, step.operand] = FetchedCopy(
        copy, region, step.at, lanes * size, math.prod(region) * size
    )
    elements = state.sch.fuse(*own, preserve_unit_iters=True)
    extents = [None, state.value(step.threads), lanes]
    _, threads, vectors = state.sch.split(elements, extents, preserve_unit_iters=True)
    state.sch.bind(threads, THREAD_TAGS["thread"])
    state.sch.vectorize(vectors)


def _fetched(state: ScheduleState, step: SharedLayout | CoreMatrices | BulkCopy) -> FetchedCopy:
    if (step.stage, step.operand) not in state.fetched:
        raise InvalidSchedule(f"{step}: no step fetches {step.operand} before")
    return state.fetched[step.stage, step.operand]


def _lengthen(
    state: ScheduleState, step: SharedLayout | CoreMatrices, dim: int, pad: int, width: int = 1
) -> None:
    """Let ``pad`` more elements of a dimension, ``width`` times each, follow its own."""
    fetched = state.fetched[step.stage, step.operand]
    own = fetched.region[dim]
    state.sch.storage_align(fetched.block, 0, len(fetched.region) - 2, (own + pad) * width, 0)
    whole = fetched.allocated_bytes // own * (own + pad)
    state.fetched[step.stage, step.operand] = evolve(fetched, allocated_bytes=whole)


def lay_out(state: ScheduleState, step: SharedLayout) -> None:
    """Order the dimensions of a fetched copy, and let so many elements follow each row."""
    fetched = _fetched(state, step)
    copy, region = fetched.block, fetched.region
    if sorted(step.dims) != list(range(len(region))):
        raise InvalidSchedule(f"{step}: dims are no order of {len(region)} dimensions")
    if step.dims != tuple(range(len(region))):
        state.layouts[step.stage, step.operand] = step.dims

        def laid_out(*indices: Any) -> list[Any]:
            return [indices[dimension] for dimension in step.dims]

        state.sch.transform_layout(copy, ("write", 0), laid_out)
    pad = state.value(step.pad)
    if pad < 0 or (pad and len(region) < 2):
        raise InvalidSchedule(
            f"{step}: rows of {len(region)} dimensions cannot be padded by {pad}"
        )
    if pad:
        _lengthen(state, step, step.dims[-1], pad)


def lay_out_cores(state: ScheduleState, step: CoreMatrices) -> None:
    """Lay a fetched copy out in core matrices, and let so many rows follow those of each plane."""
    fetched = _fetched(state, step)
    copy, region = fetched.block, fetched.region
    others = tuple(dimension for dimension in range(len(region)) if dimension != step.dim)
    if len(others) != len(region) - 1 or not others:
        raise InvalidSchedule(
            f"{step}: {step.dim} is none of {len(region)} dimensions of a matrix"
        )
    if region[step.dim] % step.width:
        raise InvalidSchedule(f"{step}: {region[step.dim]} elements are no rows of {step.width}")
    pad = state.value(step.pad)
    if pad < 0:
        raise InvalidSchedule(f"{step}: planes cannot be padded by {pad} rows")
    state.layouts[step.stage, step.operand] = (*others, step.dim)

    def laid_out(*indices: Any) -> list[Any]:
        own = indices[step.dim]
        outer = [indices[dimension] for dimension in others]
        return [floordiv(own, step.width), *outer, floormod(own, step.width)]

    state.sch.transform_layout(copy, ("write", 0), laid_out)
    if pad:
        _lengthen(state, step, others[-1], pad, step.width)


def lay_out_bulk(state: ScheduleState, step: BulkCopy) -> None:
    """Lay a fetched copy out in panels of rows, for the pass that has the copy engine make it."""
    fetched = _fetched(state, step)
    row, region = state.value(step.row), fetched.region
    row_bytes = row * state.workload.tensors[step.operand].element.bytes
    if row_bytes not in SWIZZLED_ROW_BYTES or region[-1] % row or len(region) < 2:
        raise InvalidSchedule(
            f"{step}: a region of {region} has no rows of {row_bytes} bytes; allowed: "
            f"{', '.join(map(str, SWIZZLED_ROW_BYTES))}"
        )
    state.layouts[step.stage, step.operand] = tuple(range(len(region)))
    state.rows[step.stage, step.operand] = row_bytes

    width = VECTOR_BYTES * row // row_bytes

    def laid_out(*indices: Any) -> list[Any]:
        # Vectors are a dimension of their own: TVM sees then which of them lanes have in common.
        *outer, last = indices
        vector, vectors = floordiv(last, width), row // width
        return [
            floordiv(vector, vectors),
            *outer,
            floormod(vector, vectors),
            floormod(last, width),
        ]

    state.sch.transform_layout(fetched.block, ("write", 0), laid_out)
    state.sch.annotate(fetched.block, BULK, [row, *region])


def pipeline(state: ScheduleState, step: PipelineFetches) -> None:
    """Mark copies that are made ahead of time, for passes that follow the schedule.

    More memory than a block has without asking is asked for when the kernel is launched.
    """
    depth, loop = state.value(step.depth), state.loops[step.stage, step.at]
    rounds = int(state.sch.get(loop).extent)
    if not 1 <= depth <= min(rounds, MOST_STAGES):
        raise InvalidSchedule(
            f"{step}: a loop of {rounds} iterations has no {depth} stages; at most {MOST_STAGES}"
        )
    copies = {
        operand: copy
        for (stage, operand), copy in state.fetched.items()
        if (stage, copy.at) == (step.stage, step.at)
    }
    bulk = any((step.stage, operand) in state.rows for operand in copies)
    taken = depth * sum(copy.allocated_bytes for copy in copies.values())
    # What the copy engine fills begins where it has to in memory that is asked for.
    if bulk or taken > _STATIC_BYTES:
        for copy in copies.values():
            state.sch.set_scope(copy.block, 0, "shared.dyn")
    if depth == 1:
        if bulk:
            raise InvalidSchedule(f"{step}: bulk copies are made ahead, in 2 stages or more")
        return
    for operand, copy in copies.items():
        if copy.vector_bytes not in COPIED_BYTES:
            raise InvalidSchedule(
                f"{step}: vectors of {copy.vector_bytes} bytes of {operand} are not copied "
                f"asynchronously; those of {', '.join(map(str, COPIED_BYTES))} are"
            )
        state.sch.annotate(copy.block, AHEAD, 1)
    state.sch.annotate(loop, STAGES, depth)


def _pad_stage(
    state: ScheduleState, stage: Stage, extents: dict[str, int], packed: set[str]
) -> None:
    buffers = {name: state.buffer_of(name) for name in state.blocks}
    padded = pad_block(state.sch, state.blocks[stage.name], stage, extents, buffers)
    if not set(padded.copies) <= packed:
        missing = ", ".join(sorted(set(padded.copies) - packed))
        raise InvalidSchedule(f"padding {stage.name} needs {missing} to be packed")
    state.padded[stage.name] = padded


def _copied(state: ScheduleState, step: Pack | CooperativeFetch, scope: str) -> tuple[Any, str]:
    """The block that copies an operand, and the name of the buffer that it fills."""
    main = state.blocks[step.stage]
    padded = state.padded.get(step.stage)
    if padded is not None and step.operand in padded.copies:
        copy = padded.copies[step.operand]
        if scope != "global":
            state.sch.set_scope(copy, 0, scope)
    else:
        position = state.read_position(main, state.buffer_of(step.operand))
        copy = state.sch.cache_read(main, position, scope, [main])
    return copy, str(state.sch.get(copy).writes[0].source.name)


def _set_layout(state: ScheduleState, main: Any, buffer: str, dim: int, block: int) -> None:
    position = state.read_position(main, buffer)

    def panels(*indices: Any) -> list[Any]:
        others = list(indices)
        blocked = others.pop(dim)
        return [floordiv(blocked, block), *others, floormod(blocked, block)]

    state.sch.transform_layout(main, ("read", position), panels)


def split_blocks(state: ScheduleState, step: SplitReduction | ChunkReduction) -> None:
    """Make a block of partial results, of lanes or of chunks; the old one sums them up.

    Raises:
        InvalidSchedule: lanes do not divide the axis: TVM drops the condition that this needs.
    """
    if isinstance(step, SplitReduction) and is_uneven(state.workload, step):
        raise InvalidSchedule(
            f"{step}: TVM's schedules split what {step.lanes} lanes divide, and they do not "
            f"divide axis {step.axis!r}"
        )
    stage = state.workload.stage(step.stage)
    reduced = state.loops.pop((step.stage, f"{step.axis}.0"))
    chunked = isinstance(step, ChunkReduction)
    parts = [step.chunks, None] if isinstance(step, ChunkReduction) else [None, step.lanes]
    split = state.sch.split(reduced, parts, preserve_unit_iters=True)
    for block in state.blocks.values():
        if not state.sch.get_loops(block):
            # TVM fails at blocks without loops beside the one that it factors.
            state.sch.add_unit_loop(block)
    partial = state.sch.rfactor(split[0 if chunked else 1], factor_axis=0)
    state.workload = split_reduction(state.workload, step)
    name, lane = partial_name(step.stage), added_axis(step)
    state.blocks[name] = partial
    own = [f"{axis.name}.0" for axis in stage.axes]
    at = own.index(f"{step.axis}.0") + (0 if chunked else 1)
    own[at:at] = [f"{lane}.0"]
    for label, loop in zip(own, state.sch.get_loops(partial), strict=True):
        state.loops[name, label] = loop
    if chunked:
        # What is split once more is in the order of its axes.
        axes = state.workload.stage(name).axes
        state.sch.reorder(*(state.loops[name, f"{axis.name}.0"] for axis in axes))
    spatial = [f"{axis.name}.0" for axis in stage.spatial_axes]
    final = [label for label in own if label in (*spatial, f"{lane}.0")]
    for label, loop in zip(final, state.sch.get_loops(state.blocks[step.stage]), strict=True):
        state.loops[step.stage, label] = loop
    if final[-1] != f"{lane}.0":
        state.sch.reorder(*(state.loops[step.stage, label] for label in (*spatial, f"{lane}.0")))


def split_for_warps(state: ScheduleState, steps: tuple[Step, ...]) -> list[Step]:
    """Split the reductions whose parts warps compute: blocks of these change before all others."""
    computed = {step.stage for step in steps if isinstance(step, WarpTensorize)}
    found: list[Step] = []
    for step in steps:
        if isinstance(step, (SplitReduction, ChunkReduction)):
            if partial_name(step.stage) not in computed:
                continue
            state.current = step
            state.name_loops()
            split_blocks(state, step)
            found.append(step)
    return found


__all__ = ["schedule", "sorted_schedule"]


def schedule(
    module: IRModule,
    candidate: Candidate,
    workload: Workload,
    blocks: Mapping[str, Block] | None = None,
) -> Any:
    """The schedule that results from the candidate's steps on ``module``.

    Everything is done by schedule primitives that survive in the trace, so that the trace alone
    replays it on ``module``, but for scans (:mod:`autotune_tvm.scans`).

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
    if not opaque:
        _check_nest(candidate)
    state = ScheduleState(workload, candidate.config, dict(blocks or {}))
    try:
        scans = not opaque and any(stage.scan_axis for stage in workload.stages)
        state.start(opened(module) if scans else module)
        make_matrices(state, candidate.sketch.core_steps)
        split = split_for_warps(state, candidate.sketch.core_steps)
        pad_stages(state, candidate.sketch.core_steps)
        lay_out_fragments(state, candidate.sketch.core_steps)
        state.name_loops()
        for step in candidate.sketch.core_steps:
            state.current = step
            if step not in split:
                _apply(state, step)
        if not opaque:
            _finish(state)
    except KeyError as error:
        raise InvalidSchedule(f"{state.current}: there is no loop or stage {error}") from error
    except (InvalidValueError, ValueError, TypeError, RuntimeError) as error:
        raise InvalidSchedule(f"{state.current}: {_first_line(error)}") from error
    return state.sch


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
    state = ScheduleState(workload, {}, dict(blocks or {}))
    state.start(module)
    return state.sch, state.blocks


def _check_nest(candidate: Candidate) -> None:
    """Refuse what replays without a complaint, and computes something else.

    Raises:
        InvalidSchedule: elements do not lie as an instruction reads them.
    """
    conflict = layout_conflict(candidate)
    if conflict is not None:
        raise InvalidSchedule(conflict)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if line.startswith(("ScheduleError", "Error message"))]
    return " ".join((wanted or lines or [type(error).__name__])[:2])[:400]


def _apply(state: ScheduleState, step: Step) -> None:
    if isinstance(step, OpenStep):
        step.replay("tvm", state, state.config)
    elif not isinstance(step, _DONE):
        _HANDLERS[type(step)](state, step)


def _prepack(state: ScheduleState, step: Prepack) -> None:
    """Nothing changes: what is replayed here is whole, and is split where it is built."""
    if not is_prepackable(state.workload, state.workload.stage(step.stage), step.operand):
        raise InvalidSchedule(f"{step}: it is no constant that only this stage reads, once")


def _inline(state: ScheduleState, step: Inline) -> None:
    state.sch.compute_inline(state.blocks.pop(step.stage))


def _tile(state: ScheduleState, step: Tile | TileCeil) -> None:
    state.split(step.stage, step.axis, [state.value(factor) for factor in step.factors])


def _order(state: ScheduleState, step: Order) -> None:
    state.order[step.stage] = step.loops
    loops = [state.loops[step.stage, name] for name in step.loops]
    # Neighbours that were fused are one loop.
    fused = [at > 0 and loop.same_as(loops[at - 1]) for at, loop in enumerate(loops)]
    state.sch.reorder(*(loop for loop, is_known in zip(loops, fused, strict=True) if not is_known))


def _parallel(state: ScheduleState, step: Parallel) -> None:
    state.sch.parallel(state.fuse(step.stage, step.loops))


def _bind(state: ScheduleState, step: Bind) -> None:
    state.sch.bind(state.fuse(step.stage, step.loops), THREAD_TAGS[step.role])
    state.bound = True


def _accumulate(state: ScheduleState, step: Accumulate) -> None:
    main = state.blocks[step.stage]
    own = _copies_of_result(state, step.stage)
    copy = _collected(state, step.stage)
    if copy is None:
        copy = own.pop(0) if own else state.sch.cache_write(main, 0, "global")
    _write_back(state, copy, state.loops[step.stage, step.at], step.write_factors)
    if own:
        *between, last = own
        for block in between:
            state.sch.compute_inline(block)
        _write_through(state, last)
    state.placed[step.stage] = step.stage, step.at


def _fuse_consumer(state: ScheduleState, step: FuseConsumer) -> None:
    for copy in _copies_of_result(state, step.producer):
        state.sch.compute_inline(copy)
    consumer = state.blocks[step.stage]
    collected = _collected(state, step.producer)
    if collected is not None:
        state.blocks[step.stage] = collected
    block = state.blocks[step.stage]
    _write_back(state, block, state.loops[step.producer, step.at], step.write_factors)
    if collected is not None:
        _write_through(state, consumer)
    state.placed[step.producer] = step.producer, step.at


def _collected(state: ScheduleState, stage: str) -> Any | None:
    """The block that writes results where they have other axes than what is written there.

    What threads of a warp have, or a product of matrices; None for all other stages.
    """
    if stage in state.warps:
        return state.warps[stage].write
    if stage in state.matrices:
        return state.sch.cache_write(state.blocks[stage], 0, "global")
    return None


def _copies_of_result(state: ScheduleState, stage: str) -> list[Any]:
    """The blocks that copy a result to where others read it, one after the other."""
    padded = [state.padded[stage].write] if stage in state.padded else []
    return [*padded, *([state.matrices[stage]] if stage in state.matrices else [])]


def _write_through(state: ScheduleState, consumer: Any) -> None:
    """Let the block that writes what threads collected compute its one consumer instead.

    The block is where its loops are by then: TVM would forget the condition that nothing is
    written beyond the consumer's extents while it moves a block.
    """
    state.sch.reverse_compute_inline(consumer)


def _write_back(state: ScheduleState, copy: Any, loop: Any, factors: tuple[IntExpr, ...]) -> None:
    state.sch.reverse_compute_at(copy, loop, preserve_unit_loops=True)
    *others, last = state.loops_inside(copy, loop)
    if any(copy is warp.write for warp in state.warps.values()):
        # Each level has a loop already. Registers have no addresses: indices must be constants.
        for other in others:
            state.sch.unroll(other)
        state.sch.vectorize(last)
        return
    values = [state.value(factor) for factor in factors]
    parts = state.sch.split(last, values, preserve_unit_iters=True)
    state.sch.vectorize(parts[-1])


def _fuse_producer(state: ScheduleState, step: FuseProducer) -> None:
    block = state.blocks[step.stage]
    loop = state.loops[step.consumer, step.at]
    state.sch.compute_at(block, loop, preserve_unit_loops=True)
    state.placed[step.stage] = step.consumer, step.at
    own = state.loops_inside(block, loop)
    state.name_axes(step.stage, own)
    if step.lanes > 1:
        rest, vector = state.sch.split(own[-1], [None, step.lanes], preserve_unit_iters=True)
        state.sch.vectorize(vector)
        last = state.workload.stage(step.stage).axes[-1].name
        state.loops[step.stage, f"{last}.0"] = rest


def _vectorize(state: ScheduleState, step: Vectorize) -> None:
    state.sch.vectorize(state.loops[step.stage, step.loop])


def _unroll(state: ScheduleState, step: Unroll) -> None:
    for name in step.loops:
        state.sch.unroll(state.loops[step.stage, name])


def _unroll_limit(state: ScheduleState, step: UnrollLimit) -> None:
    limit = state.value(step.limit)
    if limit > 0:
        outermost = state.sch.get_loops(state.blocks[step.stage])[0]
        state.sch.annotate(outermost, "pragma_auto_unroll_max_step", limit)
        state.sch.annotate(outermost, "pragma_unroll_explicit", 1)


def _note_warp_call(state: ScheduleState, step: WarpTensorize) -> None:
    """Calls are made last, of loops that nothing else is done with."""
    state.warp_calls.append(step)


_DONE = (PadExtent, Im2col, Stream, SoftwarePipeline, Prefetch, BoundLoop)
"""Steps that are done before the others, as for matrices and padding, or are none of TVM's: what a
processor is asked for early, what passes the caches, which iterations are left out and which are
pipelined changes no result."""

_HANDLERS: Mapping[type[Any], Callable[[ScheduleState, Any], None]] = {
    Inline: _inline,
    SplitReduction: split_blocks,
    ChunkReduction: split_blocks,
    Tile: _tile,
    Order: _order,
    Pack: pack,
    Prepack: _prepack,
    Accumulate: _accumulate,
    FuseConsumer: _fuse_consumer,
    FuseProducer: _fuse_producer,
    Parallel: _parallel,
    Vectorize: _vectorize,
    Unroll: _unroll,
    WarpTensorize: _note_warp_call,
    Bind: _bind,
    CooperativeFetch: fetch,
    SharedLayout: lay_out,
    PipelineFetches: pipeline,
    CoreMatrices: lay_out_cores,
    BulkCopy: lay_out_bulk,
    TileCeil: _tile,
    UnrollLimit: _unroll_limit,
}


def _finish(state: ScheduleState) -> None:
    """Put buffers where their loops are, and hoist the initialisation of reductions."""
    for producer, (owner, at) in state.placed.items():
        scope = state.scope_inside(owner, at)
        if scope != "global":
            state.sch.set_scope(state.blocks[producer], 0, scope)
    for stage in state.workload.stages:
        if stage.reduce_axes and stage.name in state.blocks:
            _hoist_init(state, stage)
    for warp_step in state.warp_calls:
        state.current = warp_step
        make_warp_call(state, warp_step)
    if state.bound:
        bind_numbers(state)
        check_threads(state.sch.mod["main"])


def _hoist_init(state: ScheduleState, stage: Stage) -> None:
    """Move the initialisation of a reduction in front of its reduce loops.

    A reduction across threads keeps it: TVM gives every thread a partial result.
    """
    reduce = {axis.name for axis in stage.reduce_axes}
    names = state.order.get(stage.name, tuple(f"{axis.name}.0" for axis in stage.axes))
    first = next(name for name in names if name.rsplit(".", 1)[0] in reduce)
    loops = [
        loop
        for (owner, name), loop in state.loops.items()
        if owner == stage.name and name.rsplit(".", 1)[0] in reduce
    ]
    if not any(state.tag(loop) for loop in loops):
        main = state.blocks[stage.name]
        init = state.sch.decompose_reduction(main, state.loops[stage.name, first])
        for step in state.warp_calls:
            if step.stage == stage.name:
                # The same loops but for those of the reduction.
                for loop in state.sch.get_loops(init)[1 - len(step.loops) :]:
                    state.sch.unroll(loop)


def make_matrices(state: ScheduleState, steps: tuple[Step, ...]) -> None:
    """Turn stages into products of matrices, before anything else is done with them."""
    computed = {step.stage for step in steps if isinstance(step, WarpTensorize)}
    for step in steps:
        if isinstance(step, Im2col):
            state.current = step
            if not computed & {step.stage, partial_name(step.stage)}:
                raise InvalidSchedule(f"{step}: no warps compute {step.stage}")
            _make_matrices(state, step)


def _make_matrices(state: ScheduleState, step: Im2col) -> None:
    form = matrix_form(state.workload.stage(step.stage))
    made = im2col(state.workload, step)
    stage, block = form.stage, state.blocks[step.stage]
    product = made.stage(stage.name)
    if form.group is not None:
        _split_channels(state, block, form.group)
        _declare_groups(state, block, form.data.tensor)
    for name in (columns_name(stage.name), weights_name(stage.name)):
        (source,) = made.stage(name).reads
        position = state.read_position(block, state.buffer_of(source))
        region = state.sch.get(block).reads[position].region
        index_map = _index_map(state, form, made.stage(name).axes, region)
        copy = state.sch.reindex_cache_read(block, position, "global", index_map)
        state.blocks[name] = copy
    if form.group is not None:
        undeclare_reads(state.sch, block)
    region = state.sch.get(block).writes[0].region
    index_map = _index_map(state, form, product.spatial_axes, region)
    state.matrices[stage.name] = state.sch.reindex_cache_write(block, 0, "global", index_map)
    state.sch.transform_block_layout(block, _index_map(state, form, product.axes))
    known = {other.name: other for other in state.workload.stages}
    state.reshaped |= {
        other.name
        for other in made.stages
        if other.name != stage.name and other != known.get(other.name)
    }
    state.workload = made


def _split_channels(state: ScheduleState, block: Any, group: Group) -> None:
    """Give a block a variable for groups of channels, and one for those of a group."""

    def split(*indices: Any) -> list[Any]:
        place = group.position
        number = [indices[place] // group.size, indices[place] % group.size]
        return [*indices[:place], *number, *indices[place + 1 :]]

    count, dtype = _variables(state, block)
    index_map = IndexMap.from_func(split, ndim=count, index_dtype=dtype)
    state.sch.transform_block_layout(block, index_map)


def _declare_groups(state: ScheduleState, block: Any, data: str) -> None:
    """Say that data are read at the number of a group, and not at a quotient that is this number.

    TVM leaves the quotient beside sums, as those of windows are.
    """
    known = state.sch.get(block)
    analyzer = Analyzer()
    for variable in known.iter_vars:
        analyzer.bind(variable.var, variable.dom)
    position = state.read_position(block, state.buffer_of(data))
    places = [analyzer.simplify(it.min) for it in known.reads[position].region]
    bounds = [bound for place in places for bound in (place, place + 1)]
    declare_read(state.sch, block, position, bounds)


def _variables(state: ScheduleState, block: Any) -> tuple[int, str]:
    """Number of variables of a block, and their type."""
    variables = state.sch.get(block).iter_vars
    return len(variables), str(variables[0].var.ty.dtype)


def _index_map(
    state: ScheduleState, form: MatrixForm, dims: tuple[Axis, ...], region: Any = None
) -> IndexMap:
    """The place in a matrix with axes ``dims`` of a point of the stage.

    Axes of one value have a part in it exactly where they have one in ``region``, as TVM asks.
    """
    variables = state.sch.get(state.blocks[form.stage.name]).iter_vars
    count, dtype = _variables(state, state.blocks[form.stage.name])
    numbered = {**form.axes_of(form.stage), TERMS: form.stage.reduce_axes}
    parts = [list(numbered[axis.name]) for axis in dims]
    if region is not None:
        used = [var for it in region for var in undefined_vars(it.min, [])]
        read = [
            axis
            for axis, own in zip(form.stage.axes, variables, strict=True)
            if any(own.var.same_as(other) for other in used)
        ]
        parts = [[axis for axis in part if axis.extent > 1 or axis in read] for part in parts]
        known = [axis for part in parts for axis in part]
        parts[0][:0] = [axis for axis in read if axis.extent == 1 and axis not in known]

    def number(axes: Sequence[Axis], values: Mapping[str, Any]) -> Any:
        found: Any = tirx.IntImm(dtype, 0)
        for axis in axes:
            found = found * axis.extent + values[axis.name]
        return found

    def index(*indices: Any) -> list[Any]:
        names = (axis.name for axis in form.stage.axes)
        values = dict(zip(names, indices, strict=True))
        return [number(part, values) for part in parts]

    return IndexMap.from_func(index, ndim=count, index_dtype=dtype)


def bind_numbers(state: ScheduleState) -> None:
    """Make a block of each kernel that computes a single number, where no loop is one.

    What no loop is around runs on the host otherwise, and of a reduction across threads alone TVM
    gives all threads one partial result, in memory that they share.
    """
    for stage in state.workload.stages:
        block = None if stage.spatial_axes else state.blocks.get(stage.name)
        if block is None:
            continue
        loops = list(state.sch.get_loops(block))
        if not any(state.tag(loop).startswith("blockIdx") for loop in loops):
            around = state.sch.add_unit_loop(loops[0] if loops else block)
            state.sch.bind(around, THREAD_TAGS["block"])


def check_threads(function: tirx.PrimFunc) -> None:
    """Check every kernel of a scheduled function.

    Raises:
        InvalidSchedule: a statement runs on the host, or the threads of one kernel are of
            several numbers.
    """
    body = function.body.block.body
    for kernel in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        extents: dict[str, int] = {}
        inside = list(statements(kernel))
        bound = (it for it in inside if isinstance(it, tirx.For) and it.thread_binding is not None)
        for loop in bound:
            tag, extent = str(loop.thread_binding.thread_tag), int(loop.extent)
            if extents.setdefault(tag, extent) != extent:
                raise InvalidSchedule(
                    f"one kernel has {tag} of {extents[tag]} and of {extent}: loops bound to the "
                    "threads of a block have one extent"
                )
        if not extents:
            names = (str(it.name_hint) for it in inside if isinstance(it, SBlock))
            name = next(names, "a statement")
            raise InvalidSchedule(f"no loop around {name} is bound to blocks or threads")
