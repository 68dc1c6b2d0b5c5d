"""Tiles of warps in TVM's schedules: matrix instructions in place of a thread's loops.

A thread's loops over what its lane holds of the results, and over one step of the reduction, are a
product of small matrices like any other. What replaces them computes the same numbers, with the
other lanes' help: see :mod:`autotune_tvm.warp_source`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from attrs import frozen
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.ir import Range
from tvm.s_tir import SBlock, SBlockRealize, TensorIntrin
from tvm.tirx import BufferRegion, IndexMap

from autotune.backends import InvalidSchedule
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import Step, WarpTensorize, result_axes
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic, result_levels
from autotune_tvm.schedule_state import ScheduleState, WarpLoops
from autotune_tvm.warp_source import WarpTile, function_name, function_source

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
    result = _result(state, stage)
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


def _result(state: ScheduleState, stage: Stage) -> tuple[Axis, Axis]:
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
    block = state.sch.get(state.blocks[step.stage])
    buffers = {str(read.source.name) for read in block.reads}
    result = _result(state, stage)
    left, right = (_is_along_reduction(state, step, stage, axis.name) for axis in result)
    if len(buffers) < 3:
        raise InvalidSchedule(f"{step}: its factors are one tensor")
    padded = state.padded.get(step.stage)
    extents = stage.extents if padded is None else padded.extents
    one_row, one_column = (
        extents[axis.name] == own.extent
        for axis, own in zip(result, call.spatial_axes, strict=True)
    )
    dims = tuple(dim for dim in range(6) if not (one_row and dim == 0 or one_column and dim == 3))
    rows = result[0].name
    forms = stage.access_map(stage.loads[0])
    right_first = not any(rows in form.coefficients for form in forms)
    outermost = state.loops[step.stage, step.loops[0]]
    index = str(state.sch.get(outermost).loop_var.ty.dtype)
    scope = next(str(it.source.scope()) for it in block.reads if it.source.scope() != "local")
    tile = WarpTile(call, down, across, left, right)
    state.sch.tensorize(outermost, _registered(tile, _Form(dims, right_first, index, scope)))


def _is_along_reduction(
    state: ScheduleState, step: WarpTensorize, stage: Stage, axis: str
) -> bool:
    """Whether the copy of the factor that moves with ``axis`` has its rows along the reduction."""
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


@frozen
class _Form:
    """How TVM has the loops of a tile.

    Attributes:
        dims: Which of the dimensions of the results there are. TVM leaves those of one value out:
            those of fragments where one is as long as the axis.
        right_first: Whether the right factor comes first in the product.
        index: Type of the program's indices.
        scope: Where the factors are: ``shared``, or ``shared.dyn``, which is asked for.
    """

    dims: tuple[int, ...]
    right_first: bool
    index: str
    scope: str


@frozen
class _ThreadBuffers:
    """A thread's results, and the hull of what they read of either factor.

    Attributes:
        sums: The results.
        left: Of the left factor.
        right: Of the right factor.
        dims: As of :class:`_Form`.
    """

    sums: Any
    left: Any
    right: Any
    dims: tuple[int, ...]

    def at(self, f: Any, h: Any, g: Any, p: Any) -> list[Any]:
        """The place of one result: fragment and row of the lane, fragment and column."""
        zero = tirx.IntImm(str(f.ty.dtype), 0)
        whole = (f, h, zero, g, zero, p)
        return [whole[dim] for dim in self.dims]


@cache
def _registered(tile: WarpTile, form: _Form) -> str:
    """Register the calls of a tile with TVM; returns TVM's name for them."""
    order = "swapped" if form.right_first else "plain"
    dims = "".join(map(str, form.dims))
    name = f"autotune.{function_name(tile)}/{dims}/{order}/{form.index}/{form.scope}"
    made = _description(tile, form), _implementation(tile, form)
    TensorIntrin.register(name, *made, override=True)
    return name


