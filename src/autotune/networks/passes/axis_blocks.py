"""Workloads on other axes: neighbouring ones that they treat as one block, joined or split."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from attrs import evolve, field, frozen

from autotune.ir.expressions import IndexValue, IntExpr, Load, ScalarExpr, const, transform, var
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["AxisGroup", "OnOtherAxes", "axis_groups", "on_other_axes"]


@frozen
class AxisGroup:
    """Neighbouring axes of one shape that become neighbouring axes of another.

    Attributes:
        before: Axes of the first shape.
        after: Axes of the second one.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


def axis_groups(before: Sequence[int], after: Sequence[int]) -> list[AxisGroup]:
    """The smallest groups, in order; axes of extent 1 without a counterpart are a group alone.

    Args:
        before: Extents; none is 0.
        after: Other ones, of as many elements.
    """
    found = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = i, j
        one_left = i < len(before) and before[i] == 1
        one_right = j < len(after) and after[j] == 1
        i += i < len(before) and (one_left or not one_right)
        j += j < len(after) and (one_right or not one_left)
        while prod(before[left:i]) != prod(after[right:j]):
            if prod(before[left:i]) < prod(after[right:j]):
                i += 1
            else:
                j += 1
        found.append(AxisGroup((*range(left, i),), (*range(right, j),)))
    return found


@frozen
class OnOtherAxes:
    """A workload on other axes.

    Attributes:
        workload: Has the same inputs, in order, of other shapes.
        shapes: These shapes, by the name of the input.
    """

    workload: Workload
    shapes: Mapping[str, tuple[int, ...]]


class _Refused(Exception):
    """It does not treat axes as a block."""


@frozen
class _Block:
    """A group of axes that changes.

    Attributes:
        after: Extents of its axes in the workload as it is.
        axes: Names and extents of those that take their place.
    """

    after: tuple[int, ...]
    axes: tuple[tuple[str, int], ...]

    @property
    def long(self) -> tuple[int, ...]:
        """Positions of the axes that have more than one place."""
        return tuple(at for at, extent in enumerate(self.after) if extent > 1)


_Place = tuple[int, int]
"""A block and a position in it."""


@frozen(eq=False)
class _Change:
    """Knowledge of a workload while it is rewritten stage by stage.

    Attributes:
        tensors: Its tensors as they are.
        blocks: The groups that change.
        inside: Of the tensor that is reshaped and of stages: which dimensions are in blocks.
        shapes: New shapes of inputs.
        kept: How dimensions of other inputs are read: all reads have to agree.
    """

    tensors: Mapping[str, Tensor]
    blocks: Sequence[_Block]
    inside: dict[str, dict[int, _Place]]
    shapes: dict[str, tuple[int, ...]] = field(factory=dict)
    kept: dict[str, tuple[object, ...]] = field(factory=dict)


def on_other_axes(
    workload: Workload, name: str, shape: Sequence[int], groups: Sequence[AxisGroup]
) -> OnOtherAxes | None:
    """A workload that reads an input before a reshape, on the axes that it has there.

    Args:
        workload: A workload.
        name: An input.
        shape: What it was reshaped from.
        groups: How axes of that shape become those of the input.

    Returns:
        None where it does something else with axes that the reshape changes than with a whole.
    """
    old = next(it for it in workload.inputs if it.name == name)
    if not old.shape:
        return None
    changed = [
        it
        for it in _with_places(groups)
        if [shape[at] for at in it.before] != [old.shape[at] for at in it.after]
    ]
    prefix = _fresh_prefix(workload)
    blocks = [
        _Block(
            tuple(old.shape[at] for at in it.after),
            tuple((f"{prefix}{number}_{place}", shape[at]) for place, at in enumerate(it.before)),
        )
        for number, it in enumerate(changed)
    ]
    inside = {
        at: (number, place)
        for number, it in enumerate(changed)
        for place, at in enumerate(it.after)
    }
    known = _Change(workload.tensors, blocks, {name: inside}, {name: tuple(shape)})
    try:
        stages = tuple(_stage(it, known) for it in workload.stages)
    except _Refused:
        return None
    shapes = {it.name: known.shapes.get(it.name, it.shape) for it in workload.inputs}
    inputs = tuple(evolve(it, shape=shapes[it.name]) for it in workload.inputs)
    return OnOtherAxes(evolve(workload, inputs=inputs, stages=stages), shapes)


def _fresh_prefix(workload: Workload) -> str:
    """Beginning of axis names that none of a workload's has: it may have been changed before."""
    taken = {axis.name for stage in workload.stages for axis in stage.axes}
    prefix = "b"
    while any(re.fullmatch(rf"{prefix}\d+_\d+", name) for name in taken):
        prefix += "b"
    return prefix


def _with_places(groups: Sequence[AxisGroup]) -> list[AxisGroup]:
    """Groups that all have axes afterwards: others are joined with the next, or the last."""
    found: list[AxisGroup] = []
    waiting: tuple[int, ...] = ()
    for it in groups:
        if it.after:
            found.append(AxisGroup((*waiting, *it.before), it.after))
            waiting = ()
        else:
            waiting += it.before
    if waiting and found:
        found[-1] = AxisGroup((*found[-1].before, *waiting), found[-1].after)
    return found


