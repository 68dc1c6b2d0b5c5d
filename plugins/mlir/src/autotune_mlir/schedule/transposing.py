"""Pointwise stages that transpose what they read: rows of the result are made several at a time.

The lanes of a vector of the result are rows apart in what is read, and neighbours there are rows
of the result. Several of these are a square of registers, of which whole rows are read and written
(:mod:`autotune_mlir.passes.transposed_vectors`). So other compilers run the loops around such a
vector, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    Load,
    Select,
    affine_form,
)
from autotune.ir.expressions.scalar import COMPARISONS, LOGIC, walk
from autotune.ir.workloads import Stage
from autotune_mlir.schedule.lanes import reads_boxes
from autotune_mlir.schedule.levels import inlined_behind
from autotune_mlir.schedule.plan import Plan, StagePlan

__all__ = ["rows_together", "with_rows"]

_VECTOR_BYTES = 64
_FEWEST, _MOST = 4, 16


def rows_together(plan: Plan, own: StagePlan) -> dict[str, int]:
    """How many iterations of an axis one tile has, where a stage transposes along it.

    Args:
        plan: The schedule.
        own: A pointwise stage with loops of its own.

    Returns:
        The axis and a power of 2; nothing where the stage does not transpose, where its loops over
        that axis leave incomplete tiles, and where it copies operands, has others computed in its
        loops or is written past the caches.
    """
    stage = own.stage
    if own.vector is None or own.extent(own.vector) < _FEWEST or own.covered:
        return {}
    if own.packed or own.whole:
        return {}
    if not all(_moves(plan.stages[it].stage) for it in inlined_behind(plan, stage.name)):
        return {}
    lanes = own.axis_of(own.vector)
    if lanes != stage.spatial_axes[-1].name or not reads_boxes(stage, plan.workload):
        return {}
    found = {axis for load in stage.loads if (axis := _axis_along(load, lanes)) is not None}
    if len(found) != 1:
        return {}
    axis = found.pop()
    tiles = [own.tile_inside(loop) for loop in own.order if own.axis_of(loop) == axis]
    together = min(_VECTOR_BYTES // stage.output.element.bytes, _MOST)
    while together >= _FEWEST:
        larger = [tile for tile in tiles if tile >= together]
        if not any(tile % together for tile in (own.whole_extent(axis), *larger)):
            return {axis: together}
        together //= 2
    return {}


def _moves(stage: Stage) -> bool:
    """Whether a stage computes nothing, but chooses what it reads by where it is."""
    return stage.combiner is None and all(
        isinstance(node, (Load, Select, IndexValue, Constant))
        or (isinstance(node, Binary) and node.op in (*COMPARISONS, *LOGIC))
        for node in walk(stage.body)
    )


def _axis_along(load: Load, lanes: str) -> str | None:
    """The axis that neighbours in an operand belong to, where lanes are not neighbours."""
    forms = [affine_form(index) for index in load.indices]
    axes = [set() if form is None else set(form.coefficients) for form in forms]
    if None in forms or not any(lanes in each for each in axes[:-1]):
        return None
    return next(iter(axes[-1]), None)


def with_rows(own: StagePlan, sizes: Sequence[int], together: Mapping[str, int]) -> list[int]:
    """Tile sizes, of which none is smaller than what is made together."""
    names = [axis.name for axis in own.stage.spatial_axes]
    return [
        max(size, together.get(name, 0)) if size else 0
        for name, size in zip(names, sizes, strict=True)
    ]
