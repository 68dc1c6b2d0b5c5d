"""Limits of what the backend prints."""

from __future__ import annotations

from autotune.sketches import GPU_STEP_NAMES, STEP_TYPES
from autotune.sketches.limits import ScheduleLimits

__all__ = ["LIMITS"]

# Tiles on the stack are vectors in registers, or spilled from them.
_TILE_BYTES = 1 << 16

# Of fully unrolled code: what LLVM compiles within a second.
_UNROLLED_STATEMENTS = 512

LIMITS = ScheduleLimits(
    steps=frozenset(STEP_TYPES) - frozenset(GPU_STEP_NAMES),
    stack_bytes=_TILE_BYTES,
    unrolled_statements=_UNROLLED_STATEMENTS,
    source="backend mlir",
    backend="mlir",
    runs_nests=True,
)
"""The same on every CPU: all that the loop nest has.

Of instructions, the space takes those whose declaration names an implementation for the backend.
"""
