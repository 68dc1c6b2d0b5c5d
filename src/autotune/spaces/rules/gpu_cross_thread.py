"""Reductions that the threads of a block share: partial results, combined across threads."""

from __future__ import annotations

import math

from autotune.ir.expressions import var
from autotune.ir.workloads import Stage
from autotune.sketches import Bind, Inline, Order, Ordinal, Param, Step, TileCeil, UnrollLimit
from autotune.spaces.rules.access import is_expensive, is_pointwise, producer_stage
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_elementwise import gpu_pointwise
from autotune.spaces.rules.gpu_levels import UNROLL_LIMITS, block_threads, cover_factors
from autotune.targets import Target


def suits_cross_thread(stage: Stage, target: Target) -> bool:
    """Return whether a thread for each result would leave most of the GPU idle."""
    results = math.prod(axis.extent for axis in stage.spatial_axes)
    terms = max(axis.extent for axis in stage.reduce_axes)
    return results <= target.multiprocessors * target.warp_size and terms >= 4 * target.warp_size


def cross_thread_draft(draft: SketchDraft, stage: Stage) -> SketchDraft:
    """A block for each result; its threads share the longest reduce axis.

    An epilogue becomes a kernel of its own.
    """
    shared = max(stage.reduce_axes, key=lambda axis: axis.extent)
    threads = f"{stage.name}.threads"
    unroll = f"{stage.name}.unroll"
    params: list[Param] = [
        Ordinal(threads, block_threads(shared.extent, draft.target)),
        Ordinal(unroll, UNROLL_LIMITS),
    ]
    spatial = tuple(f"{axis.name}.0" for axis in stage.spatial_axes)
    others = tuple(f"{axis.name}.0" for axis in stage.reduce_axes if axis is not shared)
    steps: list[Step] = []
    settled = [stage.name]
    for tensor in stage.reads:
        producer = producer_stage(draft.workload, tensor)
        if (
            producer is not None
            and is_pointwise(producer)
            and tensor not in draft.workload.outputs
            and draft.workload.consumers(tensor) == (stage,)
            and not is_expensive(producer)
            and draft.can("inline.into_reduction")
        ):
            steps.append(Inline(tensor))
            settled.append(tensor)
    steps += [
        TileCeil(stage.name, shared.name, cover_factors(shared.extent, var(threads))),
        Order(stage.name, (*spatial, *others, f"{shared.name}.0", f"{shared.name}.1")),
    ]
    if spatial:
        steps.append(Bind(stage.name, spatial, "block"))
    steps.append(Bind(stage.name, (f"{shared.name}.1",), "thread"))
    steps.append(UnrollLimit(stage.name, var(unroll)))
    made = draft.extended(settled=settled, label="cross-thread", params=params, steps=steps)
    consumer = draft.epilogues.get(stage.name)
    return made if consumer is None else gpu_pointwise(made, draft.workload.stage(consumer))