def _stage(stage: Stage, known: _Change) -> Stage:
    place_of = _block_axes(stage, known)
    if any(it.tensor in known.inside for it in stage.gathers):
        raise _Refused
    for node in walk(stage.body):
        if isinstance(node, IndexValue) and node.index.variables & {*place_of}:
            raise _Refused

    def replace(node: ScalarExpr) -> ScalarExpr | None:
        return _load(node, place_of, known) if isinstance(node, Load) else None

    axes = _axes(stage, place_of, known)
    shape = tuple(it.extent for it in axes if it.kind != "reduce")
    known.inside[stage.name] = {
        at: place_of[axis.name]
        for at, axis in enumerate(stage.spatial_axes)
        if axis.name in place_of
    }
    output = evolve(stage.output, shape=shape)
    return Stage(output, axes, transform(stage.body, replace), stage.combiner)


def _block_axes(stage: Stage, known: _Change) -> dict[str, _Place]:
    """The axes of a stage that are in blocks, by what it reads of tensors that have some."""
    found: dict[str, _Place] = {}
    extents = stage.extents
    for load in stage.loads:
        for at, place in known.inside.get(load.tensor, {}).items():
            index, extent = load.indices[at], known.tensors[load.tensor].shape[at]
            if index.op == "var" and extents[index.args[0]] == extent:
                if found.setdefault(index.args[0], place) != place:
                    raise _Refused
            elif index.value != 0 or extent > 1:
                raise _Refused
    if len({*found.values()}) < len(found):
        raise _Refused
    return found


def _axes(stage: Stage, place_of: Mapping[str, _Place], known: _Change) -> tuple[Axis, ...]:
    """The axes of a stage, with others where there are blocks."""
    numbers = [place_of[axis.name][0] if axis.name in place_of else None for axis in stage.axes]
    new: list[Axis] = []
    for at, axis in enumerate(stage.axes):
        number = numbers[at]
        if number is None:
            new.append(axis)
            continue
        mine = [it for it, other in zip(stage.axes, numbers, strict=True) if other == number]
        if axis is not mine[0]:
            continue
        places = [place_of[it.name][1] for it in mine]
        block, kinds = known.blocks[number], {it.kind for it in mine}
        whole = {*block.long} <= {*places} and places == sorted(places)
        together = numbers[at : at + len(mine)] == [number] * len(mine)
        if not (whole and together and len(kinds) == 1) or "scan" in kinds:
            raise _Refused
        new += [Axis(name, extent, axis.kind) for name, extent in block.axes]
    if stage.reduce_axes and all(it.kind != "reduce" for it in new):
        raise _Refused
    return tuple(new)


def _load(load: Load, place_of: Mapping[str, _Place], known: _Change) -> Load:
    indices: list[IntExpr] = []
    plan: list[object] = []
    inside = known.inside.get(load.tensor)
    done: dict[int, list[int]] = {}
    last: int | None = None
    tensor = known.tensors[load.tensor]
    for at, index in enumerate(load.indices):
        if inside is not None:
            place = inside.get(at)
        else:
            place = place_of.get(index.args[0]) if index.op == "var" else None
        if place is None:
            if index.variables & {*place_of}:
                raise _Refused
            indices.append(index)
            plan.append(at)
            last = None
            continue
        number, position = place
        if number in done and last != number:
            raise _Refused
        if number not in done:
            is_there = any(it[0] == number for it in place_of.values())
            block = known.blocks[number]
            # An axis of one place is in what is reshaped, but need not be in what is read.
            wide = inside is not None or not block.long or tensor.shape[at] > 1
            wide = wide or _has_long(load, at, number, place_of, known)
            if wide:
                indices += [var(name) if is_there else const(0) for name, _ in block.axes]
                plan.append(("block", number))
            done[number] = []
        done[number].append(position)
        last = number
    _check_whole(done, plan, known)
    if inside is None:
        _agree(load.tensor, tuple(plan), known)
    return Load(load.tensor, tuple(indices))


def _has_long(
    load: Load, at: int, number: int, place_of: Mapping[str, _Place], known: _Change
) -> bool:
    """Return whether further indices of a load are long axes of a block."""
    places = [place_of.get(it.args[0]) for it in load.indices[at:] if it.op == "var"]
    return any(it and it[0] == number and it[1] in known.blocks[number].long for it in places)


def _check_whole(done: Mapping[int, list[int]], plan: Sequence[object], known: _Change) -> None:
    """Refuse reads of a part of a block, or of one in another order."""
    for number, positions in done.items():
        needed = {*known.blocks[number].long}
        if positions != sorted({*positions}):
            raise _Refused
        if ("block", number) in plan and not needed <= {*positions}:
            raise _Refused


def _agree(tensor: str, plan: tuple[object, ...], known: _Change) -> None:
    """Note how an input is read, and its new shape."""
    if known.kept.setdefault(tensor, plan) != plan:
        raise _Refused
    old, new = known.tensors[tensor].shape, []
    for part in plan:
        if isinstance(part, int):
            new.append(old[part])
        elif isinstance(part, tuple):
            new += [extent for _, extent in known.blocks[part[1]].axes]
    known.shapes[tensor] = tuple(new)
