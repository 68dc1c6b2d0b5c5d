"""Rule: a scan as a loop nest, or a kernel, of its own, in order along its axis."""

from __future__ import annotations

import math

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    AtLeast,
    AtMost,
    Bind,
    ChunkScan,
    Constraint,
    Factor,
    Order,
    Ordinal,
    Parallel,
    ProductEquals,
    Step,
    Tile,
    TileCeil,
    Unroll,
    Vectorize,
    chunk_axis,
    scanned_parts_name,
)
from autotune.spaces.rules.access import largest_divisor
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_levels import block_threads, check_gpu, cover_factors
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import is_covered, vector_levels

__all__ = ["CHUNKED_LABEL", "ScanRule"]

# Rows that are continued in turns: an addition takes four cycles, and two can begin in each.
_ROWS = range(1, 17)
# Widths of what is continued at once, in vectors.
_VECTORS = (1, 2, 4)
# Sequences for each core, from which on they are continued in turns as they are.
_ENOUGH = 4
# Shorter parts are not worth a second pass.
_SHORTEST_PART = 256
# Neighbours of a part that are continued before it is the next one's turn: up to a line, because
# parts that lie a power of two apart compete for the same lines.
_NEIGHBOURS = (1, 4, 8, 16)

CHUNKED_LABEL = "chunked-scan"


class ScanRule(SketchRule):
    """The other axes in parallel; inside their tiles the axis of the scan, in its order.

    What is inside that continues several results in a round: a searched number of vectors where
    a scan runs along another axis than the last, of rows where it runs along them. What feeds a
    scan is computed before it. Where there are few rows, parts of them are also scanned as rows
    are, and then continued. The threads of a GPU continue a sequence each.
    """

    name = "scan"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        axis = stage.scan_axis
        if axis is None:
            return None
        if draft.on_gpu:
            return [gpu_scan(draft, stage, axis)]
        others = [other for other in stage.axes if other is not axis]
        if stage.axes[-1] is axis:
            whole = _of_rows(draft, stage, axis, others) if others else _serial(draft, stage, axis)
            chunks = _chunks(draft, stage, axis)
            return [whole, *(_in_chunks(draft, stage, axis, others, it) for it in chunks)]
        return [_of_columns(draft, stage, axis, others)]


def _serial(draft: SketchDraft, stage: Stage, axis: Axis) -> SketchDraft:
    """Run the scan as one sequence: nothing to choose."""
    return draft.extended(settled=[stage.name], steps=[Order(stage.name, (f"{axis.name}.0",))])


def _of_rows(draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis]) -> SketchDraft:
    """Sums of neighbours wait for each other, those of several rows do not."""
    *outer, row = others
    name = f"{stage.name}.{row.name}"
    counts = tuple(count for count in _ROWS if row.extent % count == 0)
    shared = (*(f"{other.name}.0" for other in outer), f"{row.name}.0")
    steps: list[Step] = [
        Tile(stage.name, row.name, (var(f"{name}.0"), var(f"{name}.1"))),
        Order(stage.name, (*shared, f"{axis.name}.0", f"{row.name}.1")),
        Parallel(stage.name, shared),
        Unroll(stage.name, (f"{row.name}.1",)),
    ]
    return draft.extended(
        settled=[stage.name],
        params=[Factor(f"{name}.0"), Factor(f"{name}.1", counts)],
        constraints=[
            ProductEquals((f"{name}.0", f"{name}.1"), const(row.extent)),
            *_enough(draft, outer, row, 1, f"{name}.0"),
        ],
        steps=steps,
    )


def _chunks(draft: SketchDraft, stage: Stage, axis: Axis) -> tuple[int, ...]:
    """Parts of each row: enough to be continued in turns on every core, or none."""
    rows = stage.output.elements // axis.extent
    cores, exact = draft.target.cores, stage.output.element.bytes >= 4
    if rows >= _ENOUGH * cores or not exact or not draft.can("chunk_scan"):
        return ()
    most = min(_ROWS[-1] * cores, axis.extent // _SHORTEST_PART)
    found = largest_divisor(axis.extent, most) if most > 1 else 1
    return (found,) if found > 1 else ()


def _in_chunks(
    draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis], chunks: int
) -> SketchDraft:
    """Parts of rows as rows of their own, and their results in vectors when all are known."""
    parts, chunk = scanned_parts_name(stage.name), chunk_axis(axis.name)
    rows = tuple(f"{other.name}.0" for other in others)
    names = tuple(f"{stage.name}.chunks.{level}" for level in range(2))
    counts = tuple(count for count in _ROWS if chunks % count == 0)
    lanes, length = draft.target.lanes(stage.output.dtype), axis.extent // chunks
    widths = tuple(width for count in _VECTORS if length % (width := count * lanes) == 0) or (
        largest_divisor(length, lanes),
    )
    vectors = tuple(f"{stage.name}.{axis.name}.{level}" for level in range(2))
    turns = tuple(f"{stage.name}.turns.{level}" for level in range(2))
    neighbours = tuple(count for count in _NEIGHBOURS if length % count == 0)
    steps: list[Step] = [
        ChunkScan(stage.name, chunks),
        Tile(parts, chunk, tuple(map(var, names))),
        Tile(parts, axis.name, tuple(map(var, turns))),
        Order(parts, (f"{chunk}.0", *rows, f"{axis.name}.0", f"{chunk}.1", f"{axis.name}.1")),
        Parallel(parts, (f"{chunk}.0", *rows)),
        Unroll(parts, (f"{chunk}.1", f"{axis.name}.1")),
        Tile(stage.name, axis.name, (const(chunks), *map(var, vectors))),
        Order(stage.name, (*rows, *(f"{axis.name}.{level}" for level in range(3)))),
        Parallel(stage.name, (*rows, f"{axis.name}.0")),
        Vectorize(stage.name, f"{axis.name}.2"),
    ]
    limits = draft.limits
    unrolled = var(names[1]) * var(turns[1])
    constraints: list[Constraint] = [
        ProductEquals(names, const(chunks)),
        ProductEquals(turns, const(length)),
        ProductEquals(vectors, const(length)),
        AtMost(unrolled, limits.unrolled_statements, f"{limits.source}: unrolled body"),
    ]
    count, cores = math.prod(other.extent for other in others), draft.target.cores
    soft = [AtLeast(var(names[0]) * count, cores, "every core gets work", hard=False)]
    return draft.extended(
        settled=[stage.name],
        label=CHUNKED_LABEL,
        params=[
            *(Factor(names[0]), Factor(names[1], counts)),
            *(Factor(turns[0]), Factor(turns[1], neighbours)),
            *(Factor(vectors[0]), Factor(vectors[1], widths)),
        ],
        constraints=[*constraints, *(soft if chunks * count >= cores else [])],
        steps=steps,
    )


