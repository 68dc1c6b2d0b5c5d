"""Layouts of what is fetched into shared memory: padded rows, and rows along a spatial axis.

Threads of a warp that read one below the other meet in one bank where rows are multiples of 32
words long; rows that are one vector longer spread them. Where a thread reads neighbours along a
spatial axis that is not the operand's last dimension, rows along that axis let it read vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import AffineForm, IndexTerm, IntExpr, Load, const, product, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.nest.loop_nest import hull, is_axis
from autotune.sketches import CoreMatrices, Ordinal, SharedLayout
from autotune.spaces.rules.access import producer_stage
from autotune.targets import Target

__all__ = ["CoreLayout", "Forms", "RowLayout", "neighbours", "row_layout", "transposable"]

Forms = tuple[AffineForm, ...]
"""Indices of an access, by dimension."""


@frozen
class RowLayout:
    """Layout of a fetched operand in shared memory.

    Attributes:
        dims: Its dimensions, outermost first.
        pad: Elements after each row.
        param: The parameter that chooses ``pad``; None where there is no choice.
    """

    dims: tuple[int, ...]
    pad: IntExpr
    param: Ordinal | None

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last."""
        return self.dims != tuple(range(len(self.dims)))

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans."""
        extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
        *outer, row = (extents[dimension] for dimension in self.dims)
        return product(outer) * (row + self.pad)

    def step(self, stage: str, operand: str) -> SharedLayout | None:
        """The step that lays the operand out; None where it lies as it is indexed."""
        if self.param is None and not self.is_turned:
            return None
        return SharedLayout(stage, operand, self.dims, self.pad)


@frozen
class CoreLayout:
    """Layout of a fetched operand in core matrices of shared memory, which warpgroups read.

    Attributes:
        dims: Its dimensions; the last one is along the rows of core matrices.
        width: Elements of such a row.
        pad: Rows after those of each plane.
        param: The parameter that chooses ``pad``.
    """

    dims: tuple[int, ...]
    width: int
    pad: IntExpr
    param: Ordinal

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last."""
        return self.dims != tuple(range(len(self.dims)))

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans, of whole rows."""
        extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
        *outer, rows, along = (extents[dimension] for dimension in self.dims)
        return product(outer) * (rows + self.pad) * along

    def step(self, stage: str, operand: str) -> CoreMatrices:
        """The step that lays the operand out."""
        return CoreMatrices(stage, operand, self.dims[-1], self.width, self.pad)


def row_layout(
    stage: Stage,
    tensor: Tensor,
    forms: Forms,
    tiled: Collection[str],
    target: Target,
    *,
    rows: int | None,
    padded: bool,
) -> RowLayout:
    """The layout of an operand of ``stage`` whose axes ``tiled`` have levels.

    Args:
        stage: The stage.
        tensor: The operand.
        forms: Where it is read.
        tiled: Axes that are tiled.
        target: A vector of it is what rows are padded by.
        rows: The dimension along rows; None for the last one.
        padded: Whether rows may be padded.
    """
    dims = tuple(range(len(forms)))
    if rows is not None:
        dims = (*(dimension for dimension in dims if dimension != rows), rows)
    spatial = {axis.name for axis in stage.spatial_axes} & set(tiled)
    in_rows = not dims or any(axis in tiled for axis in forms[dims[-1]].coefficients)
    # Rows are read one below the other by threads along an axis, or written so by the fetch.
    met = rows is not None or any(
        spatial & set(forms[dimension].coefficients) for dimension in dims[:-1]
    )
    vector = target.vector_bytes // element_type(tensor.dtype).bytes
    if not (padded and in_rows and met and len(dims) > 1 and vector > 1):
        return RowLayout(dims, const(0), None)
    name = f"{stage.name}.{tensor.name}.pad"
    return RowLayout(dims, var(name), Ordinal(name, (0, vector)))


def transposable(stage: Stage, forms: Forms, tiled: Collection[str]) -> int | None:
    """The dimension along which rows are to lie: of a spatial axis, where the last has none.

    None where the operand's last dimension moves with a spatial axis, or no other dimension is
    just such an axis.
    """
    spatial = {axis.name for axis in stage.spatial_axes} & set(tiled)
    if not forms or spatial & set(forms[-1].coefficients):
        return None
    found = [
        dimension
        for dimension, form in enumerate(forms[:-1])
        if is_axis(form) and spatial & set(form.coefficients)
    ]
    return found[-1] if found else None


def neighbours(workload: Workload, tensor: str) -> int:
    """Number of neighbours along a tensor's last dimension that are neighbours in memory, too.

    Those of a tensor that is gathered from another one by numbers of its elements are, as far as
    they number whole dimensions there. Of one that is computed, only the last dimension counts:
    conditions, as of margins, may be others beyond it.
    """
    extent = workload.tensors[tensor].shape[-1]
    producer = producer_stage(workload, tensor)
    if producer is None or not isinstance(producer.body, Load):
        return extent
    axis, forms = producer.spatial_axes[-1], producer.forms(producer.body)
    source = workload.tensors[producer.body.tensor]
    is_input = producer_stage(workload, source.name) is None
    run = 1
    for form, size in reversed(list(zip(forms, source.shape, strict=True))):
        count = _digit(form, axis, run)
        run *= count
        if count != size or not is_input:
            break
    return run


def _digit(form: AffineForm, axis: Axis, below: int) -> int:
    """Values of an index that is a digit of an axis, ``axis // below`` or the remainder of that.

    1 where it is none.
    """
    values = axis.extent // below
    term = _whole_term(form)
    if term is not None and term.op == "mod":
        form, values = term.operand, term.divisor
        term = _whole_term(form)
    if term is not None and term.op == "floordiv" and term.divisor == below:
        form, below = term.operand, 1
    return values if below == 1 and is_axis(form) and axis.name in form.coefficients else 1


def _whole_term(form: AffineForm) -> IndexTerm | None:
    """The quotient or remainder that an index is; None where it is something else."""
    if form.constant or list(form.coefficients.values()) != [1]:
        return None
    return next(iter(form.terms.values()), None)
