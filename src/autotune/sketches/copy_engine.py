"""Demands of a GPU's copy engine (TMA, from sm_90 on) on boxes and on where they lie.

Source: CUDA Driver API, ``cuTensorMapEncodeTiled``.
"""

from __future__ import annotations

__all__ = [
    "MOST_BOX_EXTENT",
    "MOST_DIMENSIONS",
    "SWIZZLED_ALIGNMENT",
    "SWIZZLED_ROW_BYTES",
    "VECTOR_BYTES",
]

MOST_DIMENSIONS = 5
"""Of a tensor."""

MOST_BOX_EXTENT = 256
"""Elements of a box along each dimension."""

VECTOR_BYTES = 16
"""Bytes that stay together where rows are swizzled; distances in memory are multiples of it."""

SWIZZLED_ROW_BYTES = (32, 64, 128)
"""Bytes of a row, where rows are swizzled."""

SWIZZLED_ALIGNMENT = 1024
"""Bytes at multiples of which buffers begin that are swizzled: eight rows of 128."""
