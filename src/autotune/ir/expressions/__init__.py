"""Integer index expressions and typed scalar bodies."""

from __future__ import annotations

from autotune.ir.expressions.affine import AffineForm, affine_form
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
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    loads,
    operation_counts,
    transform,
)

__all__ = [
    "AffineForm",
    "Binary",
    "Cast",
    "Constant",
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
    "less",
    "loads",
    "maximum",
    "minimum",
    "nontrivial",
    "operation_counts",
    "product",
    "select",
    "transform",
    "var",
]