def _description(tile: WarpTile, form: _Form) -> Any:
    """The loops of a thread.

    A thread has ``down`` times two by ``across`` times two results. TVM leaves variables of one
    value out of the block whose loops it compares.
    """
    call = tile.call
    (row_count, row_stride), (row_lanes, _) = _levels(call, 0)
    (column_lanes, _), (column_count, column_stride) = _levels(call, 1)
    extents = (tile.down, row_count, tile.across, column_count, call.reduce_axes[0].extent)
    variables = [tirx.Var(name, form.index) for name in ("f", "h", "g", "p", "k")]
    zero = tirx.IntImm(form.index, 0)
    f, h, g, p, k = (
        var if extent > 1 else zero for var, extent in zip(variables, extents, strict=True)
    )
    buffers = _buffers(tile, form)
    row = f * (row_count * row_lanes) + h * row_stride
    column = g * (column_lanes * column_count) + p * column_stride
    a = buffers.left[(row, k) if tile.left_along_reduction else (k, row)]
    b = buffers.right[(column, k) if tile.right_along_reduction else (k, column)]
    place = buffers.at(f, h, g, p)
    total = buffers.sums[tuple(place)]
    dtype = call.result.dtype
    factors = [(buffers.left, a), (buffers.right, b)][:: -1 if form.right_first else 1]
    widened = tile.call.left.dtype != dtype
    first, second = (tirx.Cast(dtype, load) if widened else load for _, load in factors)
    value = total + first * second
    body = tirx.BufferStore(buffers.sums, value, place)
    loops = [tirx.Var(f"{var.name}_loop", form.index) for var in variables]
    ends = [tirx.IntImm(form.index, extent) for extent in extents]
    used = [at for at, extent in enumerate(extents) if extent > 1]
    axes = [
        tirx.IterVar(Range(zero, ends[at]), variables[at], _REDUCED if at == 4 else _SPATIAL)
        for at in used
    ]
    element = [_element(buffers.sums, total), *(_element(*factor) for factor in factors)]
    block = SBlock(axes, element, element[:1], "product", body)
    statement: Any = SBlockRealize([loops[at] for at in used], True, block)
    for at in reversed(_LOOP_ORDER):
        statement = tirx.For(loops[at], zero, ends[at], tirx.ForKind.SERIAL, statement)
    return _function(buffers, form, statement)


# The order of a thread's loops; variables of the block are in that of the stage's axes.
_LOOP_ORDER = (0, 2, 1, 3, 4)
_SPATIAL, _REDUCED = tirx.IterVar.DataPar, tirx.IterVar.CommReduce


def _implementation(tile: WarpTile, form: _Form) -> Any:
    """One call of the function of :mod:`autotune_tvm.warp_source`."""
    buffers = _buffers(tile, form)
    size = element_type(tile.call.left.dtype).bytes
    made = cuda_func_call(
        function_name(tile),
        buffers.sums.access_ptr("rw"),
        buffers.left.access_ptr("r"),
        tirx.Cast("int32", buffers.left.strides[0]) * size,
        buffers.right.access_ptr("r"),
        tirx.Cast("int32", buffers.right.strides[0]) * size,
        source_code=function_source(tile),
    )
    return _function(buffers, form, tirx.Evaluate(made))


def _buffers(tile: WarpTile, form: _Form) -> _ThreadBuffers:
    call = tile.call
    depth = call.reduce_axes[0].extent
    (row_count, row_stride), (row_lanes, _) = _levels(call, 0)
    (column_lanes, _), (column_count, column_stride) = _levels(call, 1)
    rows, columns = row_count * row_lanes, column_lanes * column_count
    down = (tile.down - 1) * rows + (row_count - 1) * row_stride + 1
    across = (tile.across - 1) * columns + (column_count - 1) * column_stride + 1
    whole = (tile.down, row_count, 1, tile.across, 1, column_count)
    shape = [tirx.IntImm(form.index, whole[dim]) for dim in form.dims]
    sums = tirx.decl_buffer(shape, call.result.dtype, "sums", scope="local", offset_factor=1)
    factors = [
        tirx.decl_buffer(
            [tirx.IntImm(form.index, it) for it in ((reach, depth) if along else (depth, reach))],
            operand.dtype,
            name,
            strides=[tirx.Var(f"{name}_row", form.index), tirx.Var(f"{name}_next", form.index)],
            scope=form.scope,
            offset_factor=1,
        )
        for name, along, reach, operand in (
            ("left", tile.left_along_reduction, down, call.left),
            ("right", tile.right_along_reduction, across, call.right),
        )
    ]
    return _ThreadBuffers(sums, factors[0], factors[1], form.dims)


def _element(buffer: Any, load: Any) -> Any:
    return BufferRegion(
        buffer,
        [
            Range.from_min_extent(place, tirx.IntImm(str(place.ty.dtype), 1))
            for place in load.indices
        ],
    )


def _function(buffers: _ThreadBuffers, form: _Form, body: Any) -> Any:
    """A function of the three buffers, as TVM takes intrinsics."""
    taken = [buffers.sums, buffers.left, buffers.right]
    sums, *factors = [
        BufferRegion(it, [Range(tirx.IntImm(form.index, 0), n) for n in it.shape]) for it in taken
    ]
    # TVM compares what is read in the order of the product.
    reads = [sums, *factors[:: -1 if form.right_first else 1]]
    root = SBlockRealize([], True, SBlock([], reads, [sums], "root", body))
    return tirx.PrimFunc(taken, root)


def _levels(call: Intrinsic, axis: int) -> list[tuple[int, int]]:
    return [
        (digit.extent, digit.stride) for digit in result_levels(call, call.spatial_axes[axis].name)
    ]
