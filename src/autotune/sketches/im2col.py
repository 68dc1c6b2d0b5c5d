"""Convolutions as products of matrices: the workload after step :class:`Im2col`.

Rows, columns and terms of the product are as :mod:`autotune.sketches.matrix_form` finds them, each
numbered. What the convolution reads becomes two stages that gather the elements of these matrices,
to be computed where they are copied. Results lie in memory as they did: stages that follow point
by point have rows and columns as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from autotune.ir.expressions import IntExpr, Load, ScalarExpr, substitute, transform, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches.matrix_form import (
    ROWS,
    TERMS,
    MatrixForm,
    digits,
    extent_of,
    in_groups,
    matrix_form,
    not_product,
)
from autotune.sketches.steps import Im2col

__all__ = ["columns_name", "im2col", "weights_name"]


def columns_name(stage: str) -> str:
    """Name of the stage that gathers the matrix of what is read from windows."""
    return f"{stage}_columns"


def weights_name(stage: str) -> str:
    """Name of the stage that gathers the matrix of weights."""
    return f"{stage}_weights"


def im2col(workload: Workload, step: Im2col) -> Workload:
    """The workload with a stage as a product of matrices, and those after it to match.

    Raises:
        InvalidValueError: the stage is no such product; or a stage after it does not follow
            point by point.
    """
    stage = workload.stage(step.stage)
    form = matrix_form(stage)
    _check_names(stage, stage, form)
    axes, terms = form.axes_of(form.stage), form.stage.reduce_axes
    result = tuple(Axis(name, extent_of(own)) for name, own in axes.items())
    summed = Axis(TERMS, extent_of(terms))
    indices = _indices({**axes, TERMS: terms})
    gathered: list[Stage] = []
    taken: dict[ScalarExpr, Load] = {}
    for load, name in (
        (form.data, columns_name(stage.name)),
        (form.weights, weights_name(stage.name)),
    ):
        dims = _matrix_axes(form, load, result, summed)
        tensor = Tensor(name, _extents(dims), workload.tensors[load.tensor].dtype)
        gathered.append(Stage(tensor, dims, substitute(load, indices)))
        taken[load] = Load(name, tuple(var(axis.name) for axis in dims))
    made = Stage(
        evolve(stage.output, shape=_extents(result)),
        (*result, evolve(summed, kind="reduce")),
        transform(form.stage.body, lambda node: taken.get(node)),
        stage.combiner,
    )
    stages: list[Stage] = []
    flat = {stage.name}
    for other in workload.stages:
        if other.name == stage.name:
            stages += [*gathered, made]
        elif flat & set(other.reads):
            stages.append(_following(other, flat, stage, form))
            flat.add(other.name)
        else:
            stages.append(other)
    return evolve(workload, stages=tuple(stages))


def _extents(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(axis.extent for axis in axes)


def _indices(axes: Mapping[str, Sequence[Axis]]) -> dict[str, IntExpr]:
    """The value of each axis of a stage, by those of the product, which number them."""
    found: dict[str, IntExpr] = {}
    for name, own in axes.items():
        found |= digits(own, var(name))
    return found


def _matrix_axes(
    form: MatrixForm, load: Load, result: Sequence[Axis], terms: Axis
) -> tuple[Axis, ...]:
    """Axes of the matrix, or matrices, of one factor.

    What is along its rows moves along the last dimension of what it is gathered from.
    """
    *_, columns = result
    (rows,) = [axis for axis in result if axis.name == ROWS]
    across = rows if (load == form.data) == form.data_first else columns
    own = {axis: {it.name for it in axes} for axis, axes in form.axes_of(form.stage).items()}
    forms = form.stage.forms(load)
    moving = {name for index in forms for name in index.axes}
    number = [axis for axis in result if axis not in (rows, columns) and own[axis.name] & moving]
    along = (terms, across) if forms[-1].axes & own[across.name] else (across, terms)
    return (*number, *along)


def _following(stage: Stage, flat: set[str], product: Stage, form: MatrixForm) -> Stage:
    """A stage that reads results point by point, as one of the axes of the product."""
    _check_names(product, stage, form)
    own = tuple(var(axis.name) for axis in stage.spatial_axes)
    same = _extents(stage.spatial_axes)
    if stage.combiner is not None or stage.gathers or same != product.output.shape:
        raise not_product(product, f"stage {stage.name!r} does not follow point by point")
    if any(load.tensor in flat and load.indices != own for load in stage.loads):
        raise not_product(product, f"stage {stage.name!r} reads its results elsewhere")
    whole = stage if form.group is None else in_groups(stage, form.group)
    axes = form.axes_of(whole)
    place = tuple(map(var, axes))

    def replaced(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Load) and node.tensor in flat:
            return Load(node.tensor, place)
        return None

    result = tuple(Axis(name, extent_of(numbered)) for name, numbered in axes.items())
    body = substitute(transform(whole.body, replaced), _indices(axes))
    return Stage(evolve(stage.output, shape=_extents(result)), result, body)


def _check_names(product: Stage, stage: Stage, form: MatrixForm) -> None:
    if taken := form.added_names & set(stage.extents):
        raise not_product(product, f"stage {stage.name!r} has an axis {min(taken)!r} already")
