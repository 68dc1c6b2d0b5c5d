"""Tiles of warps in TVM's schedules: matrix instructions in place of a thread's loops.

A thread's loops over what its lane holds of the results, and over one step of the reduction, are a
product of small matrices like any other. What replaces them computes the same numbers, with the
other lanes' help: see :mod:`autotune.lower.instructions.warps`, and for instructions of four
warps, whose factors lie in core matrices, :mod:`autotune.lower.instructions.warpgroups`.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.s_tir import MatchBufferRegion
from tvm.tirx import IndexMap

from autotune.backends import InvalidSchedule
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Axis, Stage
from autotune.lower.instructions import warps
from autotune.lower.instructions.warpgroups import CORE_ROW_BYTES, WarpgroupTile
from autotune.lower.instructions.warps import WarpTile
from autotune.sketches import Step, WarpTensorize, result_axes
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic, result_levels
from autotune_tvm.passes.pipeline_fetches import ROUNDED
from autotune_tvm.passes.statements import with_fields
from autotune_tvm.passes.warpgroup_calls import products
from autotune_tvm.resident_blocks import REGISTERS
from autotune_tvm.schedule_state import THREAD_TAGS, ScheduleState, WarpLoops

__all__ = ["lay_out_fragments", "make_warp_call"]


def lay_out_fragments(state: ScheduleState, steps: tuple[Step, ...]) -> None:
    """Split the axes of stages that warps compute as the fragments of their results are.

    The last levels of both axes become variables of the block, and the results are collected in a
    buffer with a dimension for each: so they are what one thread has of it, whatever the order of
    loops. Dimensions of axes that number products come first there. Done before anything else,
    for a block only has such a form while its loops are whole.
    """
    for step in steps:
        if isinstance(step, WarpTensorize):
            state.current = step
            _split_block(state, state.workload.stage(step.stage), find_intrinsic(step.intrinsic))


def _split_block(state: ScheduleState, stage: Stage, call: Intrinsic) -> None:
    block = state.blocks[stage.name]
    result = _result_axes(state, stage)
    strides = {
        axis.name: tuple((digit.extent, digit.stride) for digit in result_levels(call, own.name))
        for axis, own in zip(result, call.spatial_axes, strict=True)
    }
    own_names = [axis.name for axis in stage.axes]
    numbering = [axis.name for axis in stage.spatial_axes if axis not in result]
    names = [*numbering, *(name for name in own_names if name not in numbering)]

    def split(*indices: Any) -> list[Any]:
        found: list[Any] = []
        by_name = dict(zip(own_names, indices, strict=True))
        for axis in names:
            index, inner = by_name[axis], strides.get(axis, ())
            outer = 1
            for extent, _ in inner:
                outer *= extent
            found.append(index // outer if inner else index)
            found += [index // stride % extent for extent, stride in inner]
        return found

    dtype = str(state.sch.get(state.sch.get_loops(block)[0]).loop_var.ty.dtype)
    layout = IndexMap.from_func(split, ndim=len(own_names), index_dtype=dtype)
    state.sch.transform_block_layout(block, layout)
    write = state.sch.reindex(block, ("write", 0))
    loops = list(state.sch.get_loops(block))
    inner: dict[str, list[Any]] = {}
    for axis in names:
        own = loops.pop(0)
        state.loops[stage.name, f"{axis}.0"] = own
        inner[axis] = [loops.pop(0) for _ in strides.get(axis, ())]
    state.warps[stage.name] = WarpLoops(write, inner)


def _result_axes(state: ScheduleState, stage: Stage) -> tuple[Axis, Axis]:
    """The axes of rows and columns of a stage that warps compute."""
    found = result_axes(stage)
    if found is None:
        raise InvalidSchedule(f"{state.current}: {stage.name} has no rows or no columns")
    return found


def make_warp_call(state: ScheduleState, step: WarpTensorize) -> None:
    """Replace the loops of a warp's tile by instructions of the warp."""
    stage, call = state.workload.stage(step.stage), find_intrinsic(step.intrinsic)
    down, across = (
        int(state.sch.get(state.loops[step.stage, name]).extent) for name in step.loops[:2]
    )
    result = _result_axes(state, stage)
    if len({str(it.source.name) for it in state.sch.get(state.blocks[step.stage]).reads}) < 3:
        raise InvalidSchedule(f"{step}: its factors are one tensor")
    left, right = (_is_along_reduction(state, step, stage, axis.name) for axis in result)
    tile: WarpTile | WarpgroupTile
    if call.is_of_warpgroup:
        terms = int(state.sch.get(state.loops[step.stage, step.loops[-1]]).extent)
        steps = terms // call.reduce_axes[0].extent
        rows = _row_bytes(state, step, stage, (result[0].name, result[1].name))
        tile = WarpgroupTile(call, down, across, steps, left, right, rows)
    else:
        tile = WarpTile(call, down, across, left, right)
        _note_registers(state, step, warps.registers(tile))
    if call.rounds_when_fetched:
        for (name, _), copy in state.fetched.items():
            if name == step.stage:
                state.sch.annotate(copy.block, ROUNDED, 1)
    forms = stage.access_map(stage.loads[0])
    is_left_first = any(result[0].name in form.coefficients for form in forms)
    whole = state.sch.blockize(state.loops[step.stage, step.loops[0]])
    block = state.sch.get(whole)
    made = _calling(tile, block, is_left_first=is_left_first)
    state.sch.state.replace(state.sch.get_sref(whole), made, {block: made})


