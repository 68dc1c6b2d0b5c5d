"""Convolutions, and what is between them, with the channels last.

A tensor that is stored in another order is a transpose of what is stored. Nodes that read such a
transpose are computed on what is stored where they can be, and their results are transposes
again: a transpose is left only where a node needs the order of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from autotune.ir.expressions import Binary, Load, ScalarExpr
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
from autotune.networks.passes.convolutions import Convolution
from autotune.networks.passes.reshapes import grouped_order, reshaped_order

__all__ = ["channels_last", "convolutions"]

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
        order = _transposition(node.operation)
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


def _transposition(workload: Workload) -> Order | None:
    """The order of axes, if nothing but that is changed."""
    stage = workload.stages[-1]
    if len(workload.stages) > 1 or stage.combiner is not None or not isinstance(stage.body, Load):
        return None
    extents = workload.tensors[stage.body.tensor].shape
    read = [repr(index) for index in stage.body.indices]
    if dict(zip(read, extents, strict=True)) != stage.extents or len(read) != len(stage.axes):
        return None
    return tuple(read.index(axis.name) for axis in stage.axes)
