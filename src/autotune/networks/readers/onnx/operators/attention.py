"""Attention of Microsoft's domain. That of ONNX itself is a function of other operators."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    binary,
    cast,
    concat,
    constant,
    matmul,
    reshape,
    select,
    slice_axis,
    softmax,
    transpose,
)
from autotune.networks.readers.onnx.call import Call, Operator

__all__ = ["ATTENTION"]

_QUERY, _KEY, _VALUE, _BIAS, _PADDING, _ADDED, _PAST_KEY, _PAST_VALUE = range(8)


def _multi_head(call: Call) -> list[Value | None]:
    """Queries, keys and values ``[batch, length, width]`` that are projected already."""
    query, key, value = (call.get(at) for at in (_QUERY, _KEY, _VALUE))
    if query is None or key is None or value is None or {it.rank for it in (query, key)} != {3}:
        raise UnsupportedWorkload("queries, keys and values that are packed are not supported")
    if len(call.inputs) > _PAST_VALUE + 1 and any(it is not None for it in call.inputs[8:]):
        raise UnsupportedWorkload("a buffer that past and present share is not supported")
    heads = call.attribute("num_heads")
    biases: list[Value | None] = [None] * 3
    bias = call.get(_BIAS)
    if bias is not None:
        width = query.shape[2]
        ends = (0, width, 2 * width, bias.shape[0])
        biases = [slice_axis(bias, 0, *ends[at : at + 2]) for at in range(3)]
    q, k, v = (
        _by_head(it, more, heads) for it, more in zip((query, key, value), biases, strict=True)
    )
    past = call.get(_PAST_KEY), call.get(_PAST_VALUE)
    k, v = (
        it if before is None else concat([before, it], 2)
        for it, before in zip((k, v), past, strict=True)
    )
    scale = call.attribute("scale") or 1 / math.sqrt(q.shape[-1])
    scores = binary("mul", matmul(q, transpose(k, [0, 1, 3, 2])), scale)
    weights = softmax(_masked(call, scores), -1)
    mixed = transpose(matmul(weights, v), [0, 2, 1, 3])
    found = reshape(mixed, (*query.shape[:2], heads * v.shape[-1]))
    return [found, k, v, scores if call.wants(3) else None]


def _by_head(value: Value, bias: Value | None, heads: int) -> Value:
    """``[batch, length, width]``, or by head already, as ``[batch, heads, length, width]``."""
    if value.rank == 4:
        return value
    moved = value if bias is None else binary("add", value, bias)
    apart = reshape(moved, (*value.shape[:2], heads, value.shape[2] // heads))
    return transpose(apart, [0, 2, 1, 3])


def _masked(call: Call, scores: Value) -> Value:
    """Scores with what is added to them, and low where keys are padding or later."""
    low = call.attribute("mask_filter_value", -10000.0)
    batch, _, rows, keys = scores.shape
    added, padding = call.get(_ADDED), call.get(_PADDING)
    if added is not None:
        scores = binary("add", scores, added)
    if padding is not None:
        if padding.shape not in ((batch, keys), (batch, rows, keys)):
            raise UnsupportedWorkload(
                f"a mask of padding of shape {list(padding.shape)} is not supported; supported "
                f"are [{batch}, {keys}] and [{batch}, {rows}, {keys}]"
            )
        shown = reshape(cast(padding, "bool"), (batch, 1, -1, keys))
        hidden = select(shown, constant(0.0, scores.dtype), low)
        scores = binary("add", scores, hidden)
    if call.attribute("unidirectional"):
        later = np.arange(keys) > np.arange(rows)[:, None] + keys - rows
        scores = select(constant(later), -math.inf, scores)
    return scores


ATTENTION: Mapping[str, Operator] = {"MultiHeadAttention": _multi_head}