def _calling(tile: WarpTile | WarpgroupTile, block: Any, *, is_left_first: bool) -> Any:
    """The block of a thread's loops with the calls that compute their tile in their place.

    Args:
        tile: The tile.
        block: The block, which adds products of two factors to the thread's results.
        is_left_first: Whether the left factor comes first in the product.
    """
    (results,) = block.writes
    factors = [it for it in block.reads if not it.source.same_as(results.source)]
    regions = [results, *factors[:: 1 if is_left_first else -1]]
    sums, left, right = (
        _part(region, name)
        for region, name in zip(regions, ("sums", "left", "right"), strict=True)
    )
    size = element_type(tile.call.left.dtype).bytes
    # Of core matrices from plane to plane, of others from row to row.
    level = 0 if isinstance(tile, WarpgroupTile) else -2
    given = []
    for part in (left, right):
        given += [part.access_ptr("r"), tirx.Cast("int32", part.strides[level]) * size]
    if isinstance(tile, WarpgroupTile):
        body = products(tile, sums, given)
    else:
        name, source = warps.function_name(tile), warps.function_source(tile)
        body = tirx.Evaluate(
            cuda_func_call(name, sums.access_ptr("rw"), *given, source_code=source)
        )
    matched = [
        MatchBufferRegion(part, region)
        for part, region in zip((sums, left, right), regions, strict=True)
    ]
    return with_fields(block, body=body, match_buffers=matched)


def _part(region: Any, name: str) -> Any:
    """A buffer for a region that a block touches; rows of factors lie as far apart as they do."""
    extents = [it.extent for it in region.region]
    strides = None
    if name != "sums":
        kind = extents[0].ty
        strides = [tirx.Var(f"{name}_{level}", kind) for level in range(len(extents))]
    source = region.source
    return tirx.decl_buffer(
        extents,
        str(source.dtype),
        name,
        strides=strides,
        scope=str(source.scope()),
        offset_factor=1,
    )


def _row_bytes(
    state: ScheduleState, step: WarpTensorize, stage: Stage, axes: tuple[str, str]
) -> tuple[int, int]:
    """Bytes of rows of the copies that move with the rows and with the columns of the result."""
    found = []
    for axis in axes:
        (moved,) = (
            load.tensor
            for load in stage.loads
            if any(axis in form.coefficients for form in stage.access_map(load))
        )
        found.append(state.rows.get((step.stage, moved), CORE_ROW_BYTES))
    return found[0], found[1]


def _note_registers(state: ScheduleState, step: WarpTensorize, count: int) -> None:
    """Note on the threads that compute a tile how many registers they need."""
    loops = state.sch.get_loops(state.blocks[step.stage])
    (threads,) = (loop for loop in loops if state.tag(loop) == THREAD_TAGS["thread"])
    state.sch.annotate(threads, REGISTERS, count)


def _is_along_reduction(
    state: ScheduleState, step: WarpTensorize, stage: Stage, axis: str
) -> bool:
    """Tell if the copy of the factor that moves with ``axis`` has its rows along the reduction."""
    reduce = stage.reduce_axes[0].name
    for load in stage.loads:
        forms = stage.access_map(load)
        if not any(axis in form.coefficients for form in forms):
            continue
        fetched = state.fetched.get((stage.name, load.tensor))
        if fetched is None:
            raise InvalidSchedule(f"{step}: no step fetches {load.tensor}")
        dims = state.layouts.get((stage.name, load.tensor), tuple(range(len(forms))))
        return reduce in forms[dims[-1]].coefficients
    raise InvalidSchedule(f"{step}: no factor moves with {axis}")
