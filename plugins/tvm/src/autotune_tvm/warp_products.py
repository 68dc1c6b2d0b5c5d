"""Tiles of warps in TVM's schedules: matrix instructions in place of a thread's loops.

A thread's loops over what its lane holds of the results, and over one step of the reduction, are a
product of small matrices like any other. What replaces them computes the same numbers, with the
other lanes' help: see :mod:`autotune.lower.instructions.warps`, and for instructions of four
warps, whose factors lie in core matrices, :mod:`autotune.lower.instructions.warpgroups`.
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
from autotune.lower.instructions import warpgroups, warps
from autotune.lower.instructions.warpgroups import CORE_ROW_BYTES, WarpgroupTile
from autotune.lower.instructions.warps import WarpTile
from autotune.sketches import Step, WarpTensorize, result_axes
from autotune.sketches.intrinsics import Digit, Intrinsic, find_intrinsic, result_levels
from autotune_tvm.passes import ROUNDED
from autotune_tvm.passes.warpgroup_calls import products
from autotune_tvm.resident_blocks import REGISTERS
from autotune_tvm.schedule_state import THREAD_TAGS, ScheduleState, WarpLoops

__all__ = ["lay_out_fragments", "make_warp_call"]

Tile = WarpTile | WarpgroupTile


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
    block = state.sch.get(state.blocks[step.stage])
    buffers = {str(read.source.name) for read in block.reads}
    result = _result_axes(state, stage)
    left, right = (_is_along_reduction(state, step, stage, axis.name) for axis in result)
    if len(buffers) < 3:
        raise InvalidSchedule(f"{step}: its factors are one tensor")
    padded = state.padded.get(step.stage)
    extents = stage.extents if padded is None else padded.extents
    one_row, one_column = (
        extents[axis.name] == own.extent
        for axis, own in zip(result, call.spatial_axes, strict=True)
    )
    of_rows, of_columns = (result_levels(call, axis.name) for axis in call.spatial_axes)
    dims = tuple(
        dim
        for dim in range(2 + len(of_rows) + len(of_columns))
        if not (one_row and dim == 0 or one_column and dim == 1 + len(of_rows))
    )
    of_left = result[0].name
    forms = stage.access_map(stage.loads[0])
    right_first = not any(of_left in form.coefficients for form in forms)
    outermost = state.loops[step.stage, step.loops[0]]
    index = str(state.sch.get(outermost).loop_var.ty.dtype)
    scope = next(str(it.source.scope()) for it in block.reads if it.source.scope() != "local")
    tile: Tile
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
    form = _Form(dims, right_first, index, _batch_dims(stage, of_left), scope)
    state.sch.tensorize(outermost, _registered(tile, form))


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


def _batch_dims(stage: Stage, rows: str) -> tuple[int, int]:
    """Dimensions of the left and of the right factor beside those of their matrices."""
    found = {}
    for load in stage.loads:
        forms = stage.access_map(load)
        found[any(rows in form.coefficients for form in forms)] = len(forms) - 2
    return found[True], found[False]


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


@frozen
class _Form:
    """Form in which TVM has the loops of a tile.

    Attributes:
        dims: Which of the dimensions of the results there are. TVM leaves those of one value out:
            those of fragments where one is as long as the axis.
        right_first: Whether the right factor comes first in the product.
        index: Type of the program's indices.
        batch: How many dimensions of each factor's copy are of a batch.
        scope: Where the factors are: ``shared``, or ``shared.dyn``, which is asked for.
    """

    dims: tuple[int, ...]
    right_first: bool
    index: str
    batch: tuple[int, int]
    scope: str


@frozen
class _ThreadBuffers:
    """A thread's results, and the hull of what they read of either factor.

    Attributes:
        sums: The results.
        left: Of the left factor.
        right: Of the right factor.
    """

    sums: Any
    left: Any
    right: Any


@cache
def _registered(tile: Tile, form: _Form) -> str:
    """Register the calls of a tile with TVM; returns TVM's name for them."""
    order = "swapped" if form.right_first else "plain"
    dims = "".join(map(str, form.dims))
    batch = "".join(map(str, form.batch))
    name = f"autotune.{_function_name(tile)}/{dims}/{batch}/{order}/{form.index}/{form.scope}"
    made = _description(tile, form), _implementation(tile, form)
    TensorIntrin.register(name, *made, override=True)
    return name


