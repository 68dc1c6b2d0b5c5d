"""Rule: multi-level tiling of a reduction on a GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.ir.workloads import Stage
from autotune.spaces.rules.access import is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_cross_thread import cross_thread_draft, suits_cross_thread
from autotune.spaces.rules.gpu_kernel import Fetched, fetchable, tiled_kernel
from autotune.spaces.rules.gpu_layouts import transposable
from autotune.spaces.rules.gpu_levels import check_gpu
from autotune.spaces.rules.gpu_split_reduction import SPLIT_LABELS, split_drafts
from autotune.spaces.rules.gpu_tensor_tiling import TENSOR_LABELS, tensor_drafts
from autotune.spaces.rules.rule import SketchRule

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
