"""Attention of language models in Microsoft's domain: heads share keys, positions are rotary."""

from __future__ import annotations

import math

import numpy as np
from attrs import evolve

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Value,
    binary,
    cast,
    concat,
    constant,
    elementwise,
    matmul,
    reshape,
    select,
    softmax,
    split,
    transpose,
)
from autotune.networks.readers.onnx.call import Call
from autotune.networks.readers.onnx.operators.attention import heads_of, rotated

__all__ = ["grouped_query_attention"]

_REFUSED = ("smooth_softmax", "qk_output", "k_quant_type", "v_quant_type", "kv_cache_bit_width")


def grouped_query_attention(call: Call) -> list[Value | None]:
    """``GroupQueryAttention``: what it attends to, and all keys and values.

    Past keys have to be as long as the tokens that there were, of all sequences alike.

    Raises:
        UnsupportedWorkload: they are a buffer that is partly filled, or an attribute is not
            supported.
        ValueNeeded: the lengths of the sequences are not known.
    """
    for name in _REFUSED:
        if call.attribute(name) not in (None, 0, -1, "NONE"):
            raise UnsupportedWorkload(f"attribute {name!r} is not supported")
    if call.get(11) is not None:
        raise UnsupportedWorkload("input 11 (head_sink) is not supported")
    heads, groups = call.attribute("num_heads"), call.attribute("kv_num_heads")
    q, k, v = _projections(call, heads, groups)
    past = [None if it is None or not it.size else it for it in (call.get(3), call.get(4))]
    length, before = q.shape[2], 0 if past[0] is None else past[0].shape[2]
    _check_lengths(call, before + length)
    if call.attribute("do_rotary"):
        q, k = (_rotated(call, it, before) for it in (q, k))
    k, v = (
        now if old is None else concat([old, now], 2)
        for old, now in zip(past, (k, v), strict=True)
    )
    found = transpose(_attended(call, q, k, v, before), [0, 2, 1, 3])
    return [reshape(found, (*found.shape[:2], heads * found.shape[3])), k, v]


def _projections(call: Call, heads: int, groups: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values as ``[batch, heads, length, size]``, which may be in one input."""
    if call.get(1) is not None:
        return heads_of(call[0], heads), heads_of(call[1], groups), heads_of(call[2], groups)
    size = call[0].shape[-1] // (heads + 2 * groups)
    q, k, v = split(call[0], [heads * size, groups * size, groups * size], 2)
    return heads_of(q, heads), heads_of(k, groups), heads_of(v, groups)


def _check_lengths(call: Call, total: int) -> None:
    lengths = call.ints(5)
    if any(it != total - 1 for it in lengths):
        raise UnsupportedWorkload(
            f"sequences of {[it + 1 for it in lengths]} tokens with keys of {total}: a buffer of "
            "keys that is partly filled, and sequences of other lengths, are not supported"
        )


def _rotated(call: Call, x: Value, before: int) -> Value:
    """Queries or keys, turned by the positions of their tokens."""
    places = call.get(9)
    if places is None:
        own = np.arange(before, before + x.shape[2], dtype=np.int64)
        places = constant(np.tile(own, (x.shape[0], 1)))
    told = {"interleaved": call.attribute("rotary_interleaved", 0)}
    return rotated(evolve(call, inputs=(x, places, call[7], call[8]), attributes=told))


def _attended(call: Call, q: Value, k: Value, v: Value, before: int) -> Value:
    """Heads of queries beside each other read the same keys and values."""
    batch, heads, length, size = q.shape
    groups, total = k.shape[1], k.shape[2]
    apart = reshape(q, (batch, groups, heads // groups, length, size))
    k, v = (reshape(it, (batch, groups, 1, total, size)) for it in (k, v))
    scale = call.attribute("scale") or 1 / math.sqrt(size)
    scores = binary("mul", matmul(apart, transpose(k, [0, 1, 2, 4, 3])), scale)
    cap = call.attribute("softcap") or 0.0
    if cap:
        scores = elementwise(lambda it: (it / cap).call("tanh") * cap, scores)
    bias = call.get(10)
    if bias is not None:
        wide = (bias.shape[0], *((1, 1) if bias.shape[1] == 1 else (groups, -1)), length, total)
        scores = binary("add", scores, cast(reshape(bias, wide), scores.dtype))
    behind = np.arange(length)[:, None] + before - np.arange(total)
    window = call.attribute("local_window_size", -1)
    hidden = (behind < 0) | (behind >= window if window > 0 else False)
    found = matmul(softmax(select(constant(hidden), -math.inf, scores), -1), v)
    return reshape(found, (batch, heads, length, size))
