"""Attention as graphs, in the forms that exporters and people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import frozen

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, constant, input_value

__all__ = ["LAYOUTS", "MASKS", "SCALES", "SOFTMAXES", "Attention", "attention_graph"]


@frozen
class Attention:
    """Form of an attention.

    Attributes:
        batch, groups, copies: Sequences, heads of keys, and heads of queries for each of these.
        rows, keys, width, columns: Queries, keys, and widths of keys and of values.
        dtype: Type of all tensors.
        scale: One of :data:`SCALES`.
        mask: One of :data:`MASKS`.
        softmax: One of :data:`SOFTMAXES`.
        layout: One of :data:`LAYOUTS`.
    """

    batch: int = 2
    groups: int = 2
    copies: int = 1
    rows: int = 16
    keys: int = 16
    width: int = 8
    columns: int = 8
    dtype: str = "float32"
    scale: str = "divided"
    mask: str = "none"
    softmax: str = "one"
    layout: str = "heads"

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.groups * self.copies

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the scores."""
        return self.batch, self.heads, self.rows, self.keys


Scores = Callable[[Value], Value]


def attention_graph(it: Attention) -> Graph:
    """The graph, with queries, keys, values, and what masks read as inputs."""
    if it.layout in ("tokens", "einsum"):
        shapes = [
            (it.batch, it.rows, it.heads, it.width),
            (it.batch, it.keys, it.groups, it.width),
            (it.batch, it.keys, it.groups, it.columns),
        ]
    else:
        shapes = [
            (it.batch, it.heads, it.rows, it.width),
            (it.batch, it.groups, it.keys, it.width),
            (it.batch, it.groups, it.keys, it.columns),
        ]
    q, k, v = inputs = [
        input_value(n, shape, it.dtype) for n, shape in zip("qkv", shapes, strict=True)
    ]
    given = _mask_input(it)
    q, k, after = SCALES[it.scale](q, k, it)
    scores, weighted = LAYOUTS[it.layout](q, k, v, it)
    hidden = MASKS[it.mask](after(scores), it, *given)
    y = weighted(SOFTMAXES[it.softmax](hidden))
    return Graph((*inputs, *given), {"y": y})


def _scaled_scores(how: str) -> Callable[..., Any]:
    def scaled(q: Value, k: Value, it: Attention) -> tuple[Value, Value, Scores]:
        number = it.width**-0.5
        if how == "queries":
            return ops.binary("mul", q, number), k, lambda scores: scores
        if how == "both":
            root = math.sqrt(number)
            return ops.binary("mul", q, root), ops.binary("mul", k, root), lambda scores: scores
        if how == "keys":
            return q, ops.binary("div", k, math.sqrt(it.width)), lambda scores: scores
        if how == "divided":
            return q, k, lambda scores: ops.binary("div", scores, math.sqrt(it.width))
        return q, k, lambda scores: ops.binary("mul", constant(0.25, it.dtype), scores)

    return scaled


SCALES = {it: _scaled_scores(it) for it in ("queries", "both", "keys", "divided", "multiplied")}


def _copied(held: Value, it: Attention, axis: int) -> Value:
    """Heads of keys or values, each for all heads of queries of its group."""
    if it.copies == 1:
        return held
    apart = ops.unsqueeze(held, [axis + 1])
    spread = [*apart.shape]
    spread[axis + 1] = it.copies
    shape = [*held.shape]
    shape[axis] *= it.copies
    return ops.reshape(ops.broadcast(apart, spread), shape)


