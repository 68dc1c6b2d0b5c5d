"""Operators without a schedule, in numpy: they run on the host.

Floating-point numbers arrive in a type that numpy computes with, and what is returned is rounded
to the type of the node's results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnknownNameError
from autotune.ir.element_types import element_type
from autotune.networks.graph.graph import HostOperator, Node

__all__ = ["BITWISE", "FUNCTIONS", "HOST_OPERATORS", "run_on_host"]

Array = NDArray[Any]
Attributes = Mapping[str, Any]


def _gamma_log(number: float) -> float:
    """The logarithm of the size of the gamma function; infinite at its poles, as C has it."""
    try:
        return math.lgamma(number)
    except (OverflowError, ValueError):
        return math.inf


FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "expm1": np.expm1,
        "log1p": np.log1p,
        "exp2": np.exp2,
        "log2": np.log2,
        "log10": np.log10,
        "gamma_log": np.vectorize(_gamma_log, otypes=[np.float64]),
        "atan2": np.arctan2,
        "hypot": np.hypot,
        "next_after": np.nextafter,
    }
)
"""Functions of the C library that expressions do not have, of one or two floats."""

BITWISE: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "bit_and": np.bitwise_and,
        "bit_or": np.bitwise_or,
        "bit_xor": np.bitwise_xor,
        "bit_not": np.bitwise_not,
        "shift_left": np.left_shift,
        "shift_right": np.right_shift,
    }
)
"""Functions of the bits of integers. Shifts by the width or more leave nothing but the sign."""

_UPDATES: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def run_on_host(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of an operator of the host.

    Args:
        node: Its node.
        arrays: Its operands, as programs have them.

    Raises:
        UnknownNameError: there is no such operator.
    """
    operator = node.operation
    assert isinstance(operator, HostOperator)
    if operator.kind not in HOST_OPERATORS:
        raise UnknownNameError("operator of the host", operator.kind, HOST_OPERATORS)
    numbers = [
        element_type(value.dtype).numbers(array)
        for value, array in zip(node.operands, arrays, strict=True)
    ]
    with np.errstate(all="ignore"):
        found = HOST_OPERATORS[operator.kind](numbers, {**operator.attributes})
        return tuple(
            element_type(dtype).stored(np.asarray(array)).reshape(shape)
            for array, (shape, dtype) in zip(found, node.results, strict=True)
        )


def _function(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    name = attributes["function"]
    own = name == "next_after"
    wide = (array if own else array.astype(np.float64) for array in arrays)
    return (FUNCTIONS[name](*wide),)


def _sort(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Sorted along an axis, NaN as the largest number, equal ones in their order."""
    array, axis = arrays[0], attributes["axis"]
    if attributes["descending"]:
        backwards = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
        order = array.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        order = np.argsort(array, axis=axis, kind="stable")
    order = np.take(order, np.arange(attributes["count"]), axis=axis)
    return np.take_along_axis(array, order, axis), order


def _nonzero(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Places of what is not zero, in order, then -1; and how many there are."""
    found = np.argwhere(arrays[0])
    places = np.full((attributes["bound"], arrays[0].ndim), -1, np.int64)
    places[: len(found)] = found[: len(places)]
    return places, np.asarray(len(found))


def _unique(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Different slices along an axis: values, first places, inverse, counts, how many there are.

    Results are as long as the axis; what is behind those that there are is 0.
    """
    array, axis = arrays[0], attributes["axis"]
    if array.dtype == np.float16:
        # Of slices of halves, numpy takes NaN for the smallest number.
        array = array.astype(np.float32)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not attributes["sorted"]:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values, first, counts = np.take(values, order, axis), first[order], counts[order]
        inverse = rank[inverse]
    length, found = array.shape[axis], len(first)

    def filled(part: Array, along: int) -> Array:
        widths = [(0, length - found if at == along else 0) for at in range(part.ndim)]
        return np.pad(part, widths)

    whole = filled(values, axis), filled(first, 0), inverse, filled(counts, 0)
    return (*whole, np.asarray(found))


def _scatter_along(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    array, indices, updates = arrays
    axis, combiner = attributes["axis"], attributes["combiner"]
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = np.where(indices < 0, indices + array.shape[axis], indices)
    return (_updated(array, tuple(places), updates, combiner),)


def _scatter_nd(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    array, indices, updates = arrays
    depth = indices.shape[-1]
    wrapped = np.where(indices < 0, indices + np.array(array.shape[:depth]), indices)
    places = tuple(np.moveaxis(wrapped, -1, 0))
    return (_updated(array, places, updates, attributes["combiner"]),)


def _updated(array: Array, places: tuple[Any, ...], updates: Array, combiner: str) -> Array:
    wide = array.astype(np.float64 if array.dtype.kind == "f" else array.dtype)
    if combiner:
        _UPDATES[combiner].at(wide, places, updates)
    else:
        wide[places] = updates
    return wide


def _non_max_suppression(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Boxes that are kept (batch, class, box), then -1; and how many there are.

    Boxes of a class are kept by falling score, at most ``most`` of them, where none before
    overlaps by more than a share of their union.
    """
    boxes, scores = arrays[0].astype(np.float64), arrays[1]
    corners = _corners(boxes, attributes["centred"])
    kept: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        own = scores[batch, kind]
        order = np.argsort(-own.astype(np.float64), kind="stable")
        chosen: list[int] = []
        for box in order[own[order] > attributes["score"]]:
            if len(chosen) >= attributes["most"]:
                break
            if not np.any(_overlap(corners[batch], box, chosen) > attributes["overlap"]):
                chosen.append(int(box))
        kept += [(batch, kind, box) for box in chosen]
    places = np.full((attributes["bound"], 3), -1, np.int64)
    places[: len(kept)] = np.asarray(kept, np.int64).reshape(-1, 3)
    return places, np.asarray(len(kept))


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as their lower and upper corners."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return np.concatenate([first - second / 2, first + second / 2], axis=-1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _overlap(corners: Array, box: int, others: Sequence[int]) -> Array:
    """The share of the union of a box and each of the others that is in both."""
    one, rest = corners[box], corners[list(others)]
    sides = np.minimum(one[2:], rest[:, 2:]) - np.maximum(one[:2], rest[:, :2])
    both = np.prod(np.maximum(sides, 0), axis=-1)
    sizes = np.prod(corners[..., 2:] - corners[..., :2], axis=-1)
    union = sizes[box] + sizes[list(others)] - both
    return np.asarray(np.divide(both, union, out=np.zeros_like(both), where=union > 0))


HOST_OPERATORS: Mapping[str, Callable[[Sequence[Array], Attributes], Sequence[Array]]] = (
    MappingProxyType(
        {
            "reshape": lambda arrays, told: (arrays[0].reshape(told["shape"]),),
            "function": _function,
            "bitwise": lambda arrays, told: (BITWISE[told["function"]](*arrays),),
            "sort": _sort,
            "nonzero": _nonzero,
            "unique": _unique,
            "scatter_along": _scatter_along,
            "scatter_nd": _scatter_nd,
            "non_max_suppression": _non_max_suppression,
            "determinant": lambda arrays, _: (np.linalg.det(arrays[0].astype(np.float64)),),
        }
    )
)
"""Operators of the host by name: from operands and attributes to results."""
