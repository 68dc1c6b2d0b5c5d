"""Convolutions, and what is between them, with the channels last.

A tensor that is stored in another order is a transpose of what is stored. Nodes that read such a
transpose are computed on what is stored where they can be, and their results are transposes
again: a transpose is left only where a node needs the order of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from autotune.ir.expressions import Binary, ScalarExpr
from autotune.ir.expressions.scalar import reads
from autotune.ir.rewrites.permuted import Order, induced_orders, inverse, is_identity, permuted
from autotune.ir.workloads import Workload
from autotune.networks.graph import (
    Graph,
    HostOperator,
    Node,
    Value,
    matmul,
    reshape,
    rewritten,
    transpose,
)
from autotune.networks.graph.making import compute
from autotune.networks.passes.expected_costs import (
    KeptSpeedups,
    Passes,
    cost_key,
    expected_speedup,
)
from autotune.networks.passes.views import AxisGroup, axis_groups
from autotune.networks.passes.workload_forms import Convolution, permutation
from autotune.targets import Target

__all__ = ["channels_last", "choose_layout", "convolutions", "reshaped_order"]

_ELEMENTWISE = ("function", "bitwise")


def convolutions(graph: Graph) -> int:
    """The number of convolutions with constant weights, those in loops left out."""
    return sum(Convolution.of(node, node.operands) is not None for node in graph.nodes)


def channels_last(graph: Graph) -> Graph:
    """Store what convolutions of constant weights read and write with the channels last.

    Constants are transposed here. Convolutions of one element in space become products. A graph
    without convolutions stays as it is; bodies of loops do, too.
    """
    return rewritten(graph, _Converter().changed, loops=False)


@frozen(eq=False)
class _Stored:
    """A value in the order of the model, what is stored of it, and how."""

    value: Value
    stored: Value
    order: Order


@define(eq=False)
class _Converter:
    """Rewriting of a graph.

    Attributes:
        forms: By workload and orders of what it reads: it on what is stored, and all orders.
        permuted: By key of a value that is a transpose: what is stored of it.
        stored: By key and order: what was stored of values in the order of the model.
    """

    forms: dict[object, tuple[Workload, Mapping[str, Order]] | None] = field(factory=dict)
    permuted: dict[object, _Stored] = field(factory=dict)
    stored: dict[tuple[object, Order], _Stored] = field(factory=dict)

    def changed(self, node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        """Return what takes the place of the results of a node; None to keep it."""
        convolution = Convolution.of(node, operands)
        if convolution is not None:
            return self._convolution(node, operands, convolution)
        moved: dict[object, Order] = {
            it.key: self.permuted[it.key].order for it in operands if it.key in self.permuted
        }
        if not moved:
            return None
        if isinstance(node.operation, HostOperator):
            return self._on_host(node, operands)
        if not isinstance(node.operation, Workload) or _multiplies(node.operation):
            return None
        stay = sum(it.size for it in operands if it.constant is None and it.key not in moved)
        if stay > sum(it.size for it in operands if it.key in moved):
            return None
        order = permutation(node)
        if order is not None:
            source = self.permuted[operands[0].key]
            return [self._as_model(source.stored, tuple(source.order[at] for at in order))]
        return self._computed(node, operands, moved)

    def _convolution(
        self, node: Node, operands: Sequence[Value], convolution: Convolution
    ) -> Sequence[Value] | None:
        orders: dict[object, Order] = {convolution.data.key: convolution.channels_last}
        if not convolution.is_product:
            return self._computed(node, operands, orders)
        # All positions are one axis, which tiles divide more freely.
        found = self._stored_operands(node, operands, orders)
        assert found is not None  # the places of its axes are those of a convolution
        workload, (data, weights), (order,) = found
        if workload.inputs[0].name != convolution.image_name:
            data, weights = weights, data
        rows = reshape(data, (-1, data.shape[-1]))
        product = matmul(rows, reshape(weights, weights.shape[-2:]), convolution.dtype)
        stored = reshape(product, (*data.shape[:-1], weights.shape[-1]))
        return [self._as_model(stored, order)]

    def _computed(
        self, node: Node, operands: Sequence[Value], moved: Mapping[object, Order]
    ) -> Sequence[Value] | None:
        """The results of a workload on what is stored; None where an axis has no place."""
        found = self._stored_operands(node, operands, moved)
        if found is None:
            return None
        workload, stored, orders = found
        outputs = [workload.tensors[name] for name in workload.outputs]
        shapes = [(tensor.shape, tensor.dtype) for tensor in outputs]
        results = compute(workload, stored, shapes, node.requirements, node.name)
        return [self._as_model(it, order) for it, order in zip(results, orders, strict=True)]

    def _stored_operands(
        self, node: Node, operands: Sequence[Value], moved: Mapping[object, Order]
    ) -> tuple[Workload, list[Value], list[Order]] | None:
        """A workload on what is stored, its operands, and the orders of its results."""
        workload = node.operation
        assert isinstance(workload, Workload)
        given = {it.name: value for it, value in zip(workload.inputs, operands, strict=True)}
        known = {name: moved[it.key] for name, it in given.items() if it.key in moved}
        key = workload, tuple(known.items())
        if key not in self.forms:
            self.forms[key] = _form(workload, known)
        found = self.forms[key]
        if found is None or any(
            isinstance(bound, tuple) for it in node.requirements for bound in (it.low, it.high)
        ):
            return None
        form, orders = found
        stored = [self._operand(it, orders.get(name)) for name, it in given.items()]
        return form, stored, [orders[name] for name in workload.outputs]

    def _on_host(self, node: Node, operands: Sequence[Value]) -> Sequence[Value] | None:
        """The result of an operator of the host: a reshape, or a function of each element."""
        operator = node.operation
        assert isinstance(operator, HostOperator)
        (shape, dtype), source = node.results[0], self.permuted[operands[0].key]
        if operator.kind in _ELEMENTWISE and len(operands) == 1:
            result = compute(operator, [source.stored], [(source.stored.shape, dtype)])
            return [self._as_model(result[0], source.order)]
        if operator.kind != "reshape":
            return None
        found = reshaped_order(source.value.shape, shape, source.order)
        if found is not None:
            return [self._as_model(reshape(source.stored, found[0]), found[1])]
        if len(shape) < 3:
            return None
        # It joins axes that do not lie together: one transpose that leaves channels last.
        axes, whole, order = grouped_order(source.value.shape, shape)
        moved = transpose(source.stored, [source.order[axis] for axis in axes])
        return [self._as_model(reshape(moved, whole), order)]

    def _operand(self, value: Value, order: Order | None) -> Value:
        """An operand as it is stored in an order."""
        if order is None or is_identity(order):
            return value
        known = self.permuted.get(value.key) or self.stored.get((value.key, order))
        if known is not None and known.order == order:
            return known.stored
        stored = transpose(value, inverse(order))
        self.stored[value.key, order] = _Stored(value, stored, order)
        return stored

    def _as_model(self, stored: Value, order: Order) -> Value:
        """The value that is ``stored`` in the order of the model."""
        if is_identity(order):
            return stored
        value = transpose(stored, order)
        self.permuted[value.key] = _Stored(value, stored, order)
        return value


def _form(
    workload: Workload, known: Mapping[str, Order]
) -> tuple[Workload, Mapping[str, Order]] | None:
    orders = induced_orders(workload, known)
    return None if orders is None else (permuted(workload, orders), orders)


def _multiplies(workload: Workload) -> bool:
    """Tell if products of elements of two tensors are added up."""
    return any(
        stage.combiner == "add"
        and isinstance(stage.body, Binary)
        and stage.body.op == "mul"
        and {*_variable(stage.body.left, workload)} != {*_variable(stage.body.right, workload)}
        and all(_variable(it, workload) for it in (stage.body.left, stage.body.right))
        for stage in workload.stages
    )


def _variable(body: ScalarExpr, workload: Workload) -> list[str]:
    """Value that it reads and that is no constant."""
    return [it.tensor for it in reads(body) if not workload.tensors[it.tensor].constant]


def reshaped_order(
    before: Sequence[int], after: Sequence[int], order: Order
) -> tuple[tuple[int, ...], Order] | None:
    """A reshape of a permuted tensor as a reshape of what is stored.

    Args:
        before: Shape in the order of the model.
        after: What it is reshaped to.
        order: By axis of the model, the axis of what is stored.

    Returns:
        The shape of what is stored afterwards, and its order; None where elements would have to
        move: the reshape joins axes that do not lie together.
    """
    groups = _groups(before, after)
    places = []
    for axes in (it.before for it in groups):
        long = [order[axis] for axis in axes if before[axis] != 1]
        # Axes of length one lie anywhere; those between two others do not part them.
        first, last = min(long, default=0), max(long, default=0)
        between = {order.index(place) for place in range(first, last + 1)}
        parted = any(axis not in axes and before[axis] != 1 for axis in between)
        if long and (parted or long != sorted(long)):
            return None
        places.append(first if long else min((order[axis] for axis in axes), default=len(order)))
    ranked = sorted(range(len(groups)), key=lambda group: (places[group], group))
    stored = [axis for group in ranked for axis in groups[group].after]
    return tuple(after[axis] for axis in stored), inverse(tuple(stored))


def grouped_order(
    before: Sequence[int], after: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], Order]:
    """An order in which a reshape moves nothing, and which leaves channels last.

    Args:
        before: Shape in the order of the model.
        after: What it is reshaped to; its second axis is that of the channels.

    Returns:
        The axes in the order in which they are to be stored before, the shape of what is stored
        afterwards, and its order.
    """
    groups = sorted(_groups(before, after), key=lambda it: 1 in it.after)
    stored = [axis for it in groups for axis in it.after]
    shape = tuple(after[axis] for axis in stored)
    return tuple(axis for it in groups for axis in it.before), shape, inverse(tuple(stored))


def _groups(before: Sequence[int], after: Sequence[int]) -> list[AxisGroup]:
    """Groups as of :func:`axis_groups`; new axes of extent 1 are of the group behind them."""
    groups = axis_groups(before, after)
    last = max((at for at, it in enumerate(groups) if it.before), default=-1)
    found: list[AxisGroup] = []
    waiting: tuple[int, ...] = ()
    for at, it in enumerate(groups):
        if it.before or at > last:
            found.append(AxisGroup(it.before, (*waiting, *it.after)))
            waiting = ()
        else:
            waiting += it.after
    return found


_GAIN = 1.03
"""The model's own order is kept where the other one is expected to gain less."""
_GAIN_ON_CPU = 0.65
"""The same on CPUs, where kernels whose channels come first are slower than expected.

Measured over expected speedup of the channels last, the best of eight candidates of the draft
model each way, one core of a Zen 3 with AVX2: convolutions of 1 x 1 taps 0.9, 1.0, 2.3 and 2.7
(geometric mean 1.55, of which this is the inverse: a network may have no others), depthwise ones
1.7, 3.4 and 5.2, those of 3 x 3 taps 1.5 (a stem) and 6 to 33; of ResNet-50 and MobileNet-V2.
"""
_VERSION = 2
"""Grows when this module or :func:`channels_last` expects another speedup of some network."""


