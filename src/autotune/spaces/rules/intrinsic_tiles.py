"""Spaces of tiles around an instruction, for memories of its own and without any compiler.

What accelerators with explicit memories need of a schedule is arithmetic on extents: every loop
nest around the instruction splits each axis into loops outside the memories, loops over what the
memories hold, and one call; what they hold must fit.
"""

from __future__ import annotations

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.workloads import Axis, Workload
from autotune.sketches import (
    AtMost,
    Constraint,
    Factor,
    Order,
    Param,
    ProductEquals,
    Sketch,
    Step,
    Tensorize,
    Tile,
)
from autotune.sketches.intrinsics import Intrinsic

__all__ = ["intrinsic_sketch"]


def intrinsic_sketch(workload: Workload, stage: str, intrinsic: Intrinsic) -> Sketch:
    """All ways to tile a matrix product around calls of ``intrinsic``.

    Every axis of a call is an axis of the stage: its reduce axis the stage's last one, its spatial
    axes the stage's last ones, in order. They have three levels: outside the memories, inside
    them, and one call; other axes stay outside. For every memory with a capacity, what its
    operands hold over the inner two levels adds up to at most that.

    Raises:
        UnsupportedWorkload: an axis is missing, or its extent is no multiple of the call's.
    """
    found = workload.stage(stage)
    axes = _matched(found.spatial_axes, intrinsic.spatial_axes, intrinsic, stage)
    axes |= _matched(found.reduce_axes, intrinsic.reduce_axes, intrinsic, stage)
    params: list[Param] = []
    constraints: list[Constraint] = []
    steps: list[Step] = []
    held: dict[str, IntExpr] = {}
    for own in intrinsic.axes:
        axis = axes[own.name]
        names = [f"{stage}.{axis.name}.{level}" for level in range(3)]
        params += [Factor(names[0], None), Factor(names[1], None), Factor(names[2], (own.extent,))]
        constraints.append(ProductEquals(tuple(names), const(axis.extent)))
        steps.append(Tile(stage, axis.name, tuple(map(var, names))))
        held[own.name] = var(names[1])
    constraints += _capacities(intrinsic, held)
    order = [f"{axis.name}.0" for axis in found.axes]
    order += [f"{axes[own.name].name}.1" for own in intrinsic.axes]
    called = tuple(f"{axes[own.name].name}.2" for own in intrinsic.axes)
    steps += [Order(stage, (*order, *called)), Tensorize(stage, called, intrinsic.name)]
    return Sketch(intrinsic.name, workload, tuple(params), tuple(constraints), tuple(steps))


def _matched(
    axes: tuple[Axis, ...], called: tuple[Axis, ...], intrinsic: Intrinsic, stage: str
) -> dict[str, Axis]:
    """The axis of the stage for each of the call's."""
    if len(axes) < len(called):
        raise UnsupportedWorkload(
            f"intrinsic {intrinsic.name!r} needs {len(called)} {called[0].kind} axes; stage "
            f"{stage!r} has {len(axes)}"
        )
    pairs = dict(zip([own.name for own in called], axes[len(axes) - len(called) :], strict=True))
    for own in called:
        axis = pairs[own.name]
        if axis.extent % own.extent:
            raise UnsupportedWorkload(
                f"intrinsic {intrinsic.name!r} fits no loop of axis {axis.name!r} of stage "
                f"{stage!r}: {axis.extent} is no multiple of {own.extent}"
            )
    return pairs


def _capacities(intrinsic: Intrinsic, held: dict[str, IntExpr]) -> list[Constraint]:
    found: list[Constraint] = []
    for scope, capacity in intrinsic.capacities.items():
        total: IntExpr = const(0)
        for operand in intrinsic.operands:
            if operand.scope == scope:
                calls: IntExpr = const(1)
                for name in dict.fromkeys(axis for axis, _ in operand.layout):
                    calls = calls * held[name]
                total = total + calls * operand.bytes
        found.append(AtMost(total, capacity, f"{intrinsic.name}: bytes of {scope}"))
    return found
