"""Rule: multi-level tiling of a reduction on a GPU.

The nest, for spatial axes ``x`` and reduce axes ``r``, each level over all axes: ``x.0`` blocks,
``x.1`` virtual threads, ``x.2`` threads, ``r.0``, fetch of the operands into shared memory,
``r.1 x.3 r.2 x.4``. This is the structure of Ansor's GPU sketches ("SSSRRSRS", Zheng et al.,
OSDI'20). Results are accumulated in the registers of a thread over all of ``r`` and written
once, through the epilogue if there is one.
"""

from __future__ import annotations

import math

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, var
from autotune.ir.workloads import Stage
from autotune.sketches import (
    Accumulate,
    Bind,
    CooperativeFetch,
    FuseConsumer,
    Inline,
    Order,
    Ordinal,
    PadExtent,
    Step,
    Tile,
    UnrollLimit,
)
from autotune.spaces.rules.access import (
    depends_on,
    is_affine,
    is_expensive,
    is_gathered,
    is_pointwise,
    operand_forms,
    producer_stage,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_cross_thread import cross_thread_draft, suits_cross_thread
from autotune.spaces.rules.gpu_layouts import transposable
from autotune.spaces.rules.gpu_levels import UNROLL_LIMITS, GpuLevels, check_gpu, tile_levels
from autotune.spaces.rules.rule import SketchRule

LABELS = ("shared", "shared-transposed", "direct", "cross-thread")

# A reduction of more steps than this per result gains by what its threads fetch together.
_SHORT_REDUCTION = 64


class GpuTilingRule(SketchRule):
    """Tiles a reduction: through shared memory, directly from global memory, across threads.

    Operands go through shared memory where several threads read the same elements; where rows of
    an operand lie along the reduction, they are also laid out along results. Reading them
    directly is tried as well for short reductions. Reductions with few results are also split
    across the threads of a block. A second such stage of the same workload is treated like the
    first.
    """

    name = "gpu-tiling"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if is_pointwise(stage):
            return None
        check_gpu(draft.target)
        fetched = _fetchable(stage)
        tileable = any(axis.extent > 1 for axis in stage.spatial_axes)
        reduce = math.prod(axis.extent for axis in stage.reduce_axes)
        choices: dict[str, SketchDraft] = {}
        if tileable and fetched:
            padded = draft.can("shared_layout")
            choices["shared"] = _tiled(draft, stage, fetched, "padded" if padded else "plain")
            if padded and _has_rows_to_turn(stage, fetched):
                label = "shared-transposed"
                choices[label] = _tiled(draft, stage, fetched, "transposed", label)
        if tileable and (not fetched or reduce <= _SHORT_REDUCTION):
            choices["direct"] = _tiled(draft, stage, {}, label="direct")
        if not tileable or suits_cross_thread(stage, draft.target):
            choices["cross-thread"] = cross_thread_draft(draft, stage)
        taken = [label for label in choices if label in draft.labels]
        return [choices[taken[0]]] if taken else list(choices.values())


def _fetchable(stage: Stage) -> dict[str, tuple[AffineForm, ...]]:
    """Operands that are read at one place, several times, without offsets or reversals."""
    found = {}
    for tensor in stage.reads:
        try:
            forms = operand_forms(stage, tensor)
        except UnsupportedWorkload:
            continue
        plain = is_affine(forms) and all(
            form.constant == 0 and all(c > 0 for c in form.coefficients.values()) for form in forms
        )
        overlapping = any(len(form.coefficients) > 1 for form in forms)
        reused = overlapping or not all(
            depends_on(forms, axis.name) for axis in stage.spatial_axes if axis.extent > 1
        )
        if plain and reused:
            found[tensor] = forms
    return found


def _has_rows_to_turn(stage: Stage, fetched: dict[str, tuple[AffineForm, ...]]) -> bool:
    """Whether rows along results differ from the operands' own, for some operand."""
    tiled = [axis.name for axis in stage.axes if axis.extent > 1]
    return any(transposable(stage, forms, tiled) is not None for forms in fetched.values())


def _tiled(
    draft: SketchDraft,
    stage: Stage,
    fetched: dict[str, tuple[AffineForm, ...]],
    layouts: str = "plain",
    label: str = "shared",
) -> SketchDraft:
    paddable = {axis.name for axis in stage.spatial_axes if draft.can_pad(stage, axis)}
    levels = tile_levels(
        draft.workload, stage, draft.target, draft.limits, fetched, paddable, layouts=layouts
    )
    spatial = [axis.name for axis in stage.spatial_axes]
    tiled = levels.tiled(spatial)
    steps: list[Step] = [
        *(PadExtent(stage.name, axis, extent) for axis, extent in levels.padded.items()),
        *(Tile(stage.name, axis, factors) for axis, factors in levels.factors.items()),
        Order(stage.name, _order(stage, levels)),
        Bind(stage.name, tuple(f"{axis}.0" for axis in spatial), "block"),
        Bind(stage.name, tuple(f"{axis}.1" for axis in tiled), "vthread"),
        Bind(stage.name, tuple(f"{axis}.2" for axis in tiled), "thread"),
    ]
    settled = {stage.name}
    at = f"{stage.reduce_axes[-1].name}.0"
    for tensor in stage.reads:
        if tensor in fetched:
            lanes = levels.fetch_lanes[tensor]
            steps.append(CooperativeFetch(stage.name, tensor, at, levels.threads, lanes))
            laid_out = levels.layouts[tensor].step(stage.name, tensor)
            steps += [] if laid_out is None else [laid_out]
        if _inlined(draft, stage, tensor, copied=tensor in fetched):
            steps.append(Inline(tensor))
            settled.add(tensor)
    consumer = draft.epilogues.get(stage.name)
    tile_loop = f"{tiled[-1]}.2"
    if consumer is None:
        steps.append(Accumulate(stage.name, tile_loop, levels.write_factors))
    else:
        steps.append(FuseConsumer(consumer, stage.name, tile_loop, levels.write_factors))
    unroll = f"{stage.name}.unroll"
    steps.append(UnrollLimit(stage.name, var(unroll)))
    return draft.extended(
        settled=settled,
        label=label,
        params=(*levels.params, Ordinal(unroll, UNROLL_LIMITS)),
        constraints=levels.constraints,
        steps=steps,
    )


def _inlined(draft: SketchDraft, stage: Stage, tensor: str, *, copied: bool) -> bool:
    """Whether an operand is computed where it is read, or on the way into its copy."""
    producer = producer_stage(draft.workload, tensor)
    return (
        producer is not None
        and is_pointwise(producer)
        and tensor not in draft.workload.outputs
        and draft.workload.consumers(tensor) == (stage,)
        and not is_gathered(draft.workload, tensor)
        and (copied or not is_expensive(producer))
        and draft.can("inline.into_copy" if copied else "inline.into_reduction")
    )


def _order(stage: Stage, levels: GpuLevels) -> tuple[str, ...]:
    spatial = [axis.name for axis in stage.spatial_axes]
    reduce = [axis.name for axis in stage.reduce_axes]
    tiled, split = levels.tiled(spatial), levels.tiled(reduce)
    depth = max(len(levels.factors[axis]) for axis in tiled)
    loops = [f"{axis}.0" for axis in spatial]
    loops += [f"{axis}.{level}" for level in (1, 2) for axis in tiled]
    loops += [f"{axis}.0" for axis in reduce]
    loops += [f"{axis}.1" for axis in split]
    loops += [f"{axis}.3" for axis in tiled]
    if depth > 4:
        loops += [f"{axis}.2" for axis in split]
        loops += [f"{axis}.4" for axis in tiled]
    return tuple(loops)
