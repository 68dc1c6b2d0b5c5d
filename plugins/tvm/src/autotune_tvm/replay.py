"""Replaying the steps of a sketch on a TVM module through ``s_tir.Schedule``.

The table in ``docs/steps`` lists, for every step, the primitives used here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm.ir import IRModule

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.ir.workloads import Stage, Workload
from autotune.nest import layout_conflict
from autotune.sketches import (
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
    Im2col,
    Inline,
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
    is_prepackable,
)
from autotune_tvm.blocks import Block
from autotune_tvm.matrix_products import make_matrices
from autotune_tvm.operand_copies import (
    fetch,
    lay_out,
    lay_out_bulk,
    lay_out_cores,
    pack,
    pad_stages,
    pipeline,
)
from autotune_tvm.scans import opened
from autotune_tvm.schedule_state import THREAD_TAGS, ScheduleState
from autotune_tvm.split_reductions import split_blocks, split_for_warps
from autotune_tvm.threads import bind_numbers, check_threads
from autotune_tvm.warp_products import lay_out_fragments, make_warp_call

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
    else:
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


def _nothing(state: ScheduleState, step: Step) -> None:
    """It is done already, as matrices and what is padded are, or it is no schedule of TVM's.

    What a processor is asked for early, what passes the caches, which iterations are left out and
    which are pipelined changes no result.
    """


_HANDLERS: Mapping[type[Any], Callable[[ScheduleState, Any], None]] = {
    Inline: _inline,
    PadExtent: _nothing,
    Im2col: _nothing,
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
    Stream: _nothing,
    SoftwarePipeline: _nothing,
    Prefetch: _nothing,
    BoundLoop: _nothing,
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
