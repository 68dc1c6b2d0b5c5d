"""Operators that read and write where data says, and those that sort."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.networks.graph import (
    Value,
    binary,
    broadcast,
    cast,
    constant,
    gather_nd,
    non_max_suppression,
    one_hot,
    reshape,
    scatter_along,
    scatter_nd,
    take,
    take_along,
    top_k,
)
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.shapes import vector

__all__ = ["INDEXING"]


def _combiner(call: Call) -> str:
    reduction = str(call.attribute("reduction", "none"))
    return "" if reduction == "none" else reduction


def _gather(call: Call) -> Value:
    return take(call[0], call[1], call.attribute("axis"))


def _gather_elements(call: Call) -> Value:
    return take_along(call[0], call[1], call.attribute("axis"))


def _gather_nd(call: Call) -> Value:
    return gather_nd(call[0], call[1], call.attribute("batch_dims", 0))


def _scatter(call: Call) -> Value:
    return scatter_along(call[0], call[1], call[2], call.attribute("axis"), _combiner(call))


def _scatter_nd(call: Call) -> Value:
    return scatter_nd(call[0], call[1], call[2], _combiner(call))


def _tensor_scatter(call: Call) -> Value:
    """Updates behind what a cache holds already, of each sequence at its own place."""
    cache, update, axis = call[0], call[1], call.attribute("axis") % call[0].rank
    steps = vector(np.arange(update.shape[axis]).reshape(-1, *[1] * (cache.rank - 1 - axis)))
    start = cast(call.get(2) or vector([0] * cache.shape[0]), "int64")
    places = binary("add", reshape(start, (-1, *[1] * (cache.rank - 1))), steps)
    if call.attribute("mode") == "circular":
        places = binary("mod", places, cache.shape[axis])
    return scatter_along(cache, broadcast(places, update.shape), update, axis)


def _one_hot(call: Call) -> Value:
    indices, depth, values = call[0], int(call.number(1)), call[2]
    off, on = (take(values, vector(at), 0) for at in range(2))
    return one_hot(cast(indices, "int64"), depth, off, on, call.attribute("axis"))


def _compress(call: Call) -> Value:
    x, axis = call[0], call.attribute("axis")
    places = np.flatnonzero(call.known(1))
    return (
        take(reshape(x, (-1,)), vector(places), 0)
        if axis is None
        else take(x, vector(places), axis)
    )


def _non_zero(call: Call) -> Value:
    return vector(np.array(np.nonzero(call.known(0))).reshape(call[0].rank, -1))


def _unique(call: Call) -> list[Value]:
    x, axis = call.known(0), call.attribute("axis")
    values, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not call.attribute("sorted"):
        order = np.argsort(first)
        rank = np.argsort(order)
        values = np.take(values, order, axis or 0)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return [constant(values, call[0].dtype), *map(vector, (first, inverse, counts))]


def _top_k(call: Call) -> list[Value]:
    k = call.attribute("k") if "k" in call.attributes else int(call.number(1))
    largest = bool(call.attribute("largest", 1))
    return list(top_k(call[0], k, call.attribute("axis"), largest))


def _non_max_suppression(call: Call) -> Value:
    """Boxes that are kept; of what is no constant there is room for the most."""
    most, boxes, scores = int(call.number(2, 0.0)), call[0], call[1]
    overlap, score = call.number(3, 0.0), call.number(4, -np.inf)
    centred = bool(call.attribute("center_point_box"))
    kept, count = non_max_suppression(boxes, scores, most, overlap, score, centred)
    if count.constant is None:
        call.tracker.has_sources = True
        return kept
    return vector(np.asarray(kept.constant)[: int(count.constant)])


INDEXING: Mapping[str, Operator] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "OneHot": _one_hot,
    "Compress": _compress,
    "NonZero": _non_zero,
    "Unique": _unique,
    "TopK": _top_k,
    "NonMaxSuppression": _non_max_suppression,
}
