"""Convolutions, and what is between them, with the channels last.

A tensor that is stored in another order is a permutation of what is stored. Operators that take
such a permutation are computed on what is stored where they can be, and their results are
permutations again: permutations are left only where an operator needs the order of the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import define, field
from tvm import relax
from tvm.ir import GenericConst, IRModule, Tuple, Var

from autotune.ir.rewrites.permuted import Order, inverse
from autotune.networks.passes.reshapes import grouped_order, reshaped_order
from autotune_tvm.networks.graph import (
    Array,
    Graph,
    array_of,
    constant,
    operator_of,
    rewrite,
    shape_of,
)
from autotune_tvm.networks.passes.permuted_operators import (
    OPERATORS,
    Permuted,
    with_attributes,
)

__all__ = ["channels_last", "force_channels_last"]

op = relax.op

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")


def channels_last(module: IRModule) -> tuple[IRModule, str]:
    """Store what convolutions of constant weights read and write with the channels last.

    Constants are permuted here. Convolutions of one element in space become products. A network
    without convolutions stays as it is.
    """
    converter = _Converter()
    changed = rewrite(module, converter.converted)
    if not converter.convolutions:
        return module, ""
    changed = relax.transform.DeadCodeElimination()(changed)
    return changed, f"{converter.convolutions} convolutions"


def force_channels_last(module: IRModule) -> IRModule:
    """:func:`channels_last` in place of the pass ``layouts``, which would choose."""
    return channels_last(module)[0]


@define(eq=False)
class _Converter:
    """One rewriting of a network.

    Attributes:
        convolutions: How many were changed.
        permuted: Variables that are permutations of what is stored.
        stored: By variable and order, what was stored of variables in the order of the model.
    """

    convolutions: int = 0
    permuted: dict[Var, Permuted] = field(factory=dict)
    stored: dict[tuple[Var, Order], Any] = field(factory=dict)

    def converted(self, call: Any, graph: Graph) -> Any:
        """What takes the place of a call; None to keep it."""
        operator = operator_of(call)
        if operator in _CONVOLUTIONS:
            return self._convolution(call, graph)
        operands = [
            item
            for argument in call.args
            for item in (argument.fields if isinstance(argument, Tuple) else [argument])
        ]
        moved = [self.permuted[it] for it in operands if it in self.permuted]
        if not moved:
            return None
        if operator in _RESHAPES:
            return self._reshape(call, moved[0], graph)
        if operator == "permute_dims":
            return self._permute(call, moved[0], graph)
        return self._computed(call, operands, moved[0].order, graph)

    def _convolution(self, call: Any, graph: Graph) -> Any:
        weights, shape = array_of(call.args[1]), shape_of(call.args[0])
        layout, kernel = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
        if weights is None or shape is None or str(call.attrs.out_layout) != layout:
            return None
        if not layout.startswith("NC") or not kernel.startswith("OI"):
            return None
        self.convolutions += 1
        rank = len(shape)
        order = (0, rank - 1, *range(1, rank - 1))
        data = self._operand(call.args[0], order, graph)
        weights = np.transpose(weights, (*range(2, rank), 1, 0))
        if _is_product(call, weights):
            return self._as_model(_product(call, data.stored, weights, graph), order, graph)
        last = f"N{layout[2:]}C"
        found = with_attributes(
            call,
            [data.stored, constant(weights)],
            data_layout=last,
            kernel_layout=f"{kernel[2:]}IO",
            out_layout=last,
        )
        return self._as_model(graph.emit(found), order, graph)

    def _computed(self, call: Any, operands: list[Any], order: Order, graph: Graph) -> Any:
        """The call on what is stored, in the order of one of its operands."""
        compute = OPERATORS.get(operator_of(call))
        tensors = [it for it in operands if shape_of(it)]
        if compute is None or any(len(shape_of(it) or ()) > len(order) for it in tensors):
            return None
        found = compute(call, [self._operand(it, order, graph) for it in tensors], order)
        if found is None:
            return None
        value, order = found
        emitted = graph.emit(value)
        if not isinstance(emitted.ty, relax.TupleType):
            return self._as_model(emitted, order, graph)
        count = len(emitted.ty.fields)
        items = [graph.emit(relax.TupleGetItem(emitted, index)) for index in range(count)]
        return Tuple([self._as_model(item, order, graph) for item in items])

    def _reshape(self, call: Any, source: Permuted, graph: Graph) -> Any:
        before, after = shape_of(call.args[0]), shape_of(graph.builder.normalize(call))
        if before is None or after is None:
            return None
        found = reshaped_order(before, after, source.order)
        if found is not None:
            shape, order = found
            return self._as_model(graph.emit(op.reshape(source.stored, shape)), order, graph)
        if len(after) < 3:
            return None
        # It joins axes that do not lie together: one permutation that leaves channels last.
        axes, shape, order = grouped_order(before, after)
        moved = graph.emit(op.permute_dims(source.stored, [source.order[axis] for axis in axes]))
        return self._as_model(graph.emit(op.reshape(moved, shape)), order, graph)

    def _permute(self, call: Any, source: Permuted, graph: Graph) -> Any:
        rank = len(source.order)
        axes = call.attrs.axes
        wanted = range(rank)[::-1] if axes is None else [int(axis) % rank for axis in axes]
        order = tuple(source.order[axis] for axis in wanted)
        return self._as_model(source.stored, order, graph)

    def _operand(self, operand: Any, order: Order, graph: Graph) -> Permuted:
        """An operand as it is stored in an order; of fewer axes, it gets leading ones."""
        known = self.permuted.get(operand) if isinstance(operand, Var) else None
        if known is not None and known.order == order:
            return known
        key = operand, order
        if not isinstance(operand, GenericConst) and key in self.stored:
            return Permuted(self.stored[key], order)
        found = self._stored(operand, order, graph)
        if not isinstance(operand, GenericConst):
            self.stored[key] = found
        return Permuted(found, order)

    def _stored(self, operand: Any, order: Order, graph: Graph) -> Any:
        shape = shape_of(operand)
        assert shape is not None  # only tensors of known shape come here
        whole = (1,) * (len(order) - len(shape)) + shape
        array = array_of(operand)
        if array is not None:
            return constant(np.transpose(array.reshape(whole), inverse(order)))
        if whole != shape:
            operand = graph.emit(op.reshape(operand, whole))
        return graph.emit(op.permute_dims(operand, list(inverse(order))))

    def _as_model(self, stored: Any, order: Order, graph: Graph) -> Any:
        """The variable that is ``stored`` in the order of the model."""
        if order == tuple(range(len(order))):
            return stored
        variable = graph.emit(op.permute_dims(stored, list(order)))
        self.permuted[variable] = Permuted(stored, order)
        return variable


def _is_product(call: Any, weights: Array) -> bool:
    """Whether every position in space is multiplied by the same matrix."""
    attributes = call.attrs
    return (
        int(attributes.groups) == 1
        and all(extent == 1 for extent in weights.shape[:-2])
        and all(int(stride) == 1 for stride in attributes.strides)
        and not any(int(padding) for padding in attributes.padding)
    )


def _product(call: Any, data: Any, weights: Array, graph: Graph) -> Any:
    """A product of matrices: all positions are one axis, which tiles divide more freely."""
    shape = shape_of(data)
    assert shape is not None  # `_Converter._convolution` found one
    matrix = weights[(0,) * (weights.ndim - 2)]
    rows = graph.emit(op.reshape(data, (int(np.prod(shape[:-1])), shape[-1])))
    product = graph.emit(op.matmul(rows, constant(matrix), call.attrs.out_dtype))
    return graph.emit(op.reshape(product, (*shape[:-1], weights.shape[-1])))