def _of_columns(draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis]) -> SketchDraft:
    """Vectors of neighbours, as many in a round as stay in a cache until the next one."""
    *outer, inner = others
    if is_covered(draft, stage, inner):
        return _of_uneven_columns(draft, stage, axis, others)
    lanes = draft.target.lanes(stage.output.dtype)
    widths = tuple(
        width for count in _VECTORS if inner.extent % (width := count * lanes) == 0
    ) or (largest_divisor(inner.extent, lanes),)
    names = tuple(f"{stage.name}.{inner.name}.{level}" for level in range(3))
    shared = (*(f"{other.name}.0" for other in outer), f"{inner.name}.0")
    order = (*shared, f"{axis.name}.0", f"{inner.name}.1", f"{inner.name}.2")
    return draft.extended(
        settled=[stage.name],
        params=[Factor(names[0]), Factor(names[1]), Factor(names[2], widths)],
        constraints=[
            ProductEquals(names, const(inner.extent)),
            *_enough(draft, outer, inner, widths[0], names[0]),
        ],
        steps=[
            Tile(stage.name, inner.name, tuple(map(var, names))),
            Order(stage.name, order),
            Parallel(stage.name, shared),
            Vectorize(stage.name, f"{inner.name}.2"),
        ],
    )


def _of_uneven_columns(
    draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis]
) -> SketchDraft:
    """Vectors that are whole but for the last, which a loop of its own ends with."""
    *outer, inner = others
    lanes = draft.target.lanes(stage.output.dtype)
    levels = vector_levels(draft, stage, tuple(count * lanes for count in _VECTORS))
    rows = tuple(f"{other.name}.0" for other in outer)
    order = (*rows, f"{inner.name}.0", f"{axis.name}.0", f"{inner.name}.1")
    shared: list[Step] = [Parallel(stage.name, rows)] if rows else []
    return draft.extended(
        settled=[stage.name],
        params=levels.params,
        constraints=levels.constraints,
        steps=[
            levels.tile(stage.name, inner.name),
            Order(stage.name, order),
            *shared,
            Vectorize(stage.name, f"{inner.name}.1"),
        ],
    )


def _enough(
    draft: SketchDraft, outer: list[Axis], tiled: Axis, least: int, parallel: str
) -> list[AtLeast]:
    """Work for every core, as far as there is any in tiles of at least so many results."""
    rows, cores = math.prod(axis.extent for axis in outer), draft.target.cores
    if rows * (tiled.extent // least) < cores:
        return []
    return [AtLeast(var(parallel) * rows, cores, "every core gets work", hard=False)]


def gpu_scan(draft: SketchDraft, stage: Stage, axis: Axis) -> SketchDraft:
    """Threads over the innermost axis that has a warp's worth of sequences, blocks over the rest.

    Neighbouring threads read and write neighbours where the scan runs along another axis than the
    last; where it runs along the last, they do not.
    """
    check_gpu(draft.target)
    others = [other for other in stage.axes if other is not axis]
    if all(other.extent == 1 for other in others):
        raise UnsupportedWorkload(
            f"stage {stage.name!r} scans one sequence, along {axis.name!r}: there is nothing "
            "for the threads of a GPU to share"
        )
    wide = [other for other in others if other.extent >= draft.target.warp_size]
    shared = wide[-1] if wide else max(others, key=lambda other: other.extent)
    threads = Ordinal(f"{stage.name}.threads", block_threads(shared.extent, draft.target))
    blocks = tuple(f"{other.name}.0" for other in others)
    steps: list[Step] = [
        TileCeil(stage.name, shared.name, cover_factors(shared.extent, var(threads.name))),
        Order(stage.name, (*blocks, f"{shared.name}.1", f"{axis.name}.0")),
        Bind(stage.name, blocks, "block"),
        Bind(stage.name, (f"{shared.name}.1",), "thread"),
    ]
    return draft.extended(settled=[stage.name], params=[threads], steps=steps)
