"""Factors of matrix products that the device's copy engine fetches (TMA, from sm_90 on).

It copies boxes of a tensor as they are, with zeros beyond its ends. So factors are inputs, of
types that ``wgmma`` reads as they are in memory; TF32 is rounded by threads. Neighbours along all
dimensions but the last are multiples of 16 bytes apart in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from autotune.ir.expressions import IntExpr, less, product, select
from autotune.nest.loop_nest import hull
from autotune.sketches import BulkCopy, Constraint, OneOf
from autotune.sketches.copy_engine import MOST_DIMENSIONS, SWIZZLED_ROW_BYTES, VECTOR_BYTES
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_layouts import Forms
from autotune.spaces.rules.gpu_products import MatrixFactor, MatrixProduct, apart_from

__all__ = ["BulkLayout", "bulk_product"]


@frozen
class BulkLayout:
    """Layout of a factor in shared memory that the copy engine fetches: in panels of rows.

    Attributes:
        row: Elements of a row: of 128 bytes where tiles have whole ones, else of 64 or 32.
        vector: Elements of 16 bytes, which stay together.
        whole: That tiles have whole rows of 32 bytes.
    """

    row: IntExpr
    vector: int
    whole: Constraint

    @property
    def param(self) -> None:
        """There is no choice: the widest rows take the fewest copies."""
        return None

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last: never."""
        return False

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans."""
        return product(
            hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms
        )

    def step(self, stage: str, operand: str) -> BulkCopy:
        """The step that has the engine copy the operand."""
        return BulkCopy(stage, operand, self.row)


def bulk_product(draft: SketchDraft, matrices: MatrixProduct) -> MatrixProduct | None:
    """The product with both factors fetched by the copy engine; None where it cannot."""
    if matrices.call.rounds_when_fetched or not draft.can("bulk_copy", "pipeline_fetches"):
        return None
    left, right = (_bulk_factor(draft, matrices, it) for it in matrices.factors)
    if left is None or right is None:
        return None
    return evolve(matrices, left=left, right=right)


def _bulk_factor(
    draft: SketchDraft, matrices: MatrixProduct, factor: MatrixFactor
) -> MatrixFactor | None:
    tensor = draft.workload.tensors[factor.tensor]
    size = tensor.element.bytes
    is_input = any(it.name == factor.tensor for it in draft.workload.inputs)
    aligned = tensor.shape[-1] * size % VECTOR_BYTES == 0
    if not is_input or not aligned or factor.layout.is_turned:
        return None
    if len(tensor.shape) > MOST_DIMENSIONS:
        return None
    # What an instruction reads begins and ends with rows: all terms of a fetch, or its results.
    batch = {axis.name for axis in matrices.batch}
    (axis,) = apart_from(factor.forms[-1], batch).coefficients
    level = 1 if axis == matrices.axes[2] else 2
    tile = matrices.factor(axis, level) * matrices.call_extent(axis)
    narrow, middle, wide = (row // size for row in SWIZZLED_ROW_BYTES)
    row = select(less(tile % middle, 1), middle, narrow)
    row = select(less(tile % wide, 1), wide, row)
    whole = OneOf(tile % narrow, (0,), "tiles have whole rows that the copy engine swizzles")
    return evolve(factor, layout=BulkLayout(row, VECTOR_BYTES // size, whole))
