"""Instructions on small tensors, described as data."""

from __future__ import annotations

from autotune.intrinsics.declared import INTRINSICS, find_intrinsic
from autotune.intrinsics.intrinsic import Intrinsic, IntrinsicOperand

__all__ = ["INTRINSICS", "Intrinsic", "IntrinsicOperand", "find_intrinsic"]
