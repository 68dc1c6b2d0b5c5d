"""Convolutions as products of matrices: the workload after step :class:`Im2col`.

The rows of the product are all results but their last axis, one after the other, its columns are
the last axis, and its terms are all that is summed over. What the convolution reads becomes two
stages that gather the elements of these matrices, to be computed where they are copied. Results
lie in memory as they did: stages that follow point by point have rows and columns as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    IntExpr,
    Load,
    ScalarExpr,
    const,
    index_form,
    substitute,
    transform,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches.steps import Im2col

__all__ = ["ROWS", "TERMS", "columns_name", "im2col", "weights_name"]

ROWS, TERMS = "rows", "terms"
"""Axes of the product, beside the last spatial axis of the stage."""


def columns_name(stage: str) -> str:
    """Name of the stage that gathers the rows of the left matrix."""
    return f"{stage}_columns"


def weights_name(stage: str) -> str:
    """Name of the stage that gathers the right matrix."""
    return f"{stage}_weights"


def im2col(workload: Workload, step: Im2col) -> Workload:
    """The workload with a stage as a product of matrices, and those after it to match.

    Raises:
        InvalidValueError: the stage is no sum of products of two tensors of which one, read
            at axes alone, has the last spatial axis and no other; or a stage after it does
            not follow point by point.
    """
    stage = workload.stage(step.stage)
    terms = stage.reduce_axes
    if len(stage.spatial_axes) < 2 or not terms:
        raise _refused(stage, "it has no rows, no columns or no terms")
    _check_names(stage, stage)
    *rows, last = stage.spatial_axes
    data, weights = _factors(stage, last)
    indices = {**_digits(rows, var(ROWS)), **_digits(terms, var(TERMS))}
    row, term = Axis(ROWS, _extent(rows)), Axis(TERMS, _extent(terms))
    columns = _gathered(workload, columns_name(stage.name), (row, term), data, indices)
    right = (term, last) if _moves(weights, last.name) else (last, term)
    matrix = _gathered(workload, weights_name(stage.name), right, weights, indices)
    taken = {
        data: Load(columns.name, (var(ROWS), var(TERMS))),
        weights: Load(matrix.name, tuple(var(axis.name) for axis in right)),
    }
    output = evolve(stage.output, shape=(row.extent, last.extent))
    made = Stage(
        output,
        (row, last, evolve(term, kind="reduce")),
        transform(stage.body, lambda node: taken.get(node) if isinstance(node, Load) else None),
        stage.combiner,
    )
    stages: list[Stage] = []
    flat = {stage.name}
    for other in workload.stages:
        if other.name == stage.name:
            stages += [columns, matrix, made]
        elif flat & set(other.reads):
            stages.append(_following(other, flat, stage))
            flat.add(other.name)
        else:
            stages.append(other)
    return evolve(workload, stages=tuple(stages))


def _factors(stage: Stage, last: Axis) -> tuple[Load, Load]:
    """What a stage reads: the one that does not move with its last spatial axis first."""
    if stage.combiner != "add" or stage.gathers or len(stage.loads) != 2:
        raise _refused(stage, "it is no sum over products of two tensors")
    if len(stage.reads) != len(stage.loads):
        raise _refused(stage, "its factors are one tensor")
    data, weights = sorted(stage.loads, key=lambda load: _depends(stage, load, last.name))
    summed = {axis.name for axis in stage.reduce_axes}
    forms = stage.forms(weights)
    plain = all(not form.constant and list(form.coefficients.values()) == [1] for form in forms)
    moving = [name for form in forms for name in form.coefficients]
    if not plain or sorted(moving) != sorted({*summed, last.name}):
        raise _refused(stage, f"{weights.tensor!r} is no matrix of terms and {last.name!r}")
    if _depends(stage, data, last.name) or any(form.terms for form in stage.forms(data)):
        raise _refused(stage, f"{data.tensor!r} is no matrix of results and terms")
    return data, weights


def _depends(stage: Stage, load: Load, axis: str) -> bool:
    return any(axis in form.axes for form in stage.forms(load))


def _moves(load: Load, axis: str) -> bool:
    """Whether neighbours in memory are neighbours along an axis."""
    return axis in index_form(load.indices[-1]).axes


def _extent(axes: Sequence[Axis]) -> int:
    return math.prod(axis.extent for axis in axes)


def _digits(axes: Sequence[Axis], number: IntExpr) -> dict[str, IntExpr]:
    """The value of each axis at one of all points, which are numbered."""
    found: dict[str, IntExpr] = {}
    inner = _extent(axes)
    whole = inner
    for axis in axes:
        inner //= axis.extent
        value = number // inner if inner > 1 else number
        if axis.extent == 1:
            value = const(0)
        elif inner * axis.extent < whole:
            value = value % axis.extent
        found[axis.name] = value
    return found


def _gathered(
    workload: Workload,
    name: str,
    axes: tuple[Axis, Axis],
    load: Load,
    indices: Mapping[str, IntExpr],
) -> Stage:
    """A stage that reads one element for each element of a matrix."""
    shape = tuple(axis.extent for axis in axes)
    tensor = Tensor(name, shape, workload.tensors[load.tensor].dtype)
    return Stage(tensor, axes, substitute(load, indices))


def _following(stage: Stage, flat: set[str], product: Stage) -> Stage:
    """A stage that reads results point by point, as one of rows and columns."""
    _check_names(product, stage)
    *rows, last = stage.spatial_axes
    own = tuple(var(axis.name) for axis in stage.spatial_axes)
    same = [axis.extent for axis in stage.spatial_axes]
    if stage.combiner is not None or stage.gathers or same != list(product.output.shape):
        raise _refused(product, f"stage {stage.name!r} does not follow point by point")
    if any(load.tensor in flat and load.indices != own for load in stage.loads):
        raise _refused(product, f"stage {stage.name!r} reads its results elsewhere")

    def replaced(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Load) and node.tensor in flat:
            return Load(node.tensor, (var(ROWS), var(last.name)))
        return None

    body = substitute(transform(stage.body, replaced), _digits(rows, var(ROWS)))
    extent = _extent(rows)
    output = evolve(stage.output, shape=(extent, last.extent))
    return Stage(output, (Axis(ROWS, extent), last), body)


def _check_names(product: Stage, stage: Stage) -> None:
    if taken := {ROWS, TERMS} & set(stage.extents):
        raise _refused(product, f"stage {stage.name!r} has an axis {min(taken)!r} already")


def _refused(stage: Stage, reason: str) -> InvalidValueError:
    return InvalidValueError(f"stage {stage.name!r} is no product of matrices: {reason}")
