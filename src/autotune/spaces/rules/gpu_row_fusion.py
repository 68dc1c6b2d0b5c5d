"""Rule: several stages of one row (softmax and similar) in one block of a GPU."""

from __future__ import annotations

import math

from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.workloads import Stage
from autotune.sketches import (
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

# Compilers put partial results of reductions across threads into shared memory as well.
SPARE_SHARED_BYTES = 512

LABELS = ("row-fusion-kept", "row-fusion-recomputed")


class GpuRowFusionRule(SketchRule):
    """A block for every row; its threads share each stage's part of the row.

    Reductions are made across threads. What is computed for a row stays in shared memory; where
    that is dear to compute, another sketch computes it again for every reader.
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
    longest = max(axis.extent for other in (stage, *behind) for axis in other.axes[rows:])
    params: list[Param] = [Ordinal(threads, block_threads(longest, draft.target))]
    row_loops = tuple(f"{axis.name}.0" for axis in stage.axes[:rows])
    steps: list[Step] = [Inline(other.name) for other in reversed(inlined)]
    steps += _spread(draft, stage, rows, var(threads), params)
    steps.insert(len(inlined), Bind(stage.name, row_loops, "block"))
    for producer in reversed(behind):
        if producer in inlined:
            continue
        steps.append(FuseProducer(producer.name, stage.name, row_loops[-1], 1))
        steps += _spread(draft, producer, rows, var(threads), params)
    params.append(Ordinal(unroll, UNROLL_LIMITS))
    steps.append(UnrollLimit(stage.name, var(unroll)))
    return draft.extended(
        settled=[stage.name, *(other.name for other in behind)],
        label=label,
        params=params,
        steps=steps,
    )


def _spread(
    draft: SketchDraft, stage: Stage, rows: int, threads: IntExpr, params: list[Param]
) -> list[Step]:
    """One stage's part of a row over the threads: in vectors, or as a reduction across them."""
    name, axis = stage.name, stage.axes[-1]
    if not is_pointwise(stage):
        axis = stage.reduce_axes[-1]
        return [
            TileCeil(name, axis.name, cover_factors(axis.extent, threads)),
            Bind(name, (f"{axis.name}.1",), "thread"),
        ]
    widths = vector_widths(axis.extent, stage.output.dtype, draft.target)
    lanes: IntExpr = const(1)
    if len(widths) > 1:
        params.append(Ordinal(f"{name}.lanes", widths))
        lanes = var(f"{name}.lanes")
    outer = tuple(f"{other.name}.0" for other in stage.axes)
    return [
        TileCeil(name, axis.name, cover_factors(axis.extent, threads, lanes)),
        Order(name, (*outer, f"{axis.name}.1", f"{axis.name}.2")),
        Bind(name, (f"{axis.name}.1",), "thread"),
        Vectorize(name, f"{axis.name}.2"),
    ]
