"""Rule: a pointwise stage as a parallel, vectorised loop nest of its own."""

from __future__ import annotations

from autotune.ir.expressions import const, var
from autotune.ir.workloads import Stage
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
from autotune.spaces.rules.access import is_pointwise, largest_divisor
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.rule import SketchRule


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
        return [
            draft.extended(
                settled=[stage.name],
                params=params,
                constraints=[*constraints, *enough],
                steps=steps,
            )
        ]


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