def _heads(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    keys = ops.transpose(_copied(k, it, 1), [0, 1, 3, 2])
    return ops.matmul(q, keys), lambda weights: ops.matmul(weights, _copied(v, it, 1))


def _flat(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    """An axis of heads for products, as torch exports them."""
    flat = it.batch * it.heads
    rows = ops.reshape(q, (flat, it.rows, it.width))
    columns = ops.reshape(
        ops.transpose(_copied(k, it, 1), [0, 1, 3, 2]), (flat, it.width, it.keys)
    )
    values = ops.reshape(_copied(v, it, 1), (flat, it.keys, it.columns))

    def weighted(weights: Value) -> Value:
        mixed = ops.matmul(ops.reshape(weights, (flat, it.rows, it.keys)), values)
        return ops.reshape(mixed, (it.batch, it.heads, it.rows, it.columns))

    return ops.reshape(ops.matmul(rows, columns), it.shape), weighted


def _tokens(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    """Heads beside tokens, and keys that change places once."""
    rows = ops.transpose(q, [0, 2, 1, 3])
    keys = ops.transpose(_copied(k, it, 2), [0, 2, 3, 1])
    values = ops.transpose(_copied(v, it, 2), [0, 2, 1, 3])

    def weighted(weights: Value) -> Value:
        return ops.transpose(ops.matmul(weights, values), [0, 2, 1, 3])

    return ops.matmul(rows, keys), weighted


def _einsum(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    scores = ops.einsum("bqhd,bkhd->bhqk", q, _copied(k, it, 2))
    return scores, lambda weights: ops.einsum("bhqk,bkhd->bqhd", weights, _copied(v, it, 2))


LAYOUTS = {"heads": _heads, "flat": _flat, "tokens": _tokens, "einsum": _einsum}


def _mask_input(it: Attention) -> list[Value]:
    if it.mask in ("padded", "causal and padded"):
        return [input_value("shown", (it.batch, it.keys), "bool")]
    if it.mask in ("added", "added to each head"):
        heads = 1 if it.mask == "added" else it.heads
        return [input_value("bias", (it.batch, heads, it.rows, it.keys), it.dtype)]
    return []


def _distance(it: Attention) -> Any:
    """Distance of each key beyond each query; the last key is beside the last query."""
    return np.arange(it.keys) - np.arange(it.rows)[:, None] - max(0, it.keys - it.rows)


def _added(low: float) -> Callable[..., Value]:
    def masked(scores: Value, it: Attention) -> Value:
        number = low
        if not math.isinf(low) and it.dtype == "float16":
            number = -65504.0
        return ops.binary(
            "add", scores, constant(np.where(_distance(it) <= 0, 0.0, number), it.dtype)
        )

    return masked


def _selected(scores: Value, it: Attention) -> Value:
    return ops.select(constant(_distance(it) > 0), -math.inf, scores)


def _window(scores: Value, it: Attention) -> Value:
    near = np.abs(_distance(it) + 1) <= 1
    return ops.select(constant(near), scores, -math.inf)


def _padded(scores: Value, it: Attention, shown: Value) -> Value:
    kept = ops.reshape(shown, (it.batch, 1, 1, it.keys))
    return ops.select(kept, scores, -1e9 if it.dtype == "float32" else -1e4)


def _both(scores: Value, it: Attention, shown: Value) -> Value:
    causal = constant(_distance(it)[None, None] <= 0)
    kept = ops.binary("and", causal, ops.reshape(shown, (it.batch, 1, 1, it.keys)))
    zeros = ops.select(kept, constant(0.0, it.dtype), -math.inf)
    return ops.binary("add", scores, ops.broadcast(zeros, it.shape))


def _bias(scores: Value, it: Attention, bias: Value) -> Value:
    return ops.binary("add", bias, scores)


MASKS: dict[str, Callable[..., Value]] = {
    "none": lambda scores, it: scores,
    "causal": _added(-math.inf),
    "lowest": _added(-3.3e38),
    "selected": _selected,
    "window": _window,
    "padded": _padded,
    "causal and padded": _both,
    "added": _bias,
    "added to each head": _bias,
}


def _decomposed(scores: Value) -> Value:
    largest = ops.reduce("max", scores, [-1])
    powers = ops.unary("exp", ops.binary("sub", scores, largest))
    return ops.binary("div", powers, ops.reduce("add", powers, [-1]))


def _of_rows(scores: Value) -> Value:
    """As operators of ONNX before 13 have it: of a matrix."""
    flat = ops.reshape(scores, (-1, scores.shape[-1]))
    return ops.reshape(ops.softmax(flat, -1), scores.shape)


def _without_nan(scores: Value) -> Value:
    found = ops.softmax(scores, -1)
    return ops.select(ops.elementwise(lambda w: w.differs(w), found), 0.0, found)


def _with_zeros(scores: Value) -> Value:
    """Zeros for queries that are shown nothing, as torch decomposes it."""
    shown = ops.elementwise(lambda s: ~s.equals(-math.inf), scores)
    some = ops.reduce("max", ops.cast(shown, "int8"), [-1])
    nothing = ops.elementwise(lambda s: ~s.cast("bool"), some)
    return ops.select(nothing, 0.0, ops.softmax(scores, -1))


SOFTMAXES: dict[str, Scores] = {
    "one": lambda scores: ops.softmax(scores, -1),
    "decomposed": _decomposed,
    "of rows": _of_rows,
    "without NaN": _without_nan,
    "with zeros": _with_zeros,
}
