"""Rows, columns and terms of a product of matrices among the axes of a stage.

A convolution multiplies weights, which it reads at axes alone, with elements of windows. Results
lie in memory one along the last axes after the other. So the columns of the product are the
longest run of last axes along which the same factor alone moves, and its rows the run before
along which the other one does: pixels and channels where channels are last, channels and pixels
where they are first. Axes along which both move, and all that come before, number products of
their own: groups of channels, and the images of a batch whose channels are first.

Convolutions as products of matrices: the workload after step :class:`Im2col`.

Rows, columns and terms of the product are as :mod:`autotune.sketches.matrix_form` finds them, each
numbered. What the convolution reads becomes two stages that gather the elements of these matrices,
to be computed where they are copied. Results lie in memory as they did: stages that follow point
by point have rows and columns as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, Load, ScalarExpr, const, substitute, transform, var
from autotune.ir.expressions.integer import rebuilt
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches.steps import Im2col

__all__ = [
    "COLUMNS",
    "GROUPS",
    "ROWS",
    "TERMS",
    "Group",
    "MatrixForm",
    "columns_name",
    "digits",
    "extent_of",
    "im2col",
    "in_groups",
    "matrix_form",
    "not_product",
    "result_axes",
    "weights_name",
]

ROWS, COLUMNS, TERMS, GROUPS = "rows", "columns", "terms", "groups"
"""Axes of a product. Columns along one axis of the stage, and axes that number products, are
called as they are there."""


@frozen
class Group:
    """Channels of results in groups, each of which is computed from channels of its own.

    Attributes:
        position: Of the axis of the channels among the spatial axes.
        size: Channels of one group.
    """

    position: int
    size: int


@frozen
class MatrixForm:
    """Form of a stage as a product of matrices.

    Attributes:
        stage: The stage; where its channels are in groups, with an axis :data:`GROUPS` more.
        group: What that axis was split from; None without groups.
        parts: The axes of the product's result, in the order in which results lie: the name of
            each ("": that of the one axis that it is), and the positions of the axes of ``stage``
            that it numbers, the outermost first. The last one are the columns.
        data: What ``stage`` reads from windows.
        weights: What it reads at axes alone.
        data_first: Whether rows are those of data, and columns those of weights.
    """

    stage: Stage
    group: Group | None
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    data: Load
    weights: Load
    data_first: bool

    @property
    def added_names(self) -> frozenset[str]:
        """Names of axes of the product that the stage does not have."""
        groups = () if self.group is None else (GROUPS,)
        return frozenset({TERMS, *groups, *(name for name, _ in self.parts if name)})

    def axes_of(self, stage: Stage) -> dict[str, tuple[Axis, ...]]:
        """The axes of a stage of the same results by the axis of the product that numbers them."""
        own = stage.spatial_axes
        return {
            name or own[positions[0]].name: tuple(own[position] for position in positions)
            for name, positions in self.parts
        }


def matrix_form(stage: Stage) -> MatrixForm:
    """Find the form of a stage as a product of matrices.

    Raises:
        InvalidValueError: it is none; says why.
    """
    if len(stage.spatial_axes) < 2 or not stage.reduce_axes:
        raise not_product(stage, "it has no rows, no columns or no terms")
    data, weights = _factors(stage)
    group = _group_of(stage, data, weights)
    if group is not None:
        if GROUPS in stage.extents:
            raise not_product(stage, f"it has an axis {GROUPS!r} already")
        size = group.size
        own = stage.spatial_axes[group.position].name
        taken = transform(stage.body, lambda node: _without_quotients(node, own, size))
        stage = in_groups(evolve(stage, body=taken), group)
        data, weights = (
            next(load for load in stage.loads if load.tensor == factor.tensor)
            for factor in (data, weights)
        )
    if any(form.terms for form in stage.forms(data)):
        raise not_product(stage, f"{data.tensor!r} is read at quotients or remainders")
    parts, data_first = _parts(stage, data, weights)
    return MatrixForm(stage, group, parts, data, weights, data_first)


def result_axes(stage: Stage) -> tuple[Axis, Axis] | None:
    """Rows and columns of the result of a product; None where a stage has none.

    Columns are the last axis. Rows are the last one before it along which the factor that moves
    along columns does not move: where both factors do, an axis numbers products.
    """
    *others, columns = stage.spatial_axes
    moving = [load for load in stage.loads if _moves(stage, load, columns.name)]
    if len(moving) != 1:
        return None
    rows = [axis for axis in others if not _moves(stage, moving[0], axis.name)]
    return (rows[-1], columns) if rows else None


def in_groups(stage: Stage, group: Group) -> Stage:
    """The stage with the axis of its channels in two, groups and channels of one group."""
    axis = stage.spatial_axes[group.position]
    number = Axis(GROUPS, axis.extent // group.size)
    place = stage.axes.index(axis)
    axes = (*stage.axes[:place], number, evolve(axis, extent=group.size), *stage.axes[place + 1 :])
    shape = tuple(other.extent for other in axes if other.kind != "reduce")
    body = substitute(stage.body, {axis.name: var(GROUPS) * group.size + var(axis.name)})
    return Stage(evolve(stage.output, shape=shape), axes, body, stage.combiner)


def not_product(stage: Stage, reason: str) -> InvalidValueError:
    """The error that says why a stage is no product of matrices."""
    return InvalidValueError(f"stage {stage.name!r} is no product of matrices: {reason}")


def _factors(stage: Stage) -> tuple[Load, Load]:
    """Data and weights; of two that are read at axes alone, the one of columns is the weights."""
    if stage.combiner != "add" or stage.gathers or len(stage.loads) != 2:
        raise not_product(stage, "it is no sum over products of two tensors")
    if len(stage.reads) != len(stage.loads):
        raise not_product(stage, "its factors are one tensor")
    last = stage.spatial_axes[-1].name
    plain = [load for load in stage.loads if _has_all_terms(stage, load)]
    if not plain:
        names = " nor ".join(repr(load.tensor) for load in stage.loads)
        raise not_product(stage, f"neither {names} is read at all of its terms alone")
    weights = max(plain, key=lambda load: _moves(stage, load, last))
    (data,) = (load for load in stage.loads if load != weights)
    return data, weights


def _has_all_terms(stage: Stage, load: Load) -> bool:
    """Tell if a tensor is read at axes alone, each once, among them all that is summed over."""
    forms = stage.forms(load)
    if any(form.constant or form.terms or len(form.coefficients) > 1 for form in forms):
        return False
    moving = [name for form in forms for name in form.coefficients]
    plain = all(value == 1 for form in forms for value in form.coefficients.values())
    return (
        plain
        and len(set(moving)) == len(moving)
        and {axis.name for axis in stage.reduce_axes} <= set(moving)
    )


def _moves(stage: Stage, load: Load, axis: str) -> bool:
    return any(axis in form.axes for form in stage.forms(load))


def _group_of(stage: Stage, data: Load, weights: Load) -> Group | None:
    """The groups of channels, where data are read at the number of a group."""
    terms = [term for form in stage.forms(data) for term in form.terms.values()]
    for position, axis in enumerate(stage.spatial_axes):
        sizes = {
            term.divisor
            for term in terms
            if term.op == "floordiv"
            and term.operand.coefficients == {axis.name: 1}
            and not (term.operand.constant or term.operand.terms)
        }
        if len(sizes) == 1 and _moves(stage, weights, axis.name):
            (size,) = sizes
            if 1 < size < axis.extent and axis.extent % size == 0:
                return Group(position, size)
    return None


def _without_quotients(node: ScalarExpr, channel: str, size: int) -> ScalarExpr | None:
    """A load at the number of a group itself, in place of the quotient that is this number."""
    if not isinstance(node, Load):
        return None
    quotient = var(channel) // size

    def replaced(index: IntExpr) -> IntExpr:
        if index == quotient:
            return var(GROUPS)
        if index.op in ("const", "var"):
            return index
        return rebuilt(index.op, [replaced(it) for it in index.args])

    return Load(node.tensor, tuple(map(replaced, node.indices)))


def _parts(
    stage: Stage, data: Load, weights: Load
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], bool]:
    """The axes of the product's result, and whether rows are those of data."""
    axes = stage.spatial_axes
    moved = [tuple(_moves(stage, it, axis.name) for it in (data, weights)) for axis in axes]
    # Whether data alone move along an axis, or weights alone do; None for all others.
    alone = [None if of_data == of_weights else of_data for of_data, of_weights in moved]
    first_column = _first_of_run(alone, len(axes))
    end = first_column
    while end and alone[end - 1] is None:
        end -= 1
    first_row = _first_of_run(alone, end)
    if first_row == end or first_column == len(axes) or alone[first_row] == alone[first_column]:
        raise not_product(stage, "it has no rows, no columns or no terms")
    others = (*range(first_row), *range(end, first_column))
    # Axes of one value number nothing.
    single = tuple(position for position in others if axes[position].extent == 1)
    numbering = [("", (position,)) for position in others if position not in single]
    columns = tuple(range(first_column, len(axes)))
    parts = (
        *(part for part in numbering if part[1][0] < first_row),
        (ROWS, (*single, *range(first_row, end))),
        *(part for part in numbering if part[1][0] >= end),
        ("" if len(columns) == 1 else COLUMNS, columns),
    )
    return parts, alone[first_row] is True


def _first_of_run(alone: Sequence[bool | None], end: int) -> int:
    """Beginning of the longest run of equal entries that ends before ``end``; ``end`` if none."""
    first = end
    while first and alone[first - 1] is not None and alone[first - 1] == alone[end - 1]:
        first -= 1
    return first


def extent_of(axes: Sequence[Axis]) -> int:
    """Points of all of these axes."""
    return math.prod(axis.extent for axis in axes)


def digits(axes: Sequence[Axis], number: IntExpr) -> dict[str, IntExpr]:
    """The value of each axis at one of all points, which are numbered."""
    found: dict[str, IntExpr] = {}
    inner = extent_of(axes)
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
