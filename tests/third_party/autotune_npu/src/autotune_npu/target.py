"""A kind of target that the core does not know."""

from __future__ import annotations

from autotune.plugins import Context
from autotune.targets import Target


def tiny_npu(_context: Context) -> Target:
    """One core with vectors of 32 bytes."""
    return Target("npu", "tiny-npu", cores=1, vector_bytes=32)
