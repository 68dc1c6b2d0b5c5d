"""Instructions on small tensors, described as data."""

from __future__ import annotations

from autotune.sketches.intrinsics.declared import INTRINSICS, PAIR_PRODUCTS, find_intrinsic
from autotune.sketches.intrinsics.intrinsic import (
    Digit,
    Fragment,
    Intrinsic,
    IntrinsicOperand,
    result_levels,
)

__all__ = [
    "INTRINSICS",
    "PAIR_PRODUCTS",
    "Digit",
    "Fragment",
    "Intrinsic",
    "IntrinsicOperand",
    "find_intrinsic",
    "result_levels",
]
