"""Rule: a scan as a loop nest, or a kernel, of its own, in order along its axis."""

from __future__ import annotations

import math

from attrs import evolve

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import const
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    Bind,
    ChunkScan,
    Constraint,
    Order,
    Ordinal,
    Parallel,
    Unroll,
    Vectorize,
    chunk_axis,
    scanned_parts_name,
)
from autotune.spaces.rules.access import largest_divisor
from autotune.spaces.rules.draft import SketchDraft, Split, loops, split
from autotune.spaces.rules.gpu_levels import block_threads, check_gpu
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.tile_params import cover, is_covered, vectors_of

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
    counts = tuple(count for count in _ROWS if row.extent % count == 0)
    turns = split(stage.name, row, None, counts)
    return draft.extended(
        settled=[stage.name],
        splits=[turns],
        constraints=_enough(draft, outer, turns, row.extent),
        steps=[
            Order(stage.name, (*loops(others), f"{axis.name}.0", f"{row.name}.1")),
            Parallel(stage.name, loops(others)),
            Unroll(stage.name, (f"{row.name}.1",)),
        ],
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
    parts, chunk = scanned_parts_name(stage.name), Axis(chunk_axis(axis.name), chunks)
    part, rows = evolve(axis, extent=axis.extent // chunks), loops(others)
    counts = tuple(count for count in _ROWS if chunks % count == 0)
    neighbours = tuple(count for count in _NEIGHBOURS if part.extent % count == 0)
    shares = split(parts, chunk, None, counts, name=f"{stage.name}.chunks")
    turns = split(parts, part, None, neighbours, name=f"{stage.name}.turns")
    vectors = split(stage.name, part, None, _widths(draft, stage, part.extent))
    inside = (f"{axis.name}.0", f"{chunk.name}.1", f"{axis.name}.1")
    shared, count = (f"{chunk.name}.0", *rows), math.prod(other.extent for other in others)
    first = draft.extended(steps=[ChunkScan(stage.name, chunks)]).extended(
        label=CHUNKED_LABEL,
        splits=[shares, turns],
        steps=[
            Order(parts, (*shared, *inside)),
            Parallel(parts, shared),
            Unroll(parts, inside[1:]),
        ],
    )
    return first.extended(
        settled=[stage.name],
        splits=[evolve(vectors, factors=(const(chunks), *vectors.factors))],
        constraints=[
            *draft.bounded(shares.factors[1] * turns.factors[1]),
            *draft.shared(shares.factors[0] * count, chunks * count),
        ],
        steps=[
            Order(stage.name, (*rows, *(f"{axis.name}.{level}" for level in range(3)))),
            Parallel(stage.name, (*rows, f"{axis.name}.0")),
            Vectorize(stage.name, f"{axis.name}.2"),
        ],
    )


def _widths(draft: SketchDraft, stage: Stage, extent: int) -> tuple[int, ...]:
    """Widths that divide an extent: whole vectors, else one that is not."""
    lanes = draft.target.lanes(stage.output.dtype)
    whole = (count * lanes for count in _VECTORS)
    return tuple(width for width in whole if extent % width == 0) or (
        largest_divisor(extent, lanes),
    )


def _of_columns(draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis]) -> SketchDraft:
    """Vectors of neighbours, as many in a round as stay in a cache until the next one.

    Where none but short ones divide the innermost axis, whole ones but for the last.
    """
    *outer, inner = others
    if is_covered(draft, stage, inner):
        lanes = draft.target.lanes(stage.output.dtype)
        vectors = vectors_of(draft, stage, tuple(count * lanes for count in _VECTORS))
        constraints, shared = [], loops(outer)
    else:
        widths = _widths(draft, stage, inner.extent)
        vectors = split(stage.name, inner, None, None, widths)
        constraints = _enough(draft, outer, vectors, inner.extent // widths[0])
        shared = loops(others)
    inside = [f"{inner.name}.{level}" for level in range(1, len(vectors.factors))]
    return draft.extended(
        settled=[stage.name],
        splits=[vectors],
        constraints=constraints,
        steps=[
            Order(stage.name, (*loops(others), f"{axis.name}.0", *inside)),
            *([Parallel(stage.name, shared)] if shared else []),
            Vectorize(stage.name, inside[-1]),
        ],
    )


def _enough(draft: SketchDraft, outer: list[Axis], tiled: Split, tiles: int) -> list[Constraint]:
    """Work for every core, as far as there is any in so many of the smallest tiles of a row."""
    rows = math.prod(axis.extent for axis in outer)
    return draft.shared(tiled.factors[0] * rows, rows * tiles)


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
    return draft.extended(
        settled=[stage.name],
        splits=[cover(stage.name, shared, threads)],
        steps=[
            Order(stage.name, (*loops(others), f"{shared.name}.1", f"{axis.name}.0")),
            Bind(stage.name, loops(others), "block"),
            Bind(stage.name, (f"{shared.name}.1",), "thread"),
        ],
    )
