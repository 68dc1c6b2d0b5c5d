"""Copies of operands in a schedule: padded, packed in panels, in shared memory."""

from __future__ import annotations

import math
from typing import Any

from attrs import evolve
from tvm.tirx import floordiv, floormod

from autotune.backends import InvalidSchedule
from autotune.ir.workloads import Stage
from autotune.sketches import (
    BulkCopy,
    CooperativeFetch,
    CoreMatrices,
    Pack,
    PadExtent,
    PipelineFetches,
    SharedLayout,
    Step,
)
from autotune.sketches.copy_engine import SWIZZLED_ROW_BYTES, VECTOR_BYTES
from autotune_tvm.pad import pad_block
from autotune_tvm.passes import AHEAD, STAGES
from autotune_tvm.passes.async_copies import MOST_STAGES
from autotune_tvm.passes.bulk_copies import BULK
from autotune_tvm.schedule_state import THREAD_TAGS, FetchedCopy, ScheduleState

__all__ = [
    "fetch",
    "lay_out",
    "lay_out_bulk",
    "lay_out_cores",
    "pack",
    "pad_stages",
    "pipeline",
]

# What one asynchronous copy of a thread moves.
_ASYNCHRONOUS_BYTES = (4, 8, 16)
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


def lay_out(state: ScheduleState, step: SharedLayout) -> None:
    """Order the dimensions of a fetched copy, and let so many elements follow each row."""
    if (step.stage, step.operand) not in state.fetched:
        raise InvalidSchedule(f"{step}: no step fetches {step.operand} before")
    fetched = state.fetched[step.stage, step.operand]
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
        # Rows begin at multiples of this many elements: their own and the padding.
        row = region[step.dims[-1]] + pad
        state.sch.storage_align(copy, 0, len(region) - 2, row, 0)
        whole = fetched.allocated_bytes // region[step.dims[-1]] * row
        state.fetched[step.stage, step.operand] = evolve(fetched, allocated_bytes=whole)


def lay_out_cores(state: ScheduleState, step: CoreMatrices) -> None:
    """Lay a fetched copy out in core matrices, and let so many rows follow those of each plane."""
    if (step.stage, step.operand) not in state.fetched:
        raise InvalidSchedule(f"{step}: no step fetches {step.operand} before")
    fetched = state.fetched[step.stage, step.operand]
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
        plane = (region[others[-1]] + pad) * step.width
        state.sch.storage_align(copy, 0, len(region) - 2, plane, 0)
        whole = fetched.allocated_bytes // region[others[-1]] * (region[others[-1]] + pad)
        state.fetched[step.stage, step.operand] = evolve(fetched, allocated_bytes=whole)


def lay_out_bulk(state: ScheduleState, step: BulkCopy) -> None:
    """Lay a fetched copy out in panels of rows, for the pass that has the copy engine make it."""
    if (step.stage, step.operand) not in state.fetched:
        raise InvalidSchedule(f"{step}: no step fetches {step.operand} before")
    fetched = state.fetched[step.stage, step.operand]
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
        if copy.vector_bytes not in _ASYNCHRONOUS_BYTES:
            raise InvalidSchedule(
                f"{step}: vectors of {copy.vector_bytes} bytes of {operand} are not copied "
                f"asynchronously; those of {', '.join(map(str, _ASYNCHRONOUS_BYTES))} are"
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
