"""Which iterations bounded loops run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

from autotune_mlir.passes import bound_loops as bounded_loops
from autotune_mlir.passes.bound_loops import LoopBound, Position
from autotune_mlir.schedule.following import axes_in
from autotune_mlir.schedule.plan import Bound, Plan, StagePlan, shared_loops
from autotune_mlir.schedule.script import Script

__all__ = ["mark_bounds"]


def mark_bounds(script: Script, plan: Plan) -> None:
    """Say which iterations loops run; they get their ends long after the schedule."""
    bounds = [
        _bound(plan, own, bound)
        for own in plan.stages.values()
        for bound in own.bounds
        if own.extent(bound.step.loop) > 1
    ]
    if bounds:
        mark = bounded_loops.mark_of(bounds)
        script.annotate(script.match_kind("func.func"), "bounds", mark)


def _bound(plan: Plan, own: StagePlan, bound: Bound) -> LoopBound:
    """The bound of a loop by its variable, which is a place along its axis.

    Of lanes that are partial results the loop moves all at once: its variable is a place along
    the axis that was split, ``lanes`` times that of the step.
    """
    step, stride = bound.step, bound.step.stride
    axis = own.axis_of(step.loop)
    lanes = _lanes(plan, own, axis)
    around = own.order[: own.order.index(step.loop)]
    rows = [evolve(it, factor=-stride * lanes) for it in _positions(plan, own, around, step.axis)]
    before = [
        evolve(it, step=it.step * lanes, factor=-step.scale)
        for it in _positions(plan, own, around, axis)
    ]
    width, past = own.tile_inside(step.loop), own.extent_inside(step.loop, step.axis) - 1
    near, far = (past, 0) if stride < 0 else (0, past)
    begin = None
    if bound.least is not None:
        begin = (bound.least - stride * far - step.scale * (width - 1)) * lanes
    return LoopBound(
        loop=_name(own, step.loop),
        width=width * lanes,
        scale=step.scale,
        end=(bound.offset - stride * near) * lanes,
        begin=begin,
        positions=(*rows, *before),
    )


def _lanes(plan: Plan, own: StagePlan, axis: str) -> int:
    """Values of the program's axis for one of a stage's axis."""
    split = plan.stages[own.partial_of].partial_lanes if own.partial_of else None
    return split[1] if split is not None and split[0] == axis else 1


def _name(own: StagePlan, loop: str) -> str:
    """What a loop of a stage is called in the program."""
    return f"{own.partial_of or own.stage.name}.{loop}"


def _positions(plan: Plan, own: StagePlan, around: Sequence[str], axis: str) -> Iterator[Position]:
    """What loops add to an axis of a stage: some of its own, and those that it is computed in."""
    for loop in around:
        if own.axis_of(loop) == axis and loop not in own.parallel and own.extent(loop) > 1:
            yield Position(_name(own, loop), 0, own.extent(loop), own.tile_inside(loop), 1)
    yield from _parallel_position(plan, own, [it for it in around if it in own.parallel], axis)
    if own.inside is not None and axis in (shared := shared_loops(plan.stages, own)):
        consumer, at = plan.stages[own.inside[0]], own.inside[1]
        outside = consumer.order[: consumer.order.index(at) + 1]
        yield from _positions(plan, consumer, outside, consumer.axis_of(shared[axis]))


def _parallel_position(
    plan: Plan, own: StagePlan, loops: Sequence[str], axis: str
) -> Iterator[Position]:
    """What the one loop for all cores adds, which has a variable for each axis that it tiles."""
    trips: dict[str, int] = {}
    for loop in loops:
        trips[own.axis_of(loop)] = trips.get(own.axis_of(loop), 1) * own.extent(loop)
    places = axes_in(plan, own, own.consumer or own.stage.name)
    tiled = sorted((it for it, count in trips.items() if count > 1), key=lambda it: places[it])
    if axis in tiled:
        innermost = next(it for it in reversed(loops) if own.axis_of(it) == axis)
        yield Position(
            loop=f"{own.stage.name}.{own.parallel[-1]}",
            dimension=tiled.index(axis),
            trips=trips[axis],
            step=own.tile_inside(innermost),
            factor=1,
        )
