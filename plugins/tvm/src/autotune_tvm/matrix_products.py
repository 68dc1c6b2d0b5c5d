"""Convolutions as products of matrices in TVM's schedules.

The block of a stage gets variables of rows, columns and terms, reads its factors from copies that
are matrices, and writes its result to one. These copies are blocks of their own until they are
inlined: those of factors where they are fetched, that of the result where it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.tirx import IndexMap
from tvm.tirx.analysis import undefined_vars

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    ROWS,
    TERMS,
    Im2col,
    Step,
    WarpTensorize,
    columns_name,
    im2col,
    weights_name,
)
from autotune_tvm.schedule_state import ScheduleState

__all__ = ["make_matrices"]


def make_matrices(state: ScheduleState, steps: tuple[Step, ...]) -> None:
    """Turn stages into products of matrices, before anything else is done with them."""
    for step in steps:
        if isinstance(step, Im2col):
            state.current = step
            if not any(isinstance(it, WarpTensorize) and it.stage == step.stage for it in steps):
                raise InvalidSchedule(f"{step}: no warps compute {step.stage}")
            _make_matrices(state, step)


def _make_matrices(state: ScheduleState, step: Im2col) -> None:
    stage = state.workload.stage(step.stage)
    made = im2col(state.workload, step)
    block = state.blocks[stage.name]
    product = made.stage(stage.name)
    for name in (columns_name(stage.name), weights_name(stage.name)):
        (source,) = made.stage(name).reads
        position = state.read_position(block, state.buffer_of(source))
        region = state.sch.get(block).reads[position].region
        index_map = _index_map(state, stage, made.stage(name).axes, region)
        copy = state.sch.reindex_cache_read(block, position, "global", index_map)
        state.blocks[name] = copy
    region = state.sch.get(block).writes[0].region
    index_map = _index_map(state, stage, product.spatial_axes, region)
    state.matrices[stage.name] = state.sch.reindex_cache_write(block, 0, "global", index_map)
    state.sch.transform_block_layout(block, _index_map(state, stage, product.axes))
    known = {other.name: other for other in state.workload.stages}
    state.reshaped |= {
        other.name
        for other in made.stages
        if other.name != stage.name and other != known.get(other.name)
    }
    state.workload = made


def _index_map(
    state: ScheduleState, stage: Stage, dims: tuple[Axis, ...], region: Any = None
) -> IndexMap:
    """The place in a matrix with axes ``dims`` of a point of the stage.

    Axes of one value have a part in it only where they have one in ``region``, as TVM asks.
    """
    block = state.sch.get(state.blocks[stage.name])
    dtype = str(block.iter_vars[0].var.ty.dtype)
    used = None if region is None else [var for it in region for var in undefined_vars(it.min, [])]
    left_out = {
        axis.name
        for axis, own in zip(stage.axes, block.iter_vars, strict=True)
        if used is not None and not any(own.var.same_as(other) for other in used)
    }
    names = [axis.name for axis in stage.axes]

    def number(axes: tuple[Axis, ...], values: Mapping[str, Any]) -> Any:
        found: Any = tirx.IntImm(dtype, 0)
        for axis in axes:
            if axis.extent > 1 or axis.name not in left_out:
                found = found * axis.extent + values[axis.name]
        return found

    def index(*variables: Any) -> list[Any]:
        values = dict(zip(names, variables, strict=True))
        values[ROWS] = number(stage.spatial_axes[:-1], values)
        values[TERMS] = number(stage.reduce_axes, values)
        return [values[axis.name] for axis in dims]

    return IndexMap.from_func(index, ndim=len(names), index_dtype=dtype)
