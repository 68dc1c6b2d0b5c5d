"""Rule: a pointwise stage as a parallel, vectorised loop nest of its own."""

from __future__ import annotations

import math

from autotune.ir.expressions import const, var
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    AtLeast,
    Factor,
    Order,
    Parallel,
    ProductEquals,
    Step,
    Tile,
    Vectorize,
)
from autotune.spaces.rules.access import (
    depends_on,
    dimension_of,
    is_pointwise,
    largest_divisor,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.vector_levels import is_covered, vector_levels

# Rows of a tile: those of a cache line of the source, or a few.
_TILE_ROWS = (4, 8, 16, 32, 64)
# Rows for each core above which rows alone are enough to share.
_ROWS_FOR_CORES = 4


class ElementwiseRule(SketchRule):
    """Outer axes parallel, the innermost axis in vectors of a searched width.

    A single number has no loops, and no choices.
    """

    name = "elementwise"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        if not is_pointwise(stage):
            return None
        if not stage.axes:
            return [draft.extended(settled=[stage.name])]
        *outer, inner = stage.axes
        lanes = draft.target.lanes(stage.output.dtype)
        rows = math.prod(axis.extent for axis in outer)
        if is_covered(draft, stage, inner) and rows >= _ROWS_FOR_CORES * draft.target.cores:
            return [_in_rows(draft, stage), *_in_tiles(draft, stage)]
        name = f"{stage.name}.{inner.name}"
        widths = tuple(
            width
            for width in (lanes, 2 * lanes, 4 * lanes)
            if width <= inner.extent and inner.extent % width == 0
        ) or (largest_divisor(inner.extent, lanes),)
        params = [Factor(f"{name}.0"), Factor(f"{name}.1"), Factor(f"{name}.2", widths)]
        factors = tuple(var(param.name) for param in params)
        loops = [f"{axis.name}.0" for axis in outer]
        steps: list[Step] = [
            Tile(stage.name, inner.name, factors),
            Order(stage.name, (*loops, *(f"{inner.name}.{level}" for level in range(3)))),
            Parallel(stage.name, (*loops, f"{inner.name}.0")),
            Vectorize(stage.name, f"{inner.name}.2"),
        ]
        constraints = [
            ProductEquals(tuple(param.name for param in params), const(inner.extent)),
        ]
        parallel = var(f"{name}.0")
        for axis in outer:
            parallel = parallel * axis.extent
        cores = draft.target.cores
        enough: list[AtLeast] = []
        if stage.points // widths[0] >= cores:
            enough.append(AtLeast(parallel, cores, "every core gets work", hard=False))
        plain = draft.extended(
            settled=[stage.name],
            params=params,
            constraints=[*constraints, *enough],
            steps=steps,
        )
        return [plain, *_in_tiles(draft, stage)]


def _in_rows(draft: SketchDraft, stage: Stage) -> SketchDraft:
    """Rows in parallel, each in whole vectors but for its last."""
    lanes, inner = draft.target.lanes(stage.output.dtype), stage.axes[-1]
    levels = vector_levels(draft, stage, (lanes, 2 * lanes, 4 * lanes))
    rows = tuple(f"{axis.name}.0" for axis in stage.axes[:-1])
    return draft.extended(
        settled=[stage.name],
        params=levels.params,
        constraints=levels.constraints,
        steps=[
            levels.tile(stage.name, inner.name),
            Order(stage.name, (*rows, f"{inner.name}.0", f"{inner.name}.1")),
            Parallel(stage.name, rows),
            Vectorize(stage.name, f"{inner.name}.1"),
        ],
    )


def _in_tiles(draft: SketchDraft, stage: Stage) -> list[SketchDraft]:
    """The stage in tiles of two axes, where it reads something contiguous along another axis.

    Row by row, each element that it reads is of another cache line; all of a line are used within
    a tile. Only in workloads where nothing else has several sketches, which would multiply.
    """
    across = _contiguous_across(stage)
    alone = all(other.combiner is None for other in draft.workload.stages)
    if across is None or draft.labels or not alone:
        return []
    rows = tuple(count for count in _TILE_ROWS if across.extent % count == 0)
    inner = stage.axes[-1]
    width = largest_divisor(inner.extent, draft.target.lanes(stage.output.dtype))
    if not rows or width == 1:
        return []
    tall = [f"{stage.name}.{across.name}.{level}" for level in range(2)]
    wide = [f"{stage.name}.{inner.name}.{level}" for level in range(3)]
    others = [axis for axis in stage.axes if axis.name not in (across.name, inner.name)]
    shared = (*(f"{axis.name}.0" for axis in others), f"{across.name}.0", f"{inner.name}.0")
    tile = (f"{across.name}.1", f"{inner.name}.1", f"{inner.name}.2")
    parallel = var(tall[0]) * var(wide[0])
    for axis in others:
        parallel = parallel * axis.extent
    enough = stage.points // (rows[0] * width) >= draft.target.cores
    return [
        draft.extended(
            settled=[stage.name],
            label="transposed-tiles",
            params=[
                *(Factor(tall[0]), Factor(tall[1], rows)),
                *(Factor(wide[0]), Factor(wide[1]), Factor(wide[2], (width,))),
            ],
            constraints=[
                ProductEquals(tuple(tall), const(across.extent)),
                ProductEquals(tuple(wide), const(inner.extent)),
                *(
                    [AtLeast(parallel, draft.target.cores, "every core gets work", hard=False)]
                    if enough
                    else []
                ),
            ],
            steps=[
                Tile(stage.name, across.name, tuple(var(name) for name in tall)),
                Tile(stage.name, inner.name, tuple(var(name) for name in wide)),
                Order(stage.name, (*shared, *tile)),
                Parallel(stage.name, shared),
                Vectorize(stage.name, tile[-1]),
            ],
        )
    ]


def _contiguous_across(stage: Stage) -> Axis | None:
    """The axis, not the innermost, along which a read that the innermost moves is contiguous."""
    inner = stage.axes[-1].name
    for load in stage.loads:
        forms = stage.forms(load)
        for axis in stage.axes[:-1]:
            if depends_on(forms, inner) and dimension_of(forms, axis.name) == len(forms) - 1:
                return axis
    return None


def root_copy_steps(stage: Stage, lanes: int) -> list[Step]:
    """A pointwise stage that feeds another, without parameters: parallel rows, vector inside."""
    if not stage.axes:
        return []
    *outer, inner = stage.axes
    width = largest_divisor(inner.extent, lanes)
    parallel = tuple(f"{axis.name}.0" for axis in outer[: max(1, len(outer) - 1)])
    steps: list[Step] = [
        Tile(stage.name, inner.name, (const(inner.extent // width), const(width))),
        Order(
            stage.name,
            (*(f"{axis.name}.0" for axis in outer), f"{inner.name}.0", f"{inner.name}.1"),
        ),
    ]
    if outer:
        steps.append(Parallel(stage.name, parallel))
    if width > 1:
        steps.append(Vectorize(stage.name, f"{inner.name}.1"))
    return steps
