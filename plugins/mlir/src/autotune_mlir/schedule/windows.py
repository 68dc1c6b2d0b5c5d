"""Stages that read an operand at sums of axes, as convolutions do."""

from __future__ import annotations

from autotune.ir.expressions import affine_form
from autotune.ir.workloads import Stage
from autotune_mlir.schedule.plan import StagePlan
from autotune_mlir.schedule.script import Script, tag

__all__ = ["has_vectors", "pieces", "take_apart", "unrolled_before", "window_axes"]


def window_axes(stage: Stage) -> tuple[str, ...]:
    """Spatial axes that an operand is read at together with another axis, or at a multiple of.

    Vectors along such an axis are no slices of the operand: a tile is taken apart until each piece
    is one iteration of it. Stages that reduce nothing read such operands element by element.
    """
    found: set[str] = set()
    if not stage.reduce_axes:
        return ()
    for load in stage.loads:
        for form in stage.forms(load):
            scales = form.coefficients
            if len(scales) > 1 or any(scale != 1 for scale in scales.values()):
                found.update(scales)
    return tuple(axis.name for axis in stage.spatial_axes if axis.name in found)


def pieces(own: StagePlan) -> list[str]:
    """Loops around the pieces that the innermost tile is taken apart into."""
    found = []
    for axis in window_axes(own.stage):
        loops = [loop for loop in own.order if own.axis_of(loop) == axis]
        if loops and loops[-1] in own.unrolled:
            found.append(loops[-1])
    return found


def unrolled_before(own: StagePlan) -> list[str]:
    """Loops that are unrolled before there are vectors."""
    return pieces(own)


def has_vectors(own: StagePlan) -> bool:
    """Tell if the lanes of a stage with windows are next to each other in all that it reads.

    Where they are not, as at every second element, what is innermost stays as it is.
    """
    if own.vector is None:
        return False
    lanes = own.axis_of(own.vector)
    forms = [affine_form(index) for load in own.stage.loads for index in load.indices]
    return all(form is None or form.coefficients.get(lanes, 1) <= 1 for form in forms)


def take_apart(script: Script, own: StagePlan) -> None:
    """Make the loops around the pieces of the innermost tile.

    They are made all at once, so that each piece is a slice of the tile and not of another slice.
    """
    loops = [loop for loop in pieces(own) if own.extent(loop) > 1]
    if not loops:
        return
    axes = [*own.stage.spatial_axes, *own.stage.reduce_axes]
    inner = {own.axis_of(loop): own.tile_inside(loop) for loop in loops}
    sizes = [inner.get(axis.name, 0) for axis in axes]
    made = script.tile(script.match(tag("stage", own.stage.name)), sizes)
    order = sorted(loops, key=lambda loop: [axis.name for axis in axes].index(own.axis_of(loop)))
    for handle, loop in zip(made[1:], order, strict=True):
        script.annotate(handle, "unroll", f"{own.stage.name}.{loop}")
