"""Elements that pass between a buffer and whatever holds its region at some depth."""

from __future__ import annotations

from autotune.expressions import IntExpr
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.nest.quantities.regions import buffers_of, held_depth

__all__ = ["reloading_depth", "traffic_quantities"]


def reloading_depth(nest: LoopNest, statement: Statement, buffer: str, depth: int) -> int:
    """Of the loops outside ``depth``, how many bring the region of ``buffer`` in again.

    All up to the innermost one that moves the buffer: the region stays while the loops directly
    around it do not move it.
    """
    axes = {
        axis
        for access in statement.accesses
        if access.buffer == buffer
        for form in access.forms
        for axis in form.coefficients
    }
    axes = {mover for axis in axes for mover in statement.movers(axis)}
    held = held_depth(nest, buffer)
    for outside in range(depth, held, -1):
        if any(axis in axes for axis, _ in statement.loops[outside - 1].parts):
            return outside
    return 0


def traffic_quantities(
    nest: LoopNest, statement: Statement, known: dict[str, IntExpr]
) -> dict[str, IntExpr]:
    """``traffic`` of one statement by output name, from its ``region`` and ``trips``."""
    name = statement.name
    outputs: dict[str, IntExpr] = {}
    for buffer in buffers_of(statement):
        for depth in range(len(statement.loops) + 1):
            again = known[f"{name}/trips/{reloading_depth(nest, statement, buffer, depth)}"]
            region = known[f"{name}/region/{buffer}/{depth}"]
            outputs[f"{name}/traffic/{buffer}/{depth}"] = region * again
    return outputs