def _function_name(tile: Tile) -> str:
    """Name of the function that computes the tile."""
    if isinstance(tile, WarpTile):
        return warps.function_name(tile)
    return warpgroups.function_name(tile)


def _depth(tile: Tile) -> int:
    """Terms that one call adds."""
    steps = tile.steps if isinstance(tile, WarpgroupTile) else 1
    return steps * tile.call.reduce_axes[0].extent


def _description(tile: Tile, form: _Form) -> Any:
    """The loops of a thread.

    A thread has ``down`` times two by ``across`` times two results. TVM leaves variables of one
    value out of the block whose loops it compares.
    """
    call = tile.call
    rows, columns = _kept(call, 0), _kept(call, 1)
    extents = (tile.down, rows.extent, tile.across, columns.extent, _depth(tile))
    variables = [tirx.Var(name, form.index) for name in ("f", "h", "g", "p", "k")]
    zero = tirx.IntImm(form.index, 0)
    f, h, g, p, k = (
        var if extent > 1 else zero for var, extent in zip(variables, extents, strict=True)
    )
    buffers = _buffers(tile, form)
    a = buffers.left[_place(tile, form, 0, (f, h), k)]
    b = buffers.right[_place(tile, form, 1, (g, p), k)]
    place = _result(call, form, (f, h), (g, p), zero)
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


def _implementation(tile: Tile, form: _Form) -> Any:
    """The calls that compute the tile."""
    buffers = _buffers(tile, form)
    size = element_type(tile.call.left.dtype).bytes
    factors = [
        buffers.left.access_ptr("r"),
        tirx.Cast("int32", buffers.left.strides[0]) * size,
        buffers.right.access_ptr("r"),
        tirx.Cast("int32", buffers.right.strides[0]) * size,
    ]
    if isinstance(tile, WarpgroupTile):
        return _function(buffers, form, products(tile, buffers.sums, factors))
    name, source = warps.function_name(tile), warps.function_source(tile)
    sums = buffers.sums.access_ptr("rw")
    made = cuda_func_call(name, sums, *factors, source_code=source)
    return _function(buffers, form, tirx.Evaluate(made))


def _buffers(tile: Tile, form: _Form) -> _ThreadBuffers:
    call = tile.call
    rows, columns = _kept(call, 0), _kept(call, 1)
    down = (tile.down - 1) * call.spatial_axes[0].extent + (rows.extent - 1) * rows.stride + 1
    across = (tile.across - 1) * call.spatial_axes[1].extent
    across += (columns.extent - 1) * columns.stride + 1
    whole = _result(call, form, (tile.down, rows.extent), (tile.across, columns.extent), 1)
    shape = [tirx.IntImm(form.index, extent) for extent in whole]
    sums = tirx.decl_buffer(shape, call.result.dtype, "sums", scope="local", offset_factor=1)
    factors = []
    for axis, (name, reach) in enumerate((("left", down), ("right", across))):
        operand = (call.left, call.right)[axis]
        extents = _hull(tile, form, axis, reach)
        strides = [tirx.Var(f"{name}_{level}", form.index) for level in range(len(extents))]
        buffer = tirx.decl_buffer(
            [tirx.IntImm(form.index, it) for it in extents],
            operand.dtype,
            name,
            strides=strides,
            scope=form.scope,
            offset_factor=1,
        )
        factors.append(buffer)
    return _ThreadBuffers(sums, factors[0], factors[1])


