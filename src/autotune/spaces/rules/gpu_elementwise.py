"""Rule: a pointwise stage as a kernel of its own."""

from __future__ import annotations

from autotune.ir.expressions import const, var
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    AtMost,
    Bind,
    Constraint,
    Factor,
    Order,
    Ordinal,
    Param,
    ProductEquals,
    Step,
    Tile,
    TileCeil,
    Vectorize,
)
from autotune.spaces.rules.access import is_pointwise
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_levels import (
    block_threads,
    check_gpu,
    cover_factors,
    thread_constraints,
    thread_counts,
    vector_widths,
)
from autotune.spaces.rules.rule import SketchRule

# Elements along a row that one thread computes one after the other.
_MAX_SERIAL = 8


class GpuElementwiseRule(SketchRule):
    """Blocks and threads over the two innermost axes, vectors along the innermost."""

    name = "gpu-elementwise"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        return [gpu_pointwise(draft, stage)] if is_pointwise(stage) else None


def gpu_pointwise(draft: SketchDraft, stage: Stage) -> SketchDraft:
    """The draft with a pointwise stage as a kernel of its own.

    The two innermost axes are split into blocks, threads and loops of a thread. Where their
    extents have no factors that make whole warps, threads cover the innermost axis alone and
    the last of them are idle.
    """
    check_gpu(draft.target)
    axes = [axis for axis in stage.axes if axis.extent > 1][-2:]
    if not axes:
        loops = tuple(f"{axis.name}.0" for axis in stage.axes)
        steps = [Bind(stage.name, loops, "block")] if loops else []
        return draft.extended(settled=[stage.name], steps=steps)
    counts = thread_counts([(axis.extent,) for axis in axes], draft.target)
    whole = any(count % draft.target.warp_size == 0 for count in counts)
    if whole or axes[-1].extent <= draft.target.warp_size:
        return _tiled(draft, stage, axes)
    return _covered(draft, stage, axes[-1])


def _tiled(draft: SketchDraft, stage: Stage, axes: list[Axis]) -> SketchDraft:
    target = draft.target
    names = {axis.name: [f"{stage.name}.{axis.name}.{n}" for n in range(3)] for axis in axes}
    vector = axes[-1]
    widths = vector_widths(vector.extent, stage.output.dtype, target)
    params: list[Param] = []
    constraints: list[Constraint] = []
    for axis in axes:
        *outer, last = names[axis.name]
        params += [Factor(name) for name in outer]
        params.append(Factor(last, widths) if axis is vector else Factor(last))
        constraints.append(ProductEquals((*outer, last), const(axis.extent)))
    threads, grid = const(1), const(1)
    for axis in axes:
        grid = grid * var(names[axis.name][0])
        threads = threads * var(names[axis.name][1])
    rest = [axis for axis in stage.axes if axis not in axes]
    for axis in rest:
        grid = grid * axis.extent
    extents = [(axis.extent,) for axis in axes]
    constraints += thread_constraints(threads, grid, extents, target)
    if len(axes) > 1:
        serial = var(names[axes[0].name][2])
        constraints.append(AtMost(serial, _MAX_SERIAL, "rows of a thread", hard=False))
    loops = [f"{axis.name}.0" for axis in stage.axes]
    inner = [f"{axis.name}.1" for axis in axes]
    steps: list[Step] = [
        *(
            Tile(stage.name, axis.name, tuple(var(name) for name in names[axis.name]))
            for axis in axes
        ),
        Order(stage.name, (*loops, *inner, *(f"{axis.name}.2" for axis in axes))),
        Bind(stage.name, tuple(loops), "block"),
        Bind(stage.name, tuple(inner), "thread"),
        Vectorize(stage.name, f"{vector.name}.2"),
    ]
    return draft.extended(
        settled=[stage.name], params=params, constraints=constraints, steps=steps
    )


def _covered(draft: SketchDraft, stage: Stage, axis: Axis) -> SketchDraft:
    name = f"{stage.name}.threads"
    lanes = f"{stage.name}.lanes"
    widths = vector_widths(axis.extent, stage.output.dtype, draft.target)
    threads, width = var(name), var(lanes)
    order = [f"{other.name}.0" for other in stage.axes]
    steps: list[Step] = [
        TileCeil(stage.name, axis.name, cover_factors(axis.extent, threads, width)),
        Order(stage.name, (*order, f"{axis.name}.1", f"{axis.name}.2")),
        Bind(stage.name, tuple(order), "block"),
        Bind(stage.name, (f"{axis.name}.1",), "thread"),
        Vectorize(stage.name, f"{axis.name}.2"),
    ]
    params = [Ordinal(name, block_threads(axis.extent, draft.target)), Ordinal(lanes, widths)]
    return draft.extended(settled=[stage.name], params=params, steps=steps)
