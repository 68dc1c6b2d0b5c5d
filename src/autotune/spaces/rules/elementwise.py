"""Rule: a pointwise stage as a parallel, vectorised loop nest of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.ir.expressions import Load, const, var
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    AtLeast,
    Factor,
    FuseProducer,
    Order,
    Pack,
    Parallel,
    ProductEquals,
    Step,
    Tile,
    Vectorize,
)
from autotune.spaces.rules.access import (
    depends_on,
    dimension_of,
    is_plain,
    is_pointwise,
    largest_divisor,
    producer_stage,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.vector_levels import is_covered, stream_choice, vector_levels

# Rows of a tile: from a part of a cache line of the source to much of a page.
_TILE_ROWS = (4, 8, 16, 32, 64, 128, 256)
# Rows for each core above which rows alone are enough to share.
_ROWS_FOR_CORES = 4
# Iterations for each core above which some have hardly more than others.
_SHARES_FOR_CORES = 16


class ElementwiseRule(SketchRule):
    """Outer axes parallel, the innermost axis in vectors of a searched width.

    A single number has no loops, and no choices.
    """

    name = "elementwise"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if not is_pointwise(stage):
            return None
        if not stage.axes:
            return [draft.extended(settled=[stage.name])]
        *outer, inner = stage.axes
        lanes = draft.target.lanes(stage.output.dtype)
        rows = math.prod(axis.extent for axis in outer)
        if is_covered(draft, stage, inner) and rows >= _ROWS_FOR_CORES * draft.target.cores:
            return [_in_rows(draft, stage), *_in_tiles(draft, stage)]
        name = f"{stage.name}.{inner.name}"
        widths = tuple(
            width
            for width in (lanes, 2 * lanes, 4 * lanes)
            if width <= inner.extent and inner.extent % width == 0
        ) or (largest_divisor(inner.extent, lanes),)
        params = [Factor(f"{name}.0"), Factor(f"{name}.1"), Factor(f"{name}.2", widths)]
        factors = tuple(var(param.name) for param in params)
        cores = draft.target.cores
        loops = [f"{axis.name}.0" for axis in outer]
        shared = _shared(outer, cores)
        steps: list[Step] = [
            Tile(stage.name, inner.name, factors),
            Order(stage.name, (*loops, *(f"{inner.name}.{level}" for level in range(3)))),
            Parallel(stage.name, tuple(loops[:shared]) or (*loops, f"{inner.name}.0")),
            Vectorize(stage.name, f"{inner.name}.2"),
        ]
        constraints = [
            ProductEquals(tuple(param.name for param in params), const(inner.extent)),
        ]
        parallel = var(f"{name}.0")
        for axis in outer:
            parallel = parallel * axis.extent
        enough: list[AtLeast] = []
        if not shared and stage.points // widths[0] >= cores:
            enough.append(AtLeast(parallel, cores, "every core gets work", hard=False))
        choices, streams = stream_choice(draft, stage)
        plain = draft.extended(
            settled=[stage.name],
            params=[*params, *choices],
            constraints=[*constraints, *enough],
            steps=[*steps, *streams],
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
    levels = vector_levels(draft, stage, (lanes, 2 * lanes, 4 * lanes))
    rows = tuple(f"{axis.name}.0" for axis in stage.axes[:-1])
    return draft.extended(
        settled=[stage.name],
        params=levels.params,
        constraints=levels.constraints,
        steps=[
            levels.tile(stage.name, inner.name),
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
    tall = [f"{stage.name}.{across.name}.{level}" for level in range(2)]
    wide = [f"{stage.name}.{inner.name}.{level}" for level in range(3)]
    others = [axis for axis in stage.axes if axis.name not in (across.name, inner.name)]
    shared = (*(f"{axis.name}.0" for axis in others), f"{across.name}.0", f"{inner.name}.0")
    tile = (f"{inner.name}.1", f"{across.name}.1", f"{inner.name}.2")
    parallel = var(tall[0]) * var(wide[0])
    for axis in others:
        parallel = parallel * axis.extent
    enough: list[AtLeast] = []
    if stage.points // (rows[0] * width) >= draft.target.cores:
        enough.append(AtLeast(parallel, draft.target.cores, "every core gets work", hard=False))
    fused = [copy.stage] if isinstance(copy, FuseProducer) else []
    choices, streams = stream_choice(draft, stage)
    return draft.extended(
        settled=[stage.name, *fused],
        label="transposed-tiles" if copy is None else "transposed-copies",
        params=[
            *(Factor(tall[0]), Factor(tall[1], rows)),
            *(Factor(wide[0]), Factor(wide[1]), Factor(wide[2], (width,))),
            *choices,
        ],
        constraints=[
            ProductEquals(tuple(tall), const(across.extent)),
            ProductEquals(tuple(wide), const(inner.extent)),
            *enough,
        ],
        steps=[
            Tile(stage.name, across.name, tuple(var(name) for name in tall)),
            Tile(stage.name, inner.name, tuple(var(name) for name in wide)),
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
    users = draft.workload.consumers(producer.name)
    if not is_pointwise(producer) or len(users) > 1 or producer.name in draft.workload.outputs:
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
    parallel = tuple(f"{axis.name}.0" for axis in outer[: max(1, len(outer) - 1)])
    steps: list[Step] = [
        Tile(stage.name, inner.name, (const(inner.extent // width), const(width))),
        Order(
            stage.name,
            (*(f"{axis.name}.0" for axis in outer), f"{inner.name}.0", f"{inner.name}.1"),
        ),
    ]
    if outer:
        steps.append(Parallel(stage.name, parallel))
    if width > 1:
        steps.append(Vectorize(stage.name, f"{inner.name}.1"))
    return steps
