"""Traffic of a buffer: elements moved to and from its region at some depth."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr, const, nontrivial, select
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.nest.quantities.regions import buffers_of, held_depth

__all__ = ["reloads", "traffic_quantities"]

# What runs these loops has memory of its own and brings in what it needs by itself.
_PRIVATE = ("block", "thread")


def reloads(nest: LoopNest, statement: Statement, buffer: str) -> tuple[IntExpr, ...]:
    """Number of times that the region of ``buffer`` inside each depth is brought in, [loops + 1].

    A region stays while the loops around it do not move it: what counts are the iterations of all
    loops up to the innermost one that moves it and runs more than once. A fused loop counts as
    the loops that it was fused from. Loops outside the allocation bring nothing in.
    """
    moving = _moving_axes(statement, buffer)
    held = held_depth(nest, buffer)
    trips = again = const(1)
    found = [again]
    for index, loop in enumerate(statement.loops):
        if loop.name not in statement.cooperating:
            for axes, extent in _units(statement, index):
                trips = trips * extent
                if index >= held and (loop.kind in _PRIVATE or axes & moving):
                    again = select(nontrivial(extent), trips, again)
        found.append(again)
    return tuple(found)


def traffic_quantities(
    nest: LoopNest, statement: Statement, known: dict[str, IntExpr]
) -> dict[str, IntExpr]:
    """``traffic`` of one statement by output name, from its ``region``."""
    name = statement.name
    outputs: dict[str, IntExpr] = {}
    for buffer in buffers_of(statement):
        for depth, again in enumerate(reloads(nest, statement, buffer)):
            region = known[f"{name}/region/{buffer}/{depth}"]
            outputs[f"{name}/traffic/{buffer}/{depth}"] = region * again
    return outputs


def _moving_axes(statement: Statement, buffer: str) -> set[str]:
    """Axes that move the buffer's indices, those that move a copy's corner included."""
    axes = {
        axis
        for access in statement.accesses
        if access.buffer == buffer
        for form in access.forms
        for axis in form.axes
    }
    return {mover for axis in axes for mover in statement.movers(axis)}


def _units(statement: Statement, index: int) -> list[tuple[set[str], IntExpr]]:
    """Axes and iterations of the loops that a loop was fused from, outermost first."""
    loop, product = statement.loops[index], const(1)
    if loop.bound is not None:
        return [({loop.axis}, statement.iterations(index))]
    for _, extent in loop.parts:
        product = product * extent
    if product == loop.extent:
        return [({axis}, extent) for axis, extent in loop.parts]
    return [({axis for axis, _ in loop.parts}, loop.extent)]