def _result(
    call: Intrinsic, form: _Form, row: tuple[Any, Any], column: tuple[Any, Any], one: Any
) -> list[Any]:
    """The place of a result of a thread in their buffer, by fragment and place within it.

    Levels of lanes, of which a thread has one, are at ``one``.
    """
    found = []
    for position, (fragment, kept) in enumerate((row, column)):
        own = _kept(call, position)
        levels = result_levels(call, call.spatial_axes[position].name)
        found += [fragment, *(kept if digit == own else one for digit in levels)]
    return [found[dim] for dim in form.dims]


def _place(
    tile: Tile, form: _Form, axis: int, result: tuple[Any, Any], term: Any
) -> tuple[Any, ...]:
    """Place of a factor in its copy, for one term and one result, as of :func:`_result`."""
    (fragment, kept), own = result, _kept(tile.call, axis)
    extent = tile.call.spatial_axes[axis].extent
    place = fragment * extent + kept * own.stride
    along = _is_along(tile, axis)
    if isinstance(tile, WarpTile):
        return (place, term) if along else (term, place)
    width = _core_width(tile)
    batch = [tirx.IntImm(form.index, 0)] * form.batch[axis]
    vectors = _vectors(tile, axis)
    if along:
        vector, within = tirx.floordiv(term, width), tirx.floormod(term, width)
        if vectors == 1:
            return (vector, *batch, place, within)
        if _depth(tile) <= width * vectors:
            return (term * 0, *batch, place, vector, within)
        plane = tirx.floordiv(term, width * vectors)
        return (plane, *batch, place, tirx.floormod(vector, vectors), within)
    # TVM compares what is simplified: a level is within a row of a core matrix, or from plane
    # to plane.
    planes = fragment * (extent // width)
    first, inside = planes, kept * own.stride
    if own.stride >= width:
        first, inside = planes + kept * (own.stride // width), kept * 0
    if vectors == 1:
        return (first, *batch, term, inside)
    if extent == width * vectors:
        return (fragment, *batch, term, kept * (own.stride // width), inside)
    if (tile.down, tile.across)[axis] * extent <= width * vectors:
        return (first * 0, *batch, term, first, inside)
    outer, inner = tirx.floordiv(first, vectors), tirx.floormod(first, vectors)
    return (outer, *batch, term, inner, inside)


def _hull(tile: Tile, form: _Form, axis: int, reach: int) -> tuple[int, ...]:
    """Extents of what is read of a factor's copy, of so many results in a row."""
    depth, along = _depth(tile), _is_along(tile, axis)
    if isinstance(tile, WarpTile):
        return (reach, depth) if along else (depth, reach)
    width, vectors = _core_width(tile), _vectors(tile, axis)
    batch = [1] * form.batch[axis]
    # Within eight results, lanes begin at different ones.
    count, inside = -(-reach // width), min(reach, 1 + (reach - 1) % width)
    if along:
        count, inside = depth // width, width
    rows = reach if along else depth
    if vectors == 1:
        return (count, *batch, rows, inside)
    return (-(-count // vectors), *batch, rows, min(count, vectors), inside)


def _is_along(tile: Tile, axis: int) -> bool:
    """Return whether rows of the copy of a factor lie along the reduction."""
    return (tile.left_along_reduction, tile.right_along_reduction)[axis]


def _core_width(tile: WarpgroupTile) -> int:
    """Elements of a row of a core matrix, or of what stays together where rows are swizzled."""
    return tile.call.left.layout[-1][1]


def _vectors(tile: WarpgroupTile, axis: int) -> int:
    """Vectors of a row of a factor's planes: several where rows are swizzled."""
    return tile.row_bytes[axis] // CORE_ROW_BYTES


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


def _kept(call: Intrinsic, axis: int) -> Digit:
    """The level of a spatial axis of which each lane has all values."""
    fragment = call.result.fragment
    lanes = () if fragment is None else fragment.lanes
    levels = result_levels(call, call.spatial_axes[axis].name)
    (kept,) = (digit for digit in levels if digit not in lanes)
    return kept
