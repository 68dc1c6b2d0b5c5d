"""Rule: multi-level tiling of a reduction on a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.ir.expressions import var
from autotune.ir.workloads import Stage
from autotune.sketches import Bind, Inline, Order, Ordinal, Param, Step, TileCeil, UnrollLimit
from autotune.spaces.rules.access import is_expensive, is_pointwise, producer_stage
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_elementwise import gpu_pointwise
from autotune.spaces.rules.gpu_kernel import Fetched, fetchable, tiled_kernel
from autotune.spaces.rules.gpu_layouts import transposable
from autotune.spaces.rules.gpu_levels import UNROLL_LIMITS, block_threads, check_gpu, cover_factors
from autotune.spaces.rules.gpu_split_reduction import SPLIT_LABELS, split_drafts
from autotune.spaces.rules.gpu_tensor_tiling import TENSOR_LABELS, tensor_drafts
from autotune.spaces.rules.rule import SketchRule
from autotune.targets import Target

LABELS = (*TENSOR_LABELS, "shared", "shared-transposed", "direct", "cross-thread", *SPLIT_LABELS)

# A reduction of more steps than this per result gains by what its threads fetch together.
_SHORT_REDUCTION = 64


class GpuTilingRule(SketchRule):
    """Tiles a reduction: through shared memory, directly from global memory, across threads.

    Operands go through shared memory where several threads read the same elements; where rows of
    an operand lie along the reduction, they are also laid out along results. Reading them
    directly is tried as well for short reductions. Reductions with few results are also split
    across the threads of a block, and long ones with too few results for all multiprocessors
    across blocks. Products of matrices that tensor cores multiply are tiled for these as well. A
    second such stage of the same workload is treated like the first.
    """

    name = "gpu-tiling"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if is_pointwise(stage):
            return None
        check_gpu(draft.target)
        fetched = fetchable(stage)
        tileable = any(axis.extent > 1 for axis in stage.spatial_axes)
        reduce = math.prod(axis.extent for axis in stage.reduce_axes)
        choices = tensor_drafts(draft, stage)
        if tileable and fetched:
            padded = draft.can("shared_layout")
            layouts = "padded" if padded else "plain"
            choices["shared"] = _tiled(draft, stage, fetched, "shared", layouts)
            if padded and _has_rows_to_turn(stage, fetched):
                label = "shared-transposed"
                choices[label] = _tiled(draft, stage, fetched, label, "transposed")
        if tileable and (not fetched or reduce <= _SHORT_REDUCTION):
            choices["direct"] = _tiled(draft, stage, {}, "direct")
        if not tileable or suits_cross_thread(stage, draft.target):
            choices["cross-thread"] = cross_thread_draft(draft, stage)
        choices |= split_drafts(draft, stage)
        taken = [label for label in choices if label in draft.labels]
        if taken and _is_first_product(draft, stage, choices):
            on_tensor_cores = [choices[it] for it in TENSOR_LABELS if it in choices]
            return [*on_tensor_cores, choices[taken[0]]]
        return [choices[taken[0]]] if taken else list(choices.values())


def _is_first_product(
    draft: SketchDraft, stage: Stage, choices: Mapping[str, SketchDraft]
) -> bool:
    """Return whether tensor cores compute a stage, and none of those that are decided already."""
    decided = [
        other
        for other in draft.workload.stages
        if other.name in draft.settled and not is_pointwise(other)
    ]
    computed = not choices.keys().isdisjoint(TENSOR_LABELS)
    return computed and not any(tensor_drafts(draft, other) for other in decided)


def _has_rows_to_turn(stage: Stage, fetched: Fetched) -> bool:
    """Return whether rows along results differ from the operands' own, for some operand."""
    tiled = [axis.name for axis in stage.axes if axis.extent > 1]
    return any(transposable(stage, forms, tiled) is not None for forms in fetched.values())


def _tiled(
    draft: SketchDraft, stage: Stage, fetched: Fetched, label: str, layouts: str = "plain"
) -> SketchDraft:
    kernel = tiled_kernel(draft, draft.workload, stage, fetched, layouts=layouts)
    return draft.extended(
        settled=kernel.settled,
        label=label,
        params=kernel.params,
        constraints=kernel.constraints,
        steps=kernel.steps,
    )


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
            and draft.can("inline")
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
