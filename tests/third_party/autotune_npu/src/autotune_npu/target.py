"""A kind of target, and a type of elements, that the core does not know."""

from __future__ import annotations

from autotune.ir.element_types import ElementType
from autotune.plugins import Context
from autotune.targets import Target


def tiny_npu(_context: Context) -> Target:
    """A core with vectors of 32 bytes."""
    return Target("npu", "tiny-npu", cores=1, vector_bytes=32)


def tf32(_context: Context) -> ElementType:
    """Ten bits of mantissa, in arrays of float32."""
    return ElementType("tf32", 2.0**-10, storage="float32")
