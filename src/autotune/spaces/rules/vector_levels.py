"""Split of an axis into loops over vectors, and results that are written past the caches."""

from __future__ import annotations

from attrs import frozen

from autotune.ir.expressions import IntExpr, ceildiv, const, var
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import (
    Constraint,
    Factor,
    Ordinal,
    Param,
    ProductEquals,
    Step,
    Stream,
    Tile,
    TileCeil,
)
from autotune.spaces.rules.access import largest_divisor
from autotune.spaces.rules.draft import SketchDraft

__all__ = ["Levels", "is_covered", "split_levels", "stream_choice", "vector_levels"]


@frozen
class Levels:
    """Factors of one axis, outermost first, with what they bring along.

    Attributes:
        factors: Extents of the loops.
        params: Parameters that they are made of.
        constraints: What relates these.
        covers: Whether the loops may pass the axis's extent.
    """

    factors: tuple[IntExpr, ...] = ()
    params: tuple[Param, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    covers: bool = False

    def tile(self, stage: str, axis: str) -> Tile | TileCeil:
        """The step that splits the axis."""
        return (TileCeil if self.covers else Tile)(stage, axis, self.factors)


def split_levels(name: str, extent: int, domain: tuple[int, ...] | None) -> Levels:
    """Two levels, the inner one out of ``domain``; constants where there is no choice."""
    if domain is not None and len(domain) == 1:
        return Levels((const(extent // domain[0]), const(domain[0])))
    names = (f"{name}.0", f"{name}.1")
    return Levels(
        (var(names[0]), var(names[1])),
        (Factor(names[0]), Factor(names[1], domain)),
        (ProductEquals(names, const(extent)),),
    )


def is_covered(draft: SketchDraft, stage: Stage, axis: Axis) -> bool:
    """Tell if vectors along an axis are whole but for the last: none but short ones divide it.

    The last round is then under a condition.
    """
    lanes = draft.target.lanes(stage.output.dtype)
    narrow = 2 * largest_divisor(axis.extent, lanes) < lanes
    return narrow and axis.extent > lanes and draft.can("cover")


def vector_levels(draft: SketchDraft, stage: Stage, widths: tuple[int, ...]) -> Levels:
    """The innermost axis of a pointwise stage: a loop over vectors of a searched width.

    Args:
        draft: The sketch so far.
        stage: The stage.
        widths: To choose from; those that do not divide the axis are left out, unless none but
            short ones do.
    """
    axis, lanes = stage.axes[-1], draft.target.lanes(stage.output.dtype)
    name = f"{stage.name}.{axis.name}"
    if is_covered(draft, stage, axis):
        whole = tuple(width for width in widths if lanes <= width < axis.extent)
        width = Ordinal(f"{name}.1", whole)
        rounds = ceildiv(const(axis.extent), var(width.name))
        return Levels((rounds, var(width.name)), (width,), covers=True)
    even = tuple(width for width in widths if axis.extent % width == 0)
    return split_levels(name, axis.extent, even or (largest_divisor(axis.extent, lanes),))


def stream_choice(draft: SketchDraft, stage: Stage) -> tuple[list[Param], list[Step]]:
    """A parameter and its step, or nothing where the choice makes no difference.

    It does for outputs that are at least as large as the last-level cache, and of which each row
    consists of whole lines.

    Args:
        draft: The sketch so far.
        stage: What writes the result.
    """
    output, caches = stage.output, draft.target.caches
    is_last = stage.name in draft.workload.outputs and not draft.workload.consumers(stage.name)
    if not (is_last and caches and output.shape and draft.can("stream")):
        return [], []
    if output.elements * output.element.bytes < caches[-1].size_bytes:
        return [], []
    if output.shape[-1] * output.element.bytes % caches[-1].line_bytes:
        return [], []
    name = f"{stage.name}.stream"
    return [Ordinal(name, (0, 1))], [Stream(stage.name, var(name))]
