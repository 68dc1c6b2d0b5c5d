"""Kernel of a GPU: a reduction tiled over blocks, threads and the loops of a thread.

The nest, for spatial axes ``x`` and reduce axes ``r``, each level over all axes: ``x.0`` blocks,
``x.1`` virtual threads, ``x.2`` threads, ``r.0``, fetch of the operands into shared memory,
``r.1 x.3 r.2 x.4``. This is the structure of Ansor's GPU sketches ("SSSRRSRS", Zheng et al.,
OSDI'20). Results are accumulated in the registers of a thread over all of ``r`` and written
once, through the epilogue if there is one.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, var
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import (
    Accumulate,
    Bind,
    Constraint,
    CooperativeFetch,
    FuseConsumer,
    Inline,
    Order,
    Ordinal,
    PadExtent,
    Param,
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
from autotune.spaces.rules.gpu_levels import UNROLL_LIMITS, GpuLevels, tile_levels

__all__ = ["Kernel", "fetchable", "inlined_operand", "tiled_kernel"]

Fetched = dict[str, tuple[AffineForm, ...]]


@frozen
class Kernel:
    """A part of a sketch that is one kernel.

    Attributes:
        settled: Stages that it computes.
        params: Its parameters.
        constraints: Those of the target, and preferences.
        steps: Its steps.
    """

    settled: frozenset[str]
    params: tuple[Param, ...]
    constraints: tuple[Constraint, ...]
    steps: tuple[Step, ...]


def fetchable(stage: Stage, apart: Collection[str] = ()) -> Fetched:
    """Operands that are read at one place, several times, without offsets or reversals.

    Axes in ``apart`` have blocks of their own, which share nothing.
    """
    found = {}
    for tensor in stage.reads:
        try:
            forms = operand_forms(stage, tensor)
        except UnsupportedWorkload:
            continue
        plain = is_affine(forms) and all(
            form.constant == 0 and all(c > 0 for c in form.coefficients.values()) for form in forms
        )
        overlapping = any(len(form.coefficients.keys() - set(apart)) > 1 for form in forms)
        reused = overlapping or not all(
            depends_on(forms, axis.name)
            for axis in stage.spatial_axes
            if axis.extent > 1 and axis.name not in apart
        )
        if plain and reused:
            found[tensor] = forms
    return found


def tiled_kernel(
    draft: SketchDraft,
    workload: Workload,
    stage: Stage,
    fetched: Fetched,
    *,
    layouts: str = "plain",
    apart: Collection[str] = (),
) -> Kernel:
    """A reduction as a kernel, with the point-wise stages around it that it can compute.

    Args:
        draft: What is decided so far; an epilogue is for a stage that nothing splits.
        workload: What is scheduled, with the stages that split reductions have added.
        stage: The reduction.
        fetched: Its operands that go through shared memory.
        layouts: How they lie there, of :data:`autotune.spaces.rules.gpu_levels.LAYOUTS`.
        apart: Spatial axes that have a block for each value; those of others are not padded then.
    """
    can_pad = not apart and draft.can("pad_extent")
    paddable = {axis.name for axis in stage.spatial_axes if can_pad}
    levels = tile_levels(
        workload,
        stage,
        draft.target,
        draft.limits,
        fetched,
        paddable,
        layouts=layouts,
        whole=apart,
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
        if inlined_operand(draft, workload, stage, tensor, copied=tensor in fetched):
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
    return Kernel(
        frozenset(settled),
        (*levels.params, Ordinal(unroll, UNROLL_LIMITS)),
        levels.constraints,
        tuple(steps),
    )


def inlined_operand(
    draft: SketchDraft, workload: Workload, stage: Stage, tensor: str, *, copied: bool
) -> bool:
    """Return whether an operand is computed where it is read, or on the way into its copy."""
    producer = producer_stage(workload, tensor)
    return (
        producer is not None
        and is_pointwise(producer)
        and tensor not in workload.outputs
        and workload.consumers(tensor) == (stage,)
        and not is_gathered(workload, tensor)
        and (copied or not is_expensive(producer))
        and draft.can("inline")
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
