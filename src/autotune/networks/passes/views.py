"""Reshapes are merged, and moved behind what computes on the axes that they leave together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from math import prod

from attrs import evolve, field, frozen

from autotune.ir.expressions import (
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    affine_form,
    const,
    transform,
    var,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.networks.graph import (
    Graph,
    Node,
    Value,
    rewritten,
    slice_axes,
    slice_axis,
    transpose,
)
from autotune.networks.graph import reshape as reshaped
from autotune.networks.graph.graph import results_of
from autotune.networks.passes.workload_forms import form_of, permutation
from autotune.targets import Target

__all__ = ["AxisGroup", "axis_groups", "keeps_rows", "on_other_axes", "view", "views"]


def views(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Merge what only renames elements, and let it follow what it need not precede.

    ``relu(reshape(y))`` becomes ``reshape(relu(y))``, which is then computed where ``y`` is.
    Models have reshapes around products of matrices and reductions, through which nothing would
    be fused. A workload that treats the axes which a reshape changes as one block is computed on
    the axes before it, whatever it does along others. Other operands are reshaped, too, which
    costs nothing when it runs. What only inserts axes of extent 1 into an operand that is
    broadcast is left out.

    Args:
        graph: A network.
        machine: Not asked.
    """
    count = 0

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        found = _merged(node, operands)
        if found is None:
            found = _sliced(node, operands)
        if found is None and isinstance(node.operation, Workload):
            found = _moved(evolve(node, operands=operands))
        count += found is not None
        return found

    changed = rewritten(graph, change)
    return changed, f"{count} merged or moved" if count else ""


def keeps_rows(before: Sequence[int], after: Sequence[int]) -> bool:
    """Return whether a reshape leaves the last axis of more than one element as it is."""
    return _long(before)[-1:] == _long(after)[-1:]


def view(value: Value, shape: Sequence[int]) -> Value:
    """A value in another shape, without reshapes between."""
    source = _source(value)
    return reshaped(value if source is None else source, shape)


def _source(value: Value) -> Value | None:
    """Value that a value is a reshape of."""
    node = value.node
    return node.operands[0] if node is not None and node.is_reshape else None


