"""Regions of the producers that are computed inside a consumer's loops."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr, const, maximum, product
from autotune.ir.workloads import Axis, Workload
from autotune.nest.loop_nest import Loop, clipped_hull, is_axis
from autotune.nest.stage_schedule import StageSchedule


def names_in_producer(
    workload: Workload,
    schedules: dict[str, StageSchedule],
    consumer: StageSchedule,
    fused: StageSchedule,
) -> dict[str, str]:
    """Axis of a fused producer by the axis of the consumer that moves it in step."""
    for user in workload.consumers(fused.stage.name):
        load = next(load for load in user.loads if load.tensor == fused.stage.name)
        in_step = {
            next(iter(form.coefficients)): axis.name
            for axis, form in zip(fused.stage.spatial_axes, user.access_map(load), strict=True)
            if is_axis(form)
        }
        if user.name == consumer.stage.name:
            return in_step
        upper = names_in_producer(workload, schedules, consumer, schedules[user.name])
        return {outer: in_step[name] for outer, name in upper.items() if name in in_step}
    return {}


def needed_region(
    workload: Workload,
    schedules: dict[str, StageSchedule],
    consumer: StageSchedule,
    fused: StageSchedule,
    path: tuple[Loop, ...],
) -> dict[str, IntExpr]:
    """Region of the fused producer that is computed inside the loop, by axis.

    It is what everything there reads, and whole tiles.
    """
    needed = {axis.name: const(1) for axis in fused.stage.spatial_axes}
    for user in workload.consumers(fused.stage.name):
        schedule = schedules[user.name]
        if schedule is consumer:
            reach = consumer.reach_inside(path)
        else:
            reach = needed_region(workload, schedules, consumer, schedule, path)
            for axis in user.reduce_axes:
                reach[axis.name] = const(axis.extent)
        for load in user.loads:
            if load.tensor != fused.stage.name:
                continue
            forms = user.access_map(load)
            for axis, form in zip(fused.stage.spatial_axes, forms, strict=True):
                extent = clipped_hull(form, reach, const(axis.extent))
                needed[axis.name] = maximum(needed[axis.name], extent)
    return {
        axis.name: _in_whole_tiles(fused, axis, needed[axis.name])
        for axis in fused.stage.spatial_axes
    }


def _in_whole_tiles(fused: StageSchedule, axis: Axis, needed: IntExpr) -> IntExpr:
    """The part of an axis that is computed, where ``needed`` is read.

    The tiles of an axis may be of all of it where windows that move by more than one end before
    its end. Covered axes have guards, which leave out what is not needed.
    """
    parts = [part for loop in fused.ordered_loops for part in loop.parts]
    levels = [extent for name, extent in parts if name == axis.name]
    if len(levels) == 1 or axis.name in fused.covered or needed.value == axis.extent:
        return needed
    tiled = product(levels)
    return needed if tiled == needed else maximum(needed, tiled)
