"""Workloads whose tensors are stored in another order of their axes.

Dimension ``i`` of a tensor as it was is dimension ``order[i]`` of what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.expressions import Gather, Load, ScalarExpr, transform
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["Order", "induced_orders", "inverse", "is_identity", "permuted"]

Order = tuple[int, ...]


def inverse(order: Sequence[int]) -> Order:
    """By dimension of what is stored, the dimension of the tensor as it was."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def is_identity(order: Sequence[int]) -> bool:
    """Tell if nothing is stored in another place."""
    return all(at == place for at, place in enumerate(order))


def permuted(workload: Workload, orders: Mapping[str, Order]) -> Workload:
    """The same computation on tensors that are stored in other orders.

    A stage that touches one of them runs over its axes in the order in which they are stored: of
    its output, and for those that are reduced of what it reads first.

    Args:
        workload: What is computed.
        orders: By name of an input or a stage, how it is stored; others stay as they are.

    Raises:
        InvalidValueError: an order is none of the dimensions of its tensor.
    """
    tensors = workload.tensors
    for name, order in orders.items():
        if name not in tensors or sorted(order) != [*range(len(tensors[name].shape))]:
            raise InvalidValueError(f"workload {workload.name!r}: {name!r} has no order {order}")
    changed = {name: order for name, order in orders.items() if not is_identity(order)}
    if not changed:
        return workload
    return evolve(
        workload,
        inputs=tuple(_stored(it, changed) for it in workload.inputs),
        stages=tuple(_permuted_stage(it, changed) for it in workload.stages),
    )


def _stored(tensor: Tensor, orders: Mapping[str, Order]) -> Tensor:
    if tensor.name not in orders:
        return tensor
    return evolve(tensor, shape=_placed(tensor.shape, orders[tensor.name]))


def _placed(items: Sequence[int], order: Order) -> tuple[int, ...]:
    return tuple(items[at] for at in inverse(order))


def _permuted_stage(stage: Stage, orders: Mapping[str, Order]) -> Stage:
    if not orders.keys() & {stage.name, *stage.reads}:
        return stage
    axes = stage.spatial_axes
    if stage.name in orders:
        axes = tuple(axes[at] for at in inverse(orders[stage.name]))
    made = evolve(
        stage,
        output=_stored(stage.output, orders),
        axes=(*axes, *stage.reduce_axes),
        body=_permuted_body(stage.body, orders),
    )
    return evolve(made, axes=(*axes, *_reading_order(made)))


def _permuted_body(body: ScalarExpr, orders: Mapping[str, Order]) -> ScalarExpr:
    def replace(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Gather):
            places = tuple(_permuted_body(index, orders) for index in node.indices)
            order = orders.get(node.tensor, tuple(range(len(places))))
            return Gather(node.tensor, tuple(places[at] for at in inverse(order)))
        if isinstance(node, Load) and node.tensor in orders:
            return Load(
                node.tensor, tuple(node.indices[at] for at in inverse(orders[node.tensor]))
            )
        return None

    return transform(body, replace)


def _reading_order(stage: Stage) -> list[Axis]:
    """Axes that are reduced, in the order of the dimensions that they are first read along."""
    found: dict[str, Axis] = {}
    reduced = {axis.name: axis for axis in stage.reduce_axes}
    for read in stage.accesses:
        for form in stage.forms(read):
            found |= {name: reduced[name] for name in sorted(form.axes & reduced.keys())}
    return [*(found | reduced).values()]


def induced_orders(workload: Workload, inputs: Mapping[str, Order]) -> dict[str, Order] | None:
    """An order of every tensor that follows from that of some inputs.

    The output of a stage is stored in the order of that of its operands which it mostly runs
    along; an axis that is none of this operand's takes the place of a dimension of it that the
    output does not have, as channels of a result take that of those that are summed over. What
    else is read is stored in the order in which the stage then reads it: first what is summed
    over, then the output.

    Args:
        workload: What is computed.
        inputs: How some inputs are stored, by name.

    Returns:
        By name of each input and stage that has dimensions; None where an axis has no place.
    """
    orders = {**inputs}
    for stage in workload.stages:
        order = _output_order(stage, orders)
        if order is None:
            return None
        orders[stage.name] = order
        _order_operands(stage, orders)
    return orders


def _output_order(stage: Stage, orders: Mapping[str, Order]) -> Order | None:
    """Storage order of its output; unchanged where nothing that it reads has an order."""
    names = [axis.name for axis in stage.spatial_axes]
    best: dict[str, int] | None = None
    free: list[int] = []
    for read in stage.accesses:
        if read.tensor not in orders:
            continue
        places: dict[str, int] = {}
        unused = []
        for place, form in _stored_forms(stage, read, orders[read.tensor]):
            mine = [name for name in names if name in form]
            places = {**dict.fromkeys(mine, place), **places}
            unused += [] if mine else [place]
        if best is None or len(places) > len(best):
            best, free = places, unused
    if best is None:
        return tuple(range(len(names)))
    for name in names:
        if name not in best:
            if not free:
                return None
            best[name] = free.pop(0)
    ranked = sorted(range(len(names)), key=lambda at: best[names[at]])
    return inverse(ranked)


def _stored_forms(
    stage: Stage, read: Load | Gather, order: Order
) -> list[tuple[int, frozenset[str]]]:
    """By place of what is stored, the axes that it is read along."""
    forms = stage.forms(read)
    return [(place, forms[at].axes) for place, at in enumerate(inverse(order))]


def _order_operands(stage: Stage, orders: dict[str, Order]) -> None:
    """Give what the stage reads, and has no order yet, that of the loops of the stage."""
    known = [read for read in stage.accesses if read.tensor in orders]
    if not known:
        return
    spatial = [stage.spatial_axes[at].name for at in inverse(orders[stage.name])]
    reduced: dict[str, None] = {}
    for read in known:
        for _, axes in _stored_forms(stage, read, orders[read.tensor]):
            reduced |= dict.fromkeys(it.name for it in stage.reduce_axes if it.name in axes)
    rank = {name: at for at, name in enumerate([*reduced, *spatial])}
    for read in stage.accesses:
        if read.tensor in orders:
            continue
        keys, last = [], -1
        for form in stage.forms(read):
            last = max((rank.get(name, last) for name in form.axes), default=last)
            keys.append(last)
        orders[read.tensor] = inverse(sorted(range(len(keys)), key=lambda at: keys[at]))
