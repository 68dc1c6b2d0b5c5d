"""Stages that are computed inside the loops over a reduction's result."""

from __future__ import annotations

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Load
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage
from autotune_mlir.schedule.levels import is_extracted
from autotune_mlir.schedule.plan import Plan, StagePlan

__all__ = ["axes_in", "clipped_sizes", "stages_inside"]


def axes_in(plan: Plan, own: StagePlan, top: str) -> dict[str, int]:
    """Position of each spatial axis of a stage among the dimensions of the stage ``top``."""
    stage = own.stage
    if top == stage.name:
        return {axis.name: position for position, axis in enumerate(stage.spatial_axes)}
    for indices in _loads(plan, top, stage.name):
        return dict(zip((axis.name for axis in stage.spatial_axes), indices, strict=True))
    raise InvalidSchedule(f"stage {top!r} does not read {stage.name!r} point by point")


def stages_inside(plan: Plan, name: str, top: str) -> list[str]:
    """Stages computed inside the loops of ``top``, each after what reads it.

    An inlined one of which single elements are read is computed before.
    """
    between: list[str] = []
    waiting = [top]
    while waiting:
        reader = waiting.pop(0)
        for node in walk(plan.stages[reader].stage.body):
            if isinstance(node, Load) and node.tensor in plan.stages:
                read = plan.stages[node.tensor]
                is_inlined = read.inlined and not is_extracted(plan, node.tensor)
                if node.tensor not in between and (node.tensor == name or is_inlined):
                    between.append(node.tensor)
                    waiting.append(node.tensor)
    return between


def clipped_sizes(plan: Plan) -> dict[str, list[int]]:
    """The largest tiles of stages that follow padded results, per axis, by stage.

    What is beyond the end of the result is left out of such a tile, so that only the running
    program knows its extents: lanes beyond them are masked.
    """
    found: dict[str, list[int]] = {}
    for own in plan.stages.values():
        if not own.is_clipped or own.consumer is None or own.accumulated_at is None:
            continue
        waiting = {own.consumer: _tile_of(plan, own, own.consumer, own.accumulated_at)}
        while waiting:
            reader, tile = waiting.popitem()
            found[reader] = tile
            stage = plan.stages[reader].stage
            names = [axis.name for axis in stage.spatial_axes]
            for load in stage.loads:
                read = plan.stages.get(load.tensor)
                positions = _plain(stage, load, names)
                if read is not None and read.inlined and positions is not None:
                    waiting[load.tensor] = [tile[position] for position in positions]
    return found


def _tile_of(plan: Plan, own: StagePlan, top: str, loop: str) -> list[int]:
    """Extents of the last stage's axes inside the loop in which a result is kept."""
    tile = [axis.extent for axis in plan.stages[top].stage.spatial_axes]
    for name, position in axes_in(plan, own, top).items():
        tile[position] = own.extent_inside(loop, name)
    return tile


def _loads(plan: Plan, reader: str, read: str) -> list[list[int]]:
    """Positions of the axes of ``reader`` by which it reads ``read``, through inlined stages."""
    stage = plan.stages[reader].stage
    names = [axis.name for axis in stage.spatial_axes]
    found = []
    for node in walk(stage.body):
        if not isinstance(node, Load):
            continue
        positions = _plain(stage, node, names)
        if positions is None:
            continue
        if node.tensor == read:
            found.append(positions)
        elif node.tensor in plan.stages and plan.stages[node.tensor].inlined:
            for inner in _loads(plan, node.tensor, read):
                found.append([positions[position] for position in inner])
    return found


def _plain(stage: Stage, load: Load, names: list[str]) -> list[int] | None:
    """Which axis each index of a load is; None where one is more than an axis."""
    positions = []
    for index in load.indices:
        if index.op != "var" or index.args[0] not in names:
            return None
        positions.append(names.index(str(index.args[0])))
    return positions
