"""Convolutions as products of matrices in TVM's schedules.

The block of a stage gets variables of rows, columns and terms, reads its factors from copies that
are matrices, and writes its result to one. These copies are blocks of their own until they are
inlined: those of factors where they are fetched, that of the result where it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer
from tvm.tirx import IndexMap
from tvm.tirx.analysis import undefined_vars

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Axis
from autotune.sketches import (
    TERMS,
    Group,
    Im2col,
    MatrixForm,
    Step,
    WarpTensorize,
    columns_name,
    im2col,
    matrix_form,
    partial_name,
    weights_name,
)
from autotune_tvm.pad import declare_read, undeclare_reads
from autotune_tvm.schedule_state import ScheduleState

__all__ = ["make_matrices"]


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
