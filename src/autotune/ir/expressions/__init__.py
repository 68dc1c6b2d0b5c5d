"""Integer index expressions and typed scalar bodies."""

from __future__ import annotations

from autotune.ir.expressions.affine import AffineForm, IndexTerm, affine_form, index_form
from autotune.ir.expressions.bounds import index_bounds, simplify_index
from autotune.ir.expressions.integer import (
    IntExpr,
    IntLike,
    ceildiv,
    const,
    less,
    maximum,
    minimum,
    nontrivial,
    product,
    select,
    var,
)
from autotune.ir.expressions.scalar import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    gathers,
    loads,
    operation_counts,
    substitute,
    transform,
)

__all__ = [
    "AffineForm",
    "Binary",
    "Cast",
    "Constant",
    "Gather",
    "IndexTerm",
    "IndexValue",
    "IntExpr",
    "IntLike",
    "Load",
    "ScalarExpr",
    "Select",
    "Unary",
    "affine_form",
    "ceildiv",
    "const",
    "gathers",
    "index_bounds",
    "index_form",
    "less",
    "loads",
    "maximum",
    "minimum",
    "nontrivial",
    "operation_counts",
    "product",
    "select",
    "simplify_index",
    "substitute",
    "transform",
    "var",
]
