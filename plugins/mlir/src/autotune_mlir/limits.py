"""Limits of what the backend can replay."""

from __future__ import annotations

from autotune.sketches.limits import ScheduleLimits

__all__ = ["LIMITS"]

# Tiles on the stack are vectors in registers, or spilled from them.
_TILE_BYTES = 1 << 16

# Of fully unrolled code: what LLVM compiles within a second.
_UNROLLED_STATEMENTS = 512

LIMITS = ScheduleLimits(
    steps=frozenset(
        {
            "accumulate",
            "bound_loop",
            "chunk_reduction",
            "cover",
            "fuse_consumer",
            "fuse_producer",
            "inline",
            "interleave",
            "order",
            "pack",
            "pad_extent",
            "parallel",
            "prefetch",
            "prepack",
            "software_pipeline",
            "split_reduction",
            "stream",
            "tensorize",
            "tile",
            "unroll",
            "unroll_limit",
            "vectorize",
        }
    ),
    stack_bytes=_TILE_BYTES,
    unrolled_statements=_UNROLLED_STATEMENTS,
    source="backend mlir",
    backend="mlir",
    without=frozenset(
        {
            "pack.reversed",
        }
    ),
    empty_tiles=False,
)
"""The same on every CPU.

Of instructions, the space takes those whose declaration names an implementation for the backend:
dot products, and no tile registers.
"""
