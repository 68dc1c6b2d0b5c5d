"""Rule: several stages of one row (softmax and similar) in one block of a GPU."""

from __future__ import annotations

import math

from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.workloads import Stage
from autotune.sketches import (
    AtMost,
    Bind,
    FuseProducer,
    Inline,
    Order,
    Ordinal,
    Param,
    Step,
    TileCeil,
    UnrollLimit,
    Vectorize,
)
from autotune.spaces.rules.access import is_expensive, is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_levels import (
    UNROLL_LIMITS,
    block_threads,
    check_gpu,
    cover_factors,
    vector_widths,
)
from autotune.spaces.rules.rows import rows_behind
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.vector_levels import Levels, split_levels

# Compilers put partial results of reductions across threads into shared memory as well.
SPARE_SHARED_BYTES = 512

ROWS_OF_A_BLOCK = (1, 2, 4, 8)
# By the draft model, longer rows gain at most 2 %: a row of 64 threads fills a multiprocessor.
SHORT_ROW = 512

LABELS = ("row-fusion-kept", "row-fusion-recomputed")


class GpuRowFusionRule(SketchRule):
    """A block for one row or, where rows are short, several; threads share each stage's part.

    Reductions are made across the threads of a row. What is computed for a row stays in shared
    memory; where that is dear to compute, another sketch computes it again for every reader.
    """

    name = "gpu-row-fusion"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        found = rows_behind(draft, stage)
        if found is None or draft.workload.consumers(stage.name):
            return None
        behind, rows = found
        reductions = [other for other in behind if not is_pointwise(other)]
        if any(len(other.spatial_axes) > rows for other in reductions):
            return None
        check_gpu(draft.target)
        # A value for the whole row is computed by each reader.
        inlined = [s for s in behind if is_pointwise(s) and len(s.axes) == rows]
        long = [s for s in behind if is_pointwise(s) and s not in inlined]
        kept = reductions + long
        size = sum(math.prod(s.output.shape[rows:]) * _bytes(s) for s in kept)
        result = []
        if size <= draft.target.shared_memory_bytes - SPARE_SHARED_BYTES:
            result.append(_fused(draft, stage, behind, rows, inlined, LABELS[0]))
        if not result or any(is_expensive(other) for other in long):
            result.append(_fused(draft, stage, behind, rows, inlined + long, LABELS[1]))
        return result


def _bytes(stage: Stage) -> int:
    return stage.output.bytes // stage.output.elements


def _fused(
    draft: SketchDraft,
    stage: Stage,
    behind: list[Stage],
    rows: int,
    inlined: list[Stage],
    label: str,
) -> SketchDraft:
    threads, unroll = f"{stage.name}.threads", f"{stage.name}.unroll"
    fused = [other for other in behind if other not in inlined]
    longest = max(axis.extent for other in (stage, *behind) for axis in other.axes[rows:])
    params: list[Param] = [Ordinal(threads, block_threads(longest, draft.target))]
    last = stage.axes[rows - 1].name
    row_loops = tuple(f"{axis.name}.0" for axis in stage.axes[:rows])
    steps: list[Step] = [Inline(other.name) for other in reversed(inlined)]
    several = _rows_of_a_block(draft, stage, rows, fused, longest)
    if several.params:
        params += several.params
        steps.append(several.tile(stage.name, last))
    place = f"{last}.1" if several.params else ""
    steps.append(Bind(stage.name, row_loops, "block"))
    steps += _spread(draft, stage, rows, var(threads), params, place)
    for producer in reversed(fused):
        steps.append(FuseProducer(producer.name, stage.name, row_loops[-1], 1))
        place = f"{producer.spatial_axes[rows - 1].name}.0" if several.params else ""
        steps += _spread(draft, producer, rows, var(threads), params, place)
    params.append(Ordinal(unroll, UNROLL_LIMITS))
    steps.append(UnrollLimit(stage.name, var(unroll)))
    constraints = list(several.constraints)
    if several.params:
        source = f"target {draft.target.name}: threads of a block"
        together = several.factors[1] * var(threads)
        constraints.append(AtMost(together, draft.target.max_threads_per_block, source))
    return draft.extended(
        settled=[stage.name, *(other.name for other in behind)],
        label=label,
        params=params,
        constraints=constraints,
        steps=steps,
    )


def _rows_of_a_block(
    draft: SketchDraft, stage: Stage, rows: int, fused: list[Stage], longest: int
) -> Levels:
    """Levels of the last row axis: blocks, and the rows of one; none where a block has one row."""
    axis = stage.axes[rows - 1]
    row_bytes = sum(math.prod(other.output.shape[rows:]) * _bytes(other) for other in fused)
    most = (draft.target.shared_memory_bytes - SPARE_SHARED_BYTES) // max(row_bytes, 1)
    choices = tuple(n for n in ROWS_OF_A_BLOCK if axis.extent % n == 0 and n <= most)
    if longest > SHORT_ROW or len(choices) < 2:
        return Levels()
    return split_levels(f"{stage.name}.{axis.name}", axis.extent, choices)


def _spread(
    draft: SketchDraft,
    stage: Stage,
    rows: int,
    threads: IntExpr,
    params: list[Param],
    place: str,
) -> list[Step]:
    """Spread a stage's part of a row over the threads: in vectors, or as a reduction across them.

    ``place`` is the loop over the rows of a block, which have threads of their own; empty where
    a block has one row.
    """
    name, axis = stage.name, stage.axes[-1]
    apart = [Bind(name, (place,), "thread_y")] if place else []
    if not is_pointwise(stage):
        axis = stage.reduce_axes[-1]
        return [
            TileCeil(name, axis.name, cover_factors(axis.extent, threads)),
            *apart,
            Bind(name, (f"{axis.name}.1",), "thread"),
        ]
    widths = vector_widths(axis.extent, stage.output.dtype, draft.target)
    lanes: IntExpr = const(1)
    if len(widths) > 1:
        params.append(Ordinal(f"{name}.lanes", widths))
        lanes = var(f"{name}.lanes")
    outer = [f"{other.name}.0" for other in stage.axes]
    if place and place not in outer:
        outer.insert(rows, place)
    return [
        TileCeil(name, axis.name, cover_factors(axis.extent, threads, lanes)),
        Order(name, (*outer, f"{axis.name}.1", f"{axis.name}.2")),
        *apart,
        Bind(name, (f"{axis.name}.1",), "thread"),
        Vectorize(name, f"{axis.name}.2"),
    ]
