"""Rule: a scan as a loop nest of its own, in order along its axis."""

from __future__ import annotations

import math

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import AtLeast, Order, Parallel, Step, Unroll, Vectorize
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.rule import SketchRule
from autotune.spaces.rules.vector_levels import Levels, is_covered, split_levels, vector_levels

__all__ = ["ScanRule"]

# Rows that are continued in turns: an addition takes four cycles, and two can begin in each.
_ROWS = range(1, 17)
# Vectors of neighbours that are continued together: as many lines are read side by side.
_VECTORS = (1, 2, 4, 8)


class ScanRule(SketchRule):
    """The other axes in parallel; inside their tiles the axis of the scan, in its order.

    What is innermost continues several results at once: a searched number of vectors where a
    scan runs along another axis than the last, of rows where it runs along them. What feeds a
    scan is computed before it.
    """

    name = "scan"

    def apply(self, draft: SketchDraft, stage: Stage) -> list[SketchDraft] | None:
        axis = stage.scan_axis
        if axis is None:
            return None
        if draft.target.kind != "cpu":
            raise UnsupportedWorkload(
                f"stage {stage.name!r} scans along {axis.name!r}: there are no sketches of scans "
                f"for targets of kind {draft.target.kind!r}"
            )
        others = [other for other in stage.axes if other is not axis]
        if not others:
            return [_serial(draft, stage, axis)]
        if stage.axes[-1] is axis:
            return [_of_rows(draft, stage, axis, others)]
        return [_of_columns(draft, stage, axis, others)]


def _serial(draft: SketchDraft, stage: Stage, axis: Axis) -> SketchDraft:
    """One sequence: nothing to choose."""
    return draft.extended(settled=[stage.name], steps=[Order(stage.name, (f"{axis.name}.0",))])


def _of_rows(draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis]) -> SketchDraft:
    """Sums of neighbours wait for each other, those of several rows do not."""
    *outer, row = others
    counts = tuple(count for count in _ROWS if row.extent % count == 0)
    levels = split_levels(f"{stage.name}.{row.name}", row.extent, counts)
    shared = (*(f"{other.name}.0" for other in outer), f"{row.name}.0")
    steps = [
        levels.tile(stage.name, row.name),
        Order(stage.name, (*shared, f"{axis.name}.0", f"{row.name}.1")),
        Parallel(stage.name, shared),
        Unroll(stage.name, (f"{row.name}.1",)),
    ]
    return _extended(draft, stage, levels, outer, steps)


def _of_columns(draft: SketchDraft, stage: Stage, axis: Axis, others: list[Axis]) -> SketchDraft:
    """Vectors of neighbours, each of which is continued by itself."""
    *outer, inner = others
    lanes = draft.target.lanes(stage.output.dtype)
    levels = vector_levels(draft, stage, tuple(count * lanes for count in _VECTORS))
    rows = tuple(f"{other.name}.0" for other in outer)
    # The last vector of a covered axis is under a condition, which a loop of its own ends with.
    shared = rows if is_covered(draft, stage, inner) else (*rows, f"{inner.name}.0")
    order = (*rows, f"{inner.name}.0", f"{axis.name}.0", f"{inner.name}.1")
    steps: list[Step] = [levels.tile(stage.name, inner.name), Order(stage.name, order)]
    if shared:
        steps.append(Parallel(stage.name, shared))
    steps.append(Vectorize(stage.name, f"{inner.name}.1"))
    return _extended(draft, stage, levels, outer, steps)


def _extended(
    draft: SketchDraft, stage: Stage, levels: Levels, outer: list[Axis], steps: list[Step]
) -> SketchDraft:
    """The draft with these steps, for every core as far as there is work."""
    enough: list[AtLeast] = []
    cores, rows = draft.target.cores, math.prod(axis.extent for axis in outer)
    extent = math.prod(axis.extent for axis in stage.axes if axis.kind == "spatial") // rows
    narrowest = min(levels.params[-1].values or (1,)) if levels.params else extent
    if levels.params and not levels.covers and rows * (extent // narrowest) >= cores:
        parallel = levels.factors[0] * rows
        enough.append(AtLeast(parallel, cores, "every core gets work", hard=False))
    return draft.extended(
        settled=[stage.name],
        params=levels.params,
        constraints=[*levels.constraints, *enough],
        steps=steps,
    )
