"""Rule: a pointwise stage as a parallel, vectorised loop nest, or a kernel, of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.ir.expressions import Load, product
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    AtMost,
    Bind,
    FuseProducer,
    Order,
    Ordinal,
    Pack,
    Parallel,
    Step,
    Vectorize,
)
from autotune.spaces.rules.access import (
    depends_on,
    dimension_of,
    is_plain,
    is_pointwise,
    largest_divisor,
    own_producer,
    producer_stage,
)
from autotune.spaces.rules.draft import SketchDraft, loops, split
from autotune.spaces.rules.gpu_levels import (
    block_threads,
    check_gpu,
    thread_constraints,
    thread_counts,
    vector_widths,
)
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import (
    cover,
    is_covered,
    split_in_two,
    stream_choice,
    vectors_of,
)

# Rows of a tile: from a part of a cache line of the source to much of a page.
_TILE_ROWS = (4, 8, 16, 32, 64, 128, 256)
# Rows for each core above which rows alone are enough to share.
_ROWS_FOR_CORES = 4
# Iterations for each core above which some have hardly more than others.
_SHARES_FOR_CORES = 16


class ElementwiseRule(SketchRule):
    """Outer axes parallel, the innermost axis in vectors of a searched width.

    A single number has no loops, and no choices. On a GPU there are blocks and threads over the
    two innermost axes, and vectors along the innermost.
    """

    name = "elementwise"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if not is_pointwise(stage):
            return None
        if draft.on_gpu:
            return [gpu_pointwise(draft, stage)]
        if not stage.axes:
            return [draft.extended(settled=[stage.name])]
        *outer, inner = stage.axes
        lanes = draft.target.lanes(stage.output.dtype)
        rows = math.prod(axis.extent for axis in outer)
        if is_covered(draft, stage, inner) and rows >= _ROWS_FOR_CORES * draft.target.cores:
            return [_in_rows(draft, stage), *_in_tiles(draft, stage)]
        widths = tuple(
            width
            for width in (lanes, 2 * lanes, 4 * lanes)
            if width <= inner.extent and inner.extent % width == 0
        ) or (largest_divisor(inner.extent, lanes),)
        vectors = split(stage.name, inner, None, None, widths)
        outside, cores = loops(outer), draft.target.cores
        shared = _shared(outer, cores)
        choices, streams = stream_choice(draft, stage)
        plain = draft.extended(
            settled=[stage.name],
            splits=[vectors],
            params=choices,
            constraints=draft.shared(
                vectors.factors[0] * rows, 0 if shared else stage.points // widths[0]
            ),
            steps=[
                Order(stage.name, (*outside, *(f"{inner.name}.{level}" for level in range(3)))),
                Parallel(stage.name, outside[:shared] or (*outside, f"{inner.name}.0")),
                Vectorize(stage.name, f"{inner.name}.2"),
                *streams,
            ],
        )
        return [plain, *_in_tiles(draft, stage)]


def _shared(outer: Sequence[Axis], cores: int) -> int:
    """Number of outer axes that are enough to share among the cores; 0 where all are not.

    What depends on these alone is computed once for all that the others move along.
    """
    extent = 1
    for count, axis in enumerate(outer, start=1):
        extent *= axis.extent
        if extent >= _SHARES_FOR_CORES * cores:
            return count
    return 0


def _in_rows(draft: SketchDraft, stage: Stage) -> SketchDraft:
    """Rows in parallel, each in whole vectors but for its last."""
    lanes, inner = draft.target.lanes(stage.output.dtype), stage.axes[-1]
    rows = loops(stage.axes[:-1])
    return draft.extended(
        settled=[stage.name],
        splits=[vectors_of(draft, stage, (lanes, 2 * lanes, 4 * lanes))],
        steps=[
            Order(stage.name, (*rows, f"{inner.name}.0", f"{inner.name}.1")),
            Parallel(stage.name, rows),
            Vectorize(stage.name, f"{inner.name}.1"),
        ],
    )


def _in_tiles(draft: SketchDraft, stage: Stage) -> list[SketchDraft]:
    """The stage in tiles of two axes, where it reads something contiguous along another axis.

    Row by row, each element that it reads is of another cache line; all of a line are used within
    a tile. Only in workloads where nothing else has several sketches, which would multiply.
    """
    found = _read_across(stage)
    alone = all(other.combiner is None for other in draft.workload.stages)
    if found is None or draft.labels or not alone:
        return []
    load, across = found
    lanes = draft.target.lanes(stage.output.dtype)
    width = largest_divisor(stage.axes[-1].extent, lanes)
    if width == 1:
        return []
    rows = tuple(count for count in _TILE_ROWS if across.extent % count == 0)
    tiles = [_tiled(draft, stage, across, rows, width)] if rows else []
    whole = tuple(count for count in rows if count % lanes == 0)
    copy = _copy(draft, stage, load, lanes)
    if whole and copy is not None:
        tiles.append(_tiled(draft, stage, across, whole, width, copy))
    return tiles


def _tiled(
    draft: SketchDraft,
    stage: Stage,
    across: Axis,
    rows: tuple[int, ...],
    width: int,
    copy: Pack | FuseProducer | None = None,
) -> SketchDraft:
    """Make a sketch of tiles: as many rows as one of ``rows``, vectors of ``width``.

    Args:
        draft: The sketch so far.
        stage: The stage.
        across: The axis along which what it reads is contiguous.
        rows: To choose from.
        width: Of a vector of the stage.
        copy: Puts what one vector of each row reads into a buffer first, row after row: rows that
            are a power of two apart displace each other in the cache.
    """
    inner = stage.axes[-1]
    tall = split(stage.name, across, None, rows)
    wide = split(stage.name, inner, None, None, (width,))
    others = [axis for axis in stage.axes if axis.name not in (across.name, inner.name)]
    shared = loops([*others, across, inner])
    tile = (f"{inner.name}.1", f"{across.name}.1", f"{inner.name}.2")
    parallel = tall.factors[0] * wide.factors[0] * math.prod(axis.extent for axis in others)
    fused = [copy.stage] if isinstance(copy, FuseProducer) else []
    choices, streams = stream_choice(draft, stage)
    return draft.extended(
        settled=[stage.name, *fused],
        label="transposed-tiles" if copy is None else "transposed-copies",
        splits=[tall, wide],
        params=choices,
        constraints=draft.shared(parallel, stage.points // (rows[0] * width)),
        steps=[
            Order(stage.name, (*shared, *tile)),
            Parallel(stage.name, shared),
            *([] if copy is None else [copy]),
            Vectorize(stage.name, tile[-1]),
            *streams,
        ],
    )


def _copy(draft: SketchDraft, stage: Stage, load: Load, lanes: int) -> Pack | FuseProducer | None:
    """The step that copies what a vector of each row reads; None where that is no plain block."""
    at = f"{stage.axes[-1].name}.1"
    forms = stage.forms(load)
    if len(stage.loads) > 1 or stage.gathers or not is_plain(forms):
        return None
    producer = producer_stage(draft.workload, load.tensor)
    if producer is None:
        return Pack(stage.name, load.tensor, at, None, None, lanes) if draft.can("pack") else None
    if own_producer(draft.workload, load.tensor) is None:
        return None
    if not draft.can("fuse_producer"):
        return None
    return FuseProducer(producer.name, stage.name, at, lanes)


def _read_across(stage: Stage) -> tuple[Load, Axis] | None:
    """A read that the innermost axis moves and that is contiguous along another, and that axis."""
    inner = stage.axes[-1].name
    for load in stage.loads:
        forms = stage.forms(load)
        for axis in stage.axes[:-1]:
            if depends_on(forms, inner) and dimension_of(forms, axis.name) == len(forms) - 1:
                return load, axis
    return None


def root_copy_steps(stage: Stage, lanes: int) -> list[Step]:
    """A pointwise stage that feeds another, without parameters: parallel rows, vector inside."""
    if not stage.axes:
        return []
    *outer, inner = stage.axes
    width = largest_divisor(inner.extent, lanes)
    vectors = split_in_two(stage.name, inner, (width,))
    steps: list[Step] = [
        vectors.step,
        Order(stage.name, (*loops(outer), f"{inner.name}.0", f"{inner.name}.1")),
    ]
    if outer:
        steps.append(Parallel(stage.name, loops(outer[: max(1, len(outer) - 1)])))
    if width > 1:
        steps.append(Vectorize(stage.name, f"{inner.name}.1"))
    return steps


# Elements along a row that one thread computes one after the other.
_MAX_SERIAL = 8


def gpu_pointwise(draft: SketchDraft, stage: Stage) -> SketchDraft:
    """The draft with a pointwise stage as a kernel of its own.

    The two innermost axes are split into blocks, threads and loops of a thread. Where their
    extents have no factors that make whole warps, threads cover the innermost axis alone and
    the last of them are idle.
    """
    check_gpu(draft.target)
    axes = [axis for axis in stage.axes if axis.extent > 1][-2:]
    if not axes:
        blocks = loops(stage.axes)
        steps = [Bind(stage.name, blocks, "block")] if blocks else []
        return draft.extended(settled=[stage.name], steps=steps)
    counts = thread_counts([(axis.extent,) for axis in axes], draft.target)
    whole = any(count % draft.target.warp_size == 0 for count in counts)
    if whole or axes[-1].extent <= draft.target.warp_size:
        return _in_blocks(draft, stage, axes)
    return _covered(draft, stage, axes[-1])


def _in_blocks(draft: SketchDraft, stage: Stage, axes: list[Axis]) -> SketchDraft:
    *rows, vector = axes
    widths = vector_widths(vector.extent, stage.output.dtype, draft.target)
    splits = [
        *(split(stage.name, axis, None, None, None) for axis in rows),
        split(stage.name, vector, None, None, widths),
    ]
    threads = product(it.factors[1] for it in splits)
    rest = math.prod(axis.extent for axis in stage.axes if axis not in axes)
    grid = product(it.factors[0] for it in splits) * rest
    constraints = thread_constraints(threads, grid, [(it.extent,) for it in axes], draft.target)
    if rows:
        serial = splits[0].factors[2]
        constraints.append(AtMost(serial, _MAX_SERIAL, "rows of a thread", hard=False))
    return draft.extended(
        settled=[stage.name],
        splits=splits,
        constraints=constraints,
        steps=[
            Order(stage.name, (*loops(stage.axes), *loops(axes, 1), *loops(axes, 2))),
            Bind(stage.name, loops(stage.axes), "block"),
            Bind(stage.name, loops(axes, 1), "thread"),
            Vectorize(stage.name, f"{vector.name}.2"),
        ],
    )


def _covered(draft: SketchDraft, stage: Stage, axis: Axis) -> SketchDraft:
    threads = Ordinal(f"{stage.name}.threads", block_threads(axis.extent, draft.target))
    widths = vector_widths(axis.extent, stage.output.dtype, draft.target)
    lanes = Ordinal(f"{stage.name}.lanes", widths)
    return draft.extended(
        settled=[stage.name],
        splits=[cover(stage.name, axis, threads, lanes)],
        steps=[
            Order(stage.name, (*loops(stage.axes), f"{axis.name}.1", f"{axis.name}.2")),
            Bind(stage.name, loops(stage.axes), "block"),
            Bind(stage.name, (f"{axis.name}.1",), "thread"),
            Vectorize(stage.name, f"{axis.name}.2"),
        ],
    )
