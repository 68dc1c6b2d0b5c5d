"""Factors a channel go into the weights before them, and terms into one another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule

from autotune_tvm.networks.graph import (
    Array,
    Graph,
    array_of,
    constant,
    operator_of,
    rewrite,
    shape_of,
)

__all__ = ["fold_scales"]

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")


def fold_scales(module: IRModule) -> tuple[IRModule, str]:
    """Fold multiplications by constants into the weights of what they multiply.

    With constants ``c`` and ``b`` and weights ``w``, until nothing changes::

        conv(x, w) * c         ->  conv(x, w * c)
        (conv(x, w) + b) * c   ->  conv(x, w * c) + b * c
        (y + b) + c            ->  y + (b + c)

    for convolutions, transposed convolutions and products of matrices of which nothing else is
    computed, where ``c`` is one number for each of their output channels.
    """
    counts: Counter[str] = Counter()

    def fold(call: Any, graph: Graph) -> Any:
        operator = operator_of(call)
        if operator not in ("multiply", "add"):
            return None
        value, factor = _with_constant(call)
        if factor is None or not graph.used_once(value):
            return None
        if operator == "add":
            found = _joined(value, factor, graph)
            counts["terms"] += found is not None
        else:
            found = _scaled(value, factor, graph)
            counts["factors"] += found is not None
        return found

    module = rewrite(module, fold)
    note = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)
    return relax.transform.DeadCodeElimination()(module), note


def _with_constant(call: Any) -> tuple[Any, Array | None]:
    """The two sides of a commutative call: what is computed, and the constant."""
    left, right = call.args
    if isinstance(left, GenericConst):
        left, right = right, left
    array = array_of(right)
    if array is None or array.dtype.kind != "f" or isinstance(left, GenericConst):
        return left, None
    # A constant with more axes, or longer ones, makes the result larger: no folding.
    shape = shape_of(left)
    if shape is None or np.broadcast_shapes(shape, array.shape) != shape:
        return left, None
    return left, array


def _joined(value: Any, term: Array, graph: Graph) -> Any:
    inner = graph.source(value)
    if operator_of(inner) != "add":
        return None
    rest, other = _with_constant(inner)
    if other is None:
        return None
    return relax.op.add(rest, constant(other + term))


def _scaled(value: Any, factor: Array, graph: Graph) -> Any:
    """``value * factor`` with the factor in the weights; None where it cannot go there."""
    inner = graph.source(value)
    if operator_of(inner) == "add":
        rest, term = _with_constant(inner)
        if term is None or not graph.used_once(rest):
            return None
        scaled = _scaled(rest, factor, graph)
        if scaled is None:
            return None
        shape = shape_of(value)
        assert shape is not None  # `_with_constant` found one
        return relax.op.add(graph.emit(scaled), constant(_aligned(term, shape) * factor))
    weights = _scaled_weights(inner, factor, shape_of(value))
    if weights is None:
        return None
    return Call(inner.op, [inner.args[0], constant(weights)], inner.attrs, inner.ty_args)


def _aligned(term: Array, shape: tuple[int, ...]) -> Array:
    return term.reshape((1,) * (len(shape) - term.ndim) + term.shape)


def _scaled_weights(call: Any, factor: Array, shape: tuple[int, ...] | None) -> Array | None:
    """Weights of a call whose output channels are multiplied by ``factor``."""
    operator = operator_of(call)
    if operator not in (*_CONVOLUTIONS, *_TRANSPOSED, "matmul") or shape is None:
        return None
    weights = array_of(call.args[1])
    if weights is None or weights.dtype != factor.dtype:
        return None
    if operator == "matmul":
        # A vector or a batch of weights has other rules for its axes.
        axis = len(shape) - 1
        if weights.ndim != 2:
            return None
    else:
        axis = str(call.attrs.out_layout or call.attrs.data_layout).index("C")
    factors = _per_channel(factor, shape, axis)
    if factors is None:
        return None
    if operator == "matmul":
        return weights * factors
    along = str(call.attrs.kernel_layout).index("O")
    groups = int(call.attrs.groups) if operator in _TRANSPOSED else 1
    if groups != 1 and factors.size != 1:
        # Channels of all groups share one axis there.
        return None
    return weights * factors.reshape([-1 if i == along else 1 for i in range(weights.ndim)])


def _per_channel(factor: Array, shape: tuple[int, ...], axis: int) -> Array | None:
    """The factors of the channels along ``axis``; None where they differ along another one."""
    whole = _aligned(factor, shape)
    if any(extent != 1 for i, extent in enumerate(whole.shape) if i != axis):
        return None
    return (
        np.broadcast_to(whole.reshape(-1), (shape[axis],)) if whole.size > 1 else whole.reshape(1)
    )
