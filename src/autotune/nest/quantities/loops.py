"""Extents of loops, trip counts, and products of loops by kind."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr, const
from autotune.nest.loop_nest import Statement

__all__ = ["KIND_OUTPUTS", "body_depth", "loop_quantities"]

# Output of a product of loops, and the kind of loop it multiplies.
KIND_OUTPUTS = {
    "parallel": "parallel",
    "lanes": "vectorized",
    "unrolled": "unrolled",
    "grid": "block",
    "vthreads": "vthread",
    "threads": "thread",
}
_STRAIGHT_LINE = ("vectorized", "unrolled")


def body_depth(statement: Statement) -> int:
    """Depth of the straight-line body: after the last loop that is not vectorised or unrolled."""
    remaining = [
        index for index, loop in enumerate(statement.loops) if loop.kind not in _STRAIGHT_LINE
    ]
    return remaining[-1] + 1 if remaining else 0


def loop_quantities(statement: Statement) -> dict[str, IntExpr]:
    """``loop``, ``trips``, the products by kind and ``unroll_limit``, by output name."""
    name = statement.name
    outputs = {f"{name}/loop/{i}": loop.extent for i, loop in enumerate(statement.loops)}
    for depth in range(len(statement.loops) + 1):
        outputs[f"{name}/trips/{depth}"] = statement.trips(depth)
    for output, kind in KIND_OUTPUTS.items():
        product = const(1)
        for loop in statement.loops:
            if loop.kind == kind and loop.name not in statement.cooperating:
                product = product * loop.extent
        outputs[f"{name}/{output}"] = product
    outputs[f"{name}/unroll_limit"] = statement.unroll_limit
    return outputs
