"""Limits of what the backend can replay."""

from __future__ import annotations

from attrs import evolve

from autotune.sketches.limits import ScheduleLimits
from autotune_mlir.bindings import Distribution

__all__ = ["LIMITS", "limits_of"]

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
            "chunk_scan",
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
    without=frozenset({"fuse_producer.padding", "pack.mixed_quotients"}),
    empty_tiles=False,
    straddling_tiles=False,
)
"""The same on every CPU, with the default bindings.

Of instructions, the space takes those whose declaration names an implementation for the backend.
"""


def limits_of(distribution: Distribution) -> ScheduleLimits:
    """What can be replayed with a distribution of the bindings."""
    if distribution.keeps_partial_indices:
        return LIMITS
    return evolve(LIMITS, without=LIMITS.without | {"split_reduction.indexed"})
