"""Relax operators on numpy arrays: what constants are folded with.

TVM compiles a program for each constant that it folds; this table takes milliseconds instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["OPERATORS", "evaluate"]

Array = NDArray[Any]
Evaluate = Callable[..., Any]


def evaluate(operator: str, attributes: Any, arguments: Sequence[Any]) -> Any:
    """What an operator makes of its arguments: an array, or a tuple of arrays.

    Args:
        operator: A name in :data:`OPERATORS`.
        attributes: Of the call, as Relax has them.
        arguments: Arrays, numbers, tuples of either.
    """
    with np.errstate(all="ignore"):
        return OPERATORS[operator](attributes, *arguments)


def _elementwise(function: Evaluate) -> Evaluate:
    return lambda _, *arguments: function(*arguments)


def _axes(attributes: Any) -> tuple[int, ...] | None:
    return None if attributes.axis is None else tuple(map(int, attributes.axis))


def _reduction(function: Evaluate) -> Evaluate:
    def reduced(attributes: Any, data: Array) -> Any:
        return function(data, axis=_axes(attributes), keepdims=bool(attributes.keepdims))

    return reduced


def _scan(function: Evaluate) -> Evaluate:
    def scanned(attributes: Any, data: Array) -> Any:
        axis = None if attributes.axis is None else int(attributes.axis)
        dtype = data.dtype if attributes.dtype is None else np.dtype(str(attributes.dtype))
        found = function(data, axis=axis, dtype=dtype)
        if not attributes.exclusive:
            return found
        first = int(function is np.cumprod)
        shifted = np.roll(found, 1, axis=axis)
        shifted[tuple(0 if i == (axis or 0) else slice(None) for i in range(found.ndim))] = first
        return shifted

    return scanned


def _take(attributes: Any, data: Array, indices: Array) -> Array:
    axis = None if attributes.axis is None else int(attributes.axis)
    mode = {"fast": "raise", "clip": "clip", "wrap": "wrap", "nan": "raise"}[str(attributes.mode)]
    taken: Array = np.take(data, indices, axis=axis, mode=mode)  # type: ignore[call-overload]
    return taken


def _strided_slice(
    _: Any,
    data: Array,
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    chosen = [slice(None)] * data.ndim
    for axis, first, last, step in zip(axes, begin, end, strides or (1,) * len(axes), strict=True):
        if step < 0:
            raise ValueError("slices that go backwards are left to TVM")
        chosen[axis] = slice(first, last, step)
    return data[tuple(chosen)]


def _split(attributes: Any, data: Array) -> tuple[Array, ...]:
    parts = attributes.indices_or_sections
    where: Any = int(parts) if hasattr(parts, "value") else list(map(int, parts))
    return tuple(np.split(data, where, axis=int(attributes.axis)))


def _one_hot(attributes: Any, indices: Array, on: Any, off: Any) -> Array:
    depth, axis = int(attributes.depth), int(attributes.axis)
    hot = np.expand_dims(indices, axis) == np.arange(depth).reshape(
        [-1 if i == axis % (indices.ndim + 1) else 1 for i in range(indices.ndim + 1)]
    )
    return np.asarray(np.where(hot, on, off))


def _triangle(function: Evaluate) -> Evaluate:
    return lambda _, data, k=0: function(data, int(k))


def _erf(_: Any, data: Array) -> Array:
    if data.size > 1 << 20:
        raise ValueError("numpy has no erf, and this is too much for one number at a time")
    return np.asarray(np.vectorize(math.erf, otypes=[data.dtype])(data))


def _astype(attributes: Any, data: Array) -> Array:
    return data.astype(np.dtype(str(attributes.dtype)))


def _squeeze(attributes: Any, data: Array) -> Array:
    return np.squeeze(data, axis=_axes(attributes))


def _permute(attributes: Any, data: Array) -> Array:
    return np.transpose(data, _permutation(attributes))


def _permutation(attributes: Any) -> tuple[int, ...] | None:
    return None if attributes.axes is None else tuple(map(int, attributes.axes))


_ELEMENTWISE: dict[str, Evaluate] = {
    "abs": np.abs,
    "add": np.add,
    "bitwise_and": np.bitwise_and,
    "bitwise_not": np.bitwise_not,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "ceil": np.ceil,
    "clip": np.clip,
    "cos": np.cos,
    "divide": lambda a, b: a / b if np.result_type(a).kind == "f" else np.trunc(a / b),
    "equal": np.equal,
    "exp": np.exp,
    "floor": np.floor,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "less": np.less,
    "less_equal": np.less_equal,
    "log": np.log,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "matmul": np.matmul,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negative": np.negative,
    "nn.relu": lambda a: np.maximum(a, 0),
    "not_equal": np.not_equal,
    "power": np.power,
    "round": np.round,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "subtract": np.subtract,
    "tanh": np.tanh,
    "trunc": np.trunc,
    "where": np.where,
}

_OTHERS: dict[str, Evaluate] = {
    "arange": lambda a, start, end, step: np.arange(start, end, step, dtype=str(a.dtype)),
    "astype": _astype,
    "broadcast_to": lambda _, data, shape: np.broadcast_to(data, shape),
    "concat": lambda a, parts: np.concatenate(parts, axis=int(a.axis or 0)),
    "cumprod": _scan(np.cumprod),
    "cumsum": _scan(np.cumsum),
    "erf": _erf,
    "expand_dims": lambda a, data: np.expand_dims(data, tuple(map(int, a.axis))),
    "flatten": lambda _, data: data.reshape(-1),
    "flip": lambda a, data: np.flip(data, int(a.axis)),
    "full": lambda _, shape, value: np.full(shape, value),
    "full_like": lambda _, data, value: np.full(data.shape, value),
    "gather_elements": lambda a, data, index: np.take_along_axis(data, index, int(a.axis)),
    "index_tensor": lambda _, data, indices: data[tuple(indices)],
    "max": _reduction(np.max),
    "mean": _reduction(np.mean),
    "min": _reduction(np.min),
    "one_hot": _one_hot,
    "ones": lambda a, shape: np.ones(shape, str(a.dtype)),
    "ones_like": lambda _, data: np.ones(data.shape),
    "permute_dims": _permute,
    "prod": _reduction(np.prod),
    "repeat": lambda a, data: np.repeat(
        data, int(a.repeats), None if a.axis is None else int(a.axis)
    ),
    "reshape": lambda _, data, shape: data.reshape(shape),
    "split": _split,
    "squeeze": _squeeze,
    "stack": lambda a, parts: np.stack(parts, axis=int(a.axis or 0)),
    "strided_slice": _strided_slice,
    "sum": _reduction(np.sum),
    "take": _take,
    "tile": lambda a, data: np.tile(data, tuple(map(int, a.repeats))),
    "tril": _triangle(np.tril),
    "triu": _triangle(np.triu),
    "zeros": lambda a, shape: np.zeros(shape, str(a.dtype)),
    "zeros_like": lambda _, data: np.zeros(data.shape),
}

OPERATORS: Mapping[str, Evaluate] = MappingProxyType(
    {name: _elementwise(function) for name, function in _ELEMENTWISE.items()} | _OTHERS
)
"""By name without the leading ``relax.``; each takes the call's attributes, then its arguments."""
