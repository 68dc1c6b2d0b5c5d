"""Reshapes are merged, and moved behind what computes on the axes that they leave together."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import evolve

from autotune.ir.expressions import (
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    affine_form,
    const,
    transform,
)
from autotune.ir.workloads import Workload
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
from autotune.networks.passes.axis_blocks import axis_groups, on_other_axes
from autotune.networks.passes.fusion_forms import form_of
from autotune.networks.passes.workload_forms import is_reshape
from autotune.targets import Target

__all__ = ["keeps_rows", "view", "views"]


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
    return node.operands[0] if node is not None and is_reshape(node) else None


def _merged(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
    """A reshape of a reshape as one, a permutation of a permutation as one."""
    if is_reshape(node):
        shape = node.results[0][0]
        if _source(operands[0]) is not None:
            return [view(operands[0], shape)]
        return _cut_behind(operands[0], shape)
    second = _order(node)
    inner = operands[0].node if second is not None else None
    first = None if inner is None else _order(inner)
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
    operation = node.operation
    if not isinstance(operation, Workload) or len(operation.stages) > 1:
        return None
    (stage,) = operation.stages
    if not isinstance(stage.body, Load) or stage.combiner is not None:
        return None
    if stage.output.dtype != operation.inputs[0].dtype:
        return None
    found: list[tuple[int, int]] = []
    waiting = list(zip(stage.body.indices, operation.inputs[0].shape, strict=True))
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


def _order(node: Node) -> list[int] | None:
    """The order of axes that a node permutes to; None where it does something else."""
    operation = node.operation
    if not isinstance(operation, Workload) or len(operation.stages) > 1:
        return None
    (stage,) = operation.stages
    if not isinstance(stage.body, Load) or len(stage.body.indices) != len(stage.axes):
        return None
    names, places = [axis.name for axis in stage.axes], stage.body.indices
    moved = {it.args[0]: at for at, it in enumerate(places) if it.op == "var"}
    shape = node.operands[0].shape
    if stage.combiner is not None or stage.output.dtype != node.operands[0].dtype:
        return None
    whole = {*moved} == {*names} and len(moved) == len(places)
    if not whole or any(shape[moved[it.name]] != it.extent for it in stage.axes):
        return None
    return [moved[name] for name in names]


def _sliced(node: Node, operands: Sequence[Value]) -> Sequence[Value] | None:
    """A part of a tensor that a constant index chooses, without the index."""
    operation = node.operation
    if not isinstance(operation, Workload) or len(operation.stages) > 1 or len(operands) != 2:
        return None
    body, index = operation.stages[0].body, operands[1].constant
    if not isinstance(body, Gather) or index is None or index.size > 1:
        return None
    chosen = [at for at, it in enumerate(body.indices) if not isinstance(it, IndexValue)]
    read = [*operation.stages[0].reads]
    if len(chosen) > 1 or read != [it.name for it in operation.inputs]:
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
        view(it, found.shapes[tensor.name])
        for it, tensor in zip(node.operands, workload.inputs, strict=True)
    )
    for it in node.requirements:
        by_place = isinstance(it.low, tuple) or isinstance(it.high, tuple)
        if by_place and operands[it.operand].shape != node.operands[it.operand].shape:
            return None
    output = found.workload.tensors[workload.outputs[0]]
    return evolve(
        node,
        operation=found.workload,
        operands=operands,
        results=((output.shape, output.dtype),),
    )


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
