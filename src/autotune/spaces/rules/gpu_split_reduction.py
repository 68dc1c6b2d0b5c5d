"""Reductions that blocks share: partial results in one kernel, their combination in another.

Where results are too few for tiles on every multiprocessor, and each is of many terms, blocks take
consecutive parts of the longest reduce axis as well ("split-K"). The second kernel adds up the
partial results, point by point, and computes the epilogue. Parts of products that tensor cores
multiply are multiplied by these, too; of a convolution, parts of all that it sums over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve

from autotune.ir.expressions import const
from autotune.ir.workloads import Stage
from autotune.sketches import (
    Bind,
    ChunkReduction,
    Order,
    Vectorize,
    added_axis,
    partial_name,
    split_reduction,
)
from autotune.spaces.rules.access import is_affine, is_pointwise
from autotune.spaces.rules.draft import SketchDraft, loops, split
from autotune.spaces.rules.gpu_levels import (
    fetchable,
    thread_constraints,
    tiled_kernel,
    vector_widths,
)
from autotune.spaces.rules.gpu_tensor_tiling import (
    TENSOR_LABEL,
    TENSOR_LABELS,
    as_matrices,
    tensor_kernel,
)
from autotune.targets import Target

__all__ = ["SPLIT_LABELS", "chunk_counts", "split_drafts"]

_LABELS = ("split-reduction", "split-reduction-wide")
_PREFIX = "split-"
SPLIT_LABELS = (*_LABELS, *(_PREFIX + label for label in TENSOR_LABELS))

# Numbers of parts that are tried; of the two in a space, the larger is four times the other.
_COUNTS = (64, 32, 16, 8, 4)
_APART = 4
# Threads of a block and results of a thread in a tile of middling size: with these, so many parts
# as give every multiprocessor several blocks, as the fastest split products had on an H100.
_THREADS, _RESULTS = 256, 64
# Fewer terms than this in a part are not worth a second kernel.
_TERMS = 128


def split_drafts(draft: SketchDraft, stage: Stage) -> dict[str, SketchDraft]:
    """Sketches that split a reduction across blocks, by label; none where it has enough results.

    One number of parts, or a smaller and a larger one; on tensor cores the smaller one, for
    warpgroups one in the middle. Only a workload's one reduction is split: structures of several
    would multiply.
    """
    alone = all(it.name == stage.name or is_pointwise(it) for it in draft.workload.stages)
    if not (alone and stage.spatial_axes and not stage.gathers):
        return {}
    found = {}
    for label, chunk in zip(_LABELS, _chunks(draft, stage), strict=False):
        found[label] = _split(draft, stage, chunk, label)
    for label in TENSOR_LABELS:
        made = _split_products(draft, stage, label)
        if made is None and (matrices := as_matrices(draft, stage)) is not None:
            made = _split_products(matrices, matrices.workload.stage(stage.name), label)
        if made is not None:
            found[_PREFIX + label] = made
    return {label: evolve(made, workload=draft.workload) for label, made in found.items()}


def _chunks(draft: SketchDraft, stage: Stage) -> list[ChunkReduction]:
    """Splits of a reduction that are worth it and can be replayed, of the fewest parts first."""
    plain = all(is_affine(stage.forms(load)) for load in stage.loads)
    if not plain or stage.spatial_axes[-1].extent < draft.target.warp_size:
        return []
    axis = max(stage.reduce_axes, key=lambda axis: axis.extent, default=None)
    if axis is None or not draft.can("chunk_reduction"):
        return []
    counts = chunk_counts(stage, draft.target)
    return [ChunkReduction(stage.name, axis.name, count) for count in counts]


def chunk_counts(stage: Stage, target: Target) -> tuple[int, ...]:
    """Parts of the longest reduce axis to try, ascending; empty where a split is not worth it."""
    results = math.prod(axis.extent for axis in stage.spatial_axes)
    terms = math.prod(axis.extent for axis in stage.reduce_axes)
    extent = max((axis.extent for axis in stage.reduce_axes), default=1)
    most = target.multiprocessors * _THREADS * _RESULTS // results
    fitting = [
        count
        for count in _COUNTS
        if count <= most and extent % count == 0 and terms // count >= _TERMS
    ]
    if not fitting:
        return ()
    fewer = [count for count in fitting if count * _APART <= fitting[0]]
    return (*fewer[:1], fitting[0])


def _split(draft: SketchDraft, stage: Stage, chunk: ChunkReduction, label: str) -> SketchDraft:
    whole = _in_parts(draft, chunk)
    partial, apart = whole.workload.stage(partial_name(stage.name)), (added_axis(chunk),)
    layouts = "padded" if draft.can("shared_layout") else "plain"
    fetched = fetchable(partial, apart)
    return _combined(
        tiled_kernel(whole, partial, fetched, label, layouts=layouts, apart=apart), stage
    )


def _in_parts(draft: SketchDraft, chunk: ChunkReduction) -> SketchDraft:
    """The draft with a reduction in parts."""
    workload = split_reduction(draft.workload, chunk)
    return evolve(draft, workload=workload).extended(steps=(chunk,))


def _split_products(draft: SketchDraft, stage: Stage, label: str) -> SketchDraft | None:
    """Split as :func:`_split`, with parts on tensor cores; None where these cannot multiply."""
    chunks = _chunks(draft, stage)
    if not chunks:
        return None
    whole = _in_parts(draft, chunks[0] if label == TENSOR_LABEL else _middle(chunks))
    partial = whole.workload.stage(partial_name(stage.name))
    first = tensor_kernel(whole, partial, label, _PREFIX)
    return None if first is None else _combined(first, stage)


def _middle(chunks: Sequence[ChunkReduction]) -> ChunkReduction:
    """A split between those of the fewest and of the most parts; it divides as the latter does.

    Tiles of warpgroups have at least 64 rows, and want more parts than those of warps. By the
    draft for an H100, of 12 products and convolutions in float16 it takes at most 1.1 times as
    long as the best power of two.
    """
    return evolve(chunks[0], chunks=math.isqrt(chunks[0].chunks * chunks[-1].chunks))


def _combined(parts: SketchDraft, whole: Stage) -> SketchDraft:
    """Partial results added up, each result by one thread, neighbours in vectors."""
    stage = parts.workload.stage(whole.name)
    *outer, inner = stage.spatial_axes
    widths = vector_widths(inner.extent, stage.output.dtype, parts.target)
    vectors = split(stage.name, inner, None, None, widths)
    blocks, threads, lanes = vectors.factors
    rows, at, vector = loops(stage.spatial_axes), f"{inner.name}.1", f"{inner.name}.2"
    grid = blocks * math.prod(axis.extent for axis in outer)
    return parts.extended(
        settled=[stage.name],
        splits=[vectors],
        constraints=thread_constraints(threads, grid, [(inner.extent,)], parts.target),
        steps=[
            Order(stage.name, (*rows, at, *loops(stage.reduce_axes), vector)),
            Bind(stage.name, rows, "block"),
            Bind(stage.name, (at,), "thread"),
            Vectorize(stage.name, vector),
            parts.written(stage.name, at, (const(1), lanes)),
        ],
    )