def _merged(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
    """A reshape of a reshape as one, a permutation of a permutation as one."""
    if node.is_reshape:
        shape = node.results[0][0]
        if _source(operands[0]) is not None:
            return [view(operands[0], shape)]
        return _cut_behind(operands[0], shape)
    second = permutation(node)
    inner = operands[0].node if second is not None else None
    first = None if inner is None else permutation(inner)
    if second is None or inner is None or first is None:
        return None
    return [transpose(inner.operands[0], [first[axis] for axis in second])]


def _cut_behind(value: Value, shape: Sequence[int]) -> Sequence[Value] | None:
    """A part of a reshape in the place of a reshape of a part: it is computed where it is read."""
    found = None if value.node is None else _part(value.node)
    if value.node is None or found is None:
        return None
    source, extents = value.node.operands[0], [extent for extent, _ in found]
    wide, first = [1] * len(shape), [0] * len(shape)
    for group in axis_groups(value.shape, shape):
        cut = [at for at in group.before if value.shape[at] < extents[at]]
        long = [at for at in group.after if shape[at] > 1]
        for at in group.after:
            wide[at] = shape[at]
        if not cut:
            continue
        if not long or [at for at in group.before if extents[at] > 1] != cut:
            return None
        inner = prod(shape[at] for at in long[1:])
        whole, start = found[cut[0]]
        if whole % inner or start % inner:
            return None
        wide[long[0]], first[long[0]] = whole // inner, start // inner
    return [slice_axes(view(source, wide), first, shape, [1] * len(shape))]


def _part(node: Node) -> list[tuple[int, int]] | None:
    """Of what a node is a part: by axis the extent of the whole, and where the part begins.

    None where it is something else.
    """
    stage = node.pointwise
    if stage is None or not isinstance(stage.body, Load):
        return None
    if stage.output.dtype != node.operands[0].dtype:
        return None
    found: list[tuple[int, int]] = []
    waiting = list(zip(stage.body.indices, node.operands[0].shape, strict=True))
    for axis in stage.axes:
        form = affine_form(waiting[0][0]) if waiting else None
        here = form is not None and form.coefficients in ({}, {axis.name: 1})
        if form is not None and here and (form.coefficients or axis.extent == 1):
            found.append((waiting.pop(0)[1], form.constant))
        elif axis.extent == 1:
            found.append((1, 0))
        else:
            return None
    return None if waiting else found


def _sliced(node: Node, operands: Sequence[Value]) -> Sequence[Value] | None:
    """A part of a tensor that a constant index chooses, without the index."""
    stage = node.pointwise
    if stage is None or not isinstance(stage.body, Gather) or len(operands) != 2:
        return None
    index = operands[1].constant
    chosen = [at for at, it in enumerate(stage.body.indices) if not isinstance(it, IndexValue)]
    if index is None or index.size > 1 or len(chosen) > 1:
        return None
    if [*stage.reads] != [*node.named_operands]:
        return None
    source, axis = operands[0], chosen[0]
    place = int(index.reshape(())) % source.shape[axis]
    part = slice_axis(source, axis, place, place + 1)
    return [reshaped(part, node.results[0][0])]


def _moved(node: Node) -> Sequence[Value] | None:
    """A workload that reads what was reshaped as it was before, and its result reshaped."""
    assert isinstance(node.operation, Workload)
    reshapes = [at for at, it in enumerate(node.operands) if _source(it) is not None]
    if not reshapes or len(node.results) > 1 or form_of(node.operation).is_product:
        return None
    shape, _ = node.results[0]
    size = prod(shape)
    candidates = (at for at in reshapes if node.operands[at].size >= size)
    preferred = (it for it in candidates if _is_preferred(node, it, size))
    moved = (it for at in preferred if (it := _computed_before(node, at)) is not None)
    changed = next(moved, node)
    for at, value in enumerate(changed.operands):
        if value.size < size:
            changed = _without_units(changed, at)
    return None if changed is node else [view(results_of(changed)[0], shape)]


def _is_preferred(node: Node, number: int, size: int) -> bool:
    """Return whether an operand's axes before its reshape are better than those after it.

    Another operand that is as large has the axes after it: it would be reshaped in its turn.
    Those axes are better of which there are fewer; so no reshape is ever moved to and fro.
    """
    value = node.operands[number]
    source = _source(value)
    assert source is not None
    others = (it for at, it in enumerate(node.operands) if at != number and it.size >= size)
    stay = any(it.constant is None and _source(it) is None for it in others)
    return source.rank < value.rank or not stay


def _computed_before(node: Node, number: int) -> Node | None:
    """The node on the axes before the reshape of an operand; None where it needs others."""
    value, workload = node.operands[number], node.operation
    source = _source(value)
    assert source is not None and isinstance(workload, Workload)
    groups = axis_groups(source.shape, value.shape)
    name = workload.inputs[number].name
    found = on_other_axes(workload, name, source.shape, groups)
    if found is None:
        return None
    operands = tuple(
        view(it, tensor.shape) for it, tensor in zip(node.operands, found.inputs, strict=True)
    )
    for it in node.requirements:
        by_place = isinstance(it.low, tuple) or isinstance(it.high, tuple)
        if by_place and operands[it.operand].shape != node.operands[it.operand].shape:
            return None
    output = found.tensors[workload.outputs[0]]
    results = ((output.shape, output.dtype),)
    return evolve(node, operation=found, operands=operands, results=results)


def _without_units(node: Node, number: int) -> Node:
    """The node that reads an operand before a reshape by which axes of extent 1 came or went."""
    value, workload = node.operands[number], node.operation
    source = _source(value)
    assert isinstance(workload, Workload)
    if source is None or _long(source.shape) != _long(value.shape):
        return node
    tensor = workload.inputs[number]
    if any(it.tensor == tensor.name for stage in workload.stages for it in stage.gathers):
        return node
    if any(it.operand == number for it in node.requirements):
        return node

    kept = _same_places(source.shape, value.shape)

    def replace(body: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(body, Load) or body.tensor != tensor.name:
            return None
        indices = (const(0) if at is None else body.indices[at] for at in kept)
        return Load(tensor.name, tuple(indices))

    stages = tuple(evolve(it, body=transform(it.body, replace)) for it in workload.stages)
    inputs = list(workload.inputs)
    inputs[number] = evolve(tensor, shape=source.shape)
    operands = list(node.operands)
    operands[number] = source
    operation = evolve(workload, inputs=tuple(inputs), stages=stages)
    return evolve(node, operation=operation, operands=tuple(operands))


def _long(shape: Sequence[int]) -> list[int]:
    return [extent for extent in shape if extent > 1]


def _same_places(shape: Sequence[int], other: Sequence[int]) -> list[int | None]:
    """By axis of a shape the one of another that it is; None of an axis of extent 1 that is none.

    The shapes differ in axes of extent 1.
    """
    found: list[int | None] = []
    at = 0
    for extent in shape:
        while extent > 1 and other[at] == 1:
            at += 1
        is_there = at < len(other) and other[at] == extent
        found.append(at if is_there else None)
        at += is_there
    return found


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


class _Refused(Exception):
    """Refusal to treat axes as a block."""


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
) -> Workload | None:
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
    inputs = tuple(evolve(it, shape=known.shapes.get(it.name, it.shape)) for it in workload.inputs)
    return evolve(workload, inputs=inputs, stages=stages)


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
    new: list[Axis] = []
    seen: set[int] = set()

    def block_of(axis: Axis) -> int | None:
        return place_of[axis.name][0] if axis.name in place_of else None

    for number, run in groupby(stage.axes, block_of):
        mine = [*run]
        if number is None:
            new += mine
            continue
        places, kinds = [place_of[it.name][1] for it in mine], {it.kind for it in mine}
        block = known.blocks[number]
        whole = {*block.long} <= {*places} and places == sorted(places)
        if number in seen or not whole or len(kinds) > 1 or "scan" in kinds:
            raise _Refused
        seen.add(number)
        new += [Axis(name, extent, mine[0].kind) for name, extent in block.axes]
    if stage.reduce_axes and all(it.kind != "reduce" for it in new):
        raise _Refused
    return tuple(new)


def _load(load: Load, place_of: Mapping[str, _Place], known: _Change) -> Load:
    """A load on the new axes; of a part of a block, or of one in another order, there is none."""
    inside, shape = known.inside.get(load.tensor), known.tensors[load.tensor].shape
    there = {number for number, _ in place_of.values()}
    indices: list[IntExpr] = []
    plan: list[object] = []
    seen: set[int] = set()

    def place(at: int) -> tuple[int | None, int]:
        index = load.indices[at]
        if inside is not None:
            return inside.get(at, (None, 0))
        return place_of.get(index.args[0], (None, 0)) if index.op == "var" else (None, 0)

    for number, run in groupby(range(len(load.indices)), lambda at: place(at)[0]):
        mine = [*run]
        if number is None:
            if any(load.indices[at].variables & {*place_of} for at in mine):
                raise _Refused
            indices += [load.indices[at] for at in mine]
            plan += mine
            continue
        block, positions = known.blocks[number], [place(at)[1] for at in mine]
        if number in seen or positions != sorted({*positions}):
            raise _Refused
        seen.add(number)
        # An axis of one place is in what is reshaped, but need not be in what is read.
        wide = inside is not None or not block.long or shape[mine[0]] > 1
        if wide or {*block.long} & {*positions}:
            if not {*block.long} <= {*positions}:
                raise _Refused
            indices += [var(name) if number in there else const(0) for name, _ in block.axes]
            plan.append(("block", number))
    if inside is None:
        _agree(load.tensor, tuple(plan), known)
    return Load(load.tensor, tuple(indices))


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
