"""Bytes that a schedule allocates."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr, const
from autotune.nest.loop_nest import LoopNest

__all__ = ["memory_quantities"]


def memory_quantities(nest: LoopNest) -> dict[str, IntExpr]:
    """``buffer/NAME`` of every allocation, and the totals per block and per thread."""
    outputs = {f"buffer/{buffer.name}": buffer.bytes for buffer in nest.buffers}
    for scope in ("shared", "local"):
        total = const(0)
        for buffer in nest.buffers:
            if buffer.scope == scope:
                total = total + buffer.bytes
        outputs[f"{scope}_bytes"] = total
    return outputs