def choose_layout(
    graph: Graph,
    machine: Target,
    kept: KeptSpeedups | None = None,
    afterwards: Passes = (),
) -> tuple[Graph, str]:
    """Store channels last where that is expected to be faster for the network as a whole.

    Args:
        graph: A network of operators.
        machine: What it runs on, with as many cores as it has threads.
        kept: What was expected of networks before; None to expect it anew.
        afterwards: The passes that cut a network into programs.
    """
    count = convolutions(graph)
    if not count:
        return graph, ""
    note = f"{count} convolutions"
    key = "" if kept is None else cost_key(f"layouts {_VERSION}", graph, machine)
    known = None if kept is None else kept.find(key)
    changed = None
    if known is None:
        changed = channels_last(graph)
        known = (expected_speedup(graph, changed, machine, afterwards),)
        if kept is not None:
            kept.keep(key, *known)
    (speedup,) = known
    if speedup is None:
        return graph, f"{note} stay: the space does not express them with the channels last"
    if speedup < (_GAIN_ON_CPU if machine.kind == "cpu" else _GAIN):
        return graph, f"{note} stay; channels last would be {speedup:.2f} times as fast"
    faster = f"{note} channels last, expected to be {speedup:.2f} times as fast"
    return changed or channels_last(graph), faster
