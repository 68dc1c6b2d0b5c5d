"""Operators of the domain ``com.microsoft`` that exporters and quantisers write into models.

Those that onnxruntime writes for itself alone are refused when a file is opened. Of attention,
heads may share keys, and positions are rotary; ONNX's own is a function of other operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from attrs import evolve

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    cast,
    concat,
    constant,
    elementwise,
    matmul,
    matmul_integer,
    mean,
    normalized,
    reduce,
    reshape,
    select,
    slice_axis,
    softmax,
    split,
    stack,
    take,
    transpose,
    unary,
)
from autotune.networks.readers.forms import gelu, gelu_tanh, vector, widened
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.arithmetic import ARITHMETIC, layer_norm
from autotune.networks.readers.onnx.operators.products import dequantised, recurrent
from autotune.networks.readers.onnx.operators.quantised import (
    QUANTISED,
    dynamic,
    product_of_few_bits,
    quantised,
)
from autotune.networks.readers.onnx.operators.windows import WINDOWS

__all__ = ["ATTENTION", "CONTRIBUTED", "grouped_query_attention", "heads_of", "rotated"]

_MASKED = -10000.0


def heads_of(x: Value, count: int) -> Value:
    """From ``[batch, length, width]`` to ``[batch, heads, length, size]``."""
    batch, length, width = x.shape
    return transpose(reshape(x, (batch, length, count, width // count)), [0, 2, 1, 3])


def _attended(
    call: Call, q: Value, k: Value, v: Value, mask: Value | None, bias: Value | None
) -> tuple[Value, Value]:
    """The result of heads, ``[batch, length, width]``, and the scores before anything is added.

    Args:
        call: The node, for the scale and the values of masks.
        q: ``[batch, heads, length, size]``.
        k: ``[batch, heads, total, size]``.
        v: ``[batch, heads, total, size]``.
        mask: Integers, as :func:`_mask`.
        bias: Added to the scores.
    """
    scale = call.attribute("scale") or 1 / math.sqrt(q.shape[-1])
    plain = binary("mul", matmul(q, transpose(k, [0, 1, 3, 2])), scale)
    scores = _with_bias(plain, bias)
    filler = call.attribute("mask_filter_value", _MASKED)
    length, total = q.shape[2], k.shape[2]
    if mask is not None:
        kept = _mask(mask, q.shape[0], length, total)
        masked = constant(np.array(filler), scores.dtype)
        zero = constant(np.array(0.0), scores.dtype)
        scores = binary("add", scores, select(kept, zero, masked))
    if call.attribute("unidirectional"):
        ahead = np.triu(np.ones((length, total), np.bool_), total - length + 1)
        scores = select(constant(ahead), -math.inf, scores)
    found = transpose(matmul(softmax(scores, -1), v), [0, 2, 1, 3])
    return reshape(found, (*found.shape[:2], found.shape[2] * found.shape[3])), plain


def _mask(mask: Value, batch: int, length: int, total: int) -> Value:
    """True where a key counts, of a form that broadcasts to the scores."""
    if mask.shape == (batch, total):
        return reshape(binary("ne", mask, 0), (batch, 1, 1, total))
    if mask.shape == (batch, length, total):
        return reshape(binary("ne", mask, 0), (batch, 1, length, total))
    if mask.shape == (batch,):
        places = constant(np.arange(total, dtype=mask.dtype).reshape(1, 1, 1, total))
        return binary("lt", places, reshape(mask, (batch, 1, 1, 1)))
    raise UnsupportedWorkload(
        f"a mask of shape {list(mask.shape)} is not supported; one of shape {[batch]}, "
        f"{[batch, total]} or {[batch, length, total]} is"
    )


def _check(call: Call, *names: str) -> None:
    for name in names:
        if call.attribute(name):
            raise UnsupportedWorkload(f"attribute {name!r} is not supported")


def _with_past(past: Value | None, now: Value) -> Value:
    return now if past is None else concat([past, now], 2)


def _channels_first(x: Value, last: bool) -> Value:
    """An image whose channels may be its last axis."""
    return transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)]) if last else x


def _channels_back(x: Value, last: bool) -> Value:
    """The result of what :func:`_channels_first` made, with the channels where they were."""
    return transpose(x, [0, *range(2, x.rank), 1]) if last else x


def _projected(call: Call, total: Value, past_at: int) -> list[Value | None]:
    """Attention of a projection to queries, keys and values, which are beside each other."""
    _check(call, "do_rotary", "past_present_share_buffer")
    heads, width = call.attribute("num_heads"), total.shape[-1] // 3
    sizes = call.attribute("qkv_hidden_sizes") or [width] * 3
    q, k, v = (heads_of(it, heads) for it in split(total, sizes, 2))
    past = call.get(past_at)
    if past is not None:
        before = [reshape(it, it.shape[1:]) for it in split(past, [1, 1], 0)]
        k, v = _with_past(before[0], k), _with_past(before[1], v)
    mask = call.get(3 if past_at == 4 else 5)
    bias = call.get(5) if past_at == 4 else None
    present = stack([k, v], 0) if call.wants(1) else None
    return [_attended(call, q, k, v, mask, bias)[0], present]


def _attention(call: Call) -> list[Value | None]:
    return _projected(call, _with_bias(matmul(call[0], call[1]), call.get(2)), 4)


def _quantised_attention(call: Call) -> list[Value | None]:
    x, w = call[0], call[1]
    scales = [it if it.size > 1 else reshape(it, ()) for it in (call[3], call[4])]
    sums = matmul_integer(x, w, call.get(6), call.get(7))
    scale = binary("mul", *scales)
    total = binary("add", binary("mul", cast(sums, scale.dtype), scale), call[2])
    return _projected(call, total, 8)


def _multi_head(call: Call) -> list[Value | None]:
    if call.get(8) is not None or call.get(9) is not None:
        raise UnsupportedWorkload("a buffer that past and present share is not supported")
    heads = call.attribute("num_heads")
    q, k, v, bias = call[0], call.get(1), call.get(2), call.get(3)
    if k is None or v is None or q.rank != 3 or k.rank == 5:
        raise UnsupportedWorkload("queries, keys and values that are packed are not supported")
    if bias is not None:
        if k.rank != 3:
            raise UnsupportedWorkload("a bias with keys of heads is not supported")
        widths = [it.shape[-1] for it in (q, k, v)]
        q, k, v = (
            binary("add", it, part)
            for it, part in zip((q, k, v), split(bias, widths, 0), strict=True)
        )
    q = heads_of(q, heads)
    k, v = (it if it.rank == 4 else heads_of(it, heads) for it in (k, v))
    k, v = _with_past(call.get(6), k), _with_past(call.get(7), v)
    found, scores = _attended(call, q, k, v, call.get(4), call.get(5))
    return [found, k, v, scores]


def rotated(call: Call) -> Value:
    """``RotaryEmbedding``: pairs of elements turned by angles that depend on the position."""
    _check(call, "is_packed_batching")
    if call.attribute("scale", 1.0) not in (0.0, 1.0):
        raise UnsupportedWorkload("a scale is not supported")
    x, half = call[0], call[2].shape[1]
    rows = _rows(call)
    places = call[1]
    length = rows.shape[1]
    if places.size == 1:
        first = reshape(places, (1, 1))
        places = binary("add", first, constant(np.arange(length, dtype=np.int64).reshape(1, -1)))
    cosines, sines = (
        reshape(it, (*it.shape[:2], 1, half))
        for it in (take(call[at], places, 0) for at in (2, 3))
    )
    turned = slice_axis(rows, 3, 0, 2 * half)
    if call.attribute("interleaved"):
        one, two = (slice_axis(turned, 3, at, None, 2) for at in (0, 1))
    else:
        one, two = split(turned, [half, half], 3)
    first = elementwise(lambda a, b, c, s: a * c - b * s, one, two, cosines, sines)
    second = elementwise(lambda a, b, c, s: b * c + a * s, one, two, cosines, sines)
    if call.attribute("interleaved"):
        found = reshape(stack([first, second], 4), turned.shape)
    else:
        found = concat([first, second], 3)
    if found.shape != rows.shape:
        found = concat([found, slice_axis(rows, 3, 2 * half, None)], 3)
    return transpose(found, [0, 2, 1, 3]) if x.rank == 4 else reshape(found, x.shape)


def _rows(call: Call) -> Value:
    """The input as ``[batch, length, heads, size]``."""
    x = call[0]
    if x.rank == 4:
        return transpose(x, [0, 2, 1, 3])
    heads = call.attribute("num_heads", 0) or x.shape[2] // (2 * call[2].shape[1])
    return reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))


ATTENTION: Mapping[str, Operator] = {
    "Attention": _attention,
    "QAttention": _quantised_attention,
    "MultiHeadAttention": _multi_head,
    "RotaryEmbedding": rotated,
}
"""By name."""


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
    k, v = map(_with_past, past, (k, v))
    found = transpose(_attended_groups(call, q, k, v, before), [0, 2, 1, 3])
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


def _attended_groups(call: Call, q: Value, k: Value, v: Value, before: int) -> Value:
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


def _floats(call: Call, at: int) -> Value:
    """The floats of a tensor at ``at`` with its scale and zero point behind it."""
    zero = call.get(at + 2)
    scale = reshape(call[at + 1], ())
    return dequantised(call[at], scale, None if zero is None else reshape(zero, ()), scale.dtype)


def _bytes(call: Call, x: Value, at: int, dtype: str) -> Value:
    """Floats as bytes, by a scale at ``at`` and the zero point behind it."""
    zero = call.get(at + 1)
    return quantised(x, reshape(call[at], ()), zero and reshape(zero, ()), dtype)


def _two(combine: str, call: Call) -> Value:
    found = binary(combine, _floats(call, 0), _floats(call, 3))
    return _bytes(call, found, 6, call[0].dtype)


def _one(compute: Callable[[Call, Value], Value], call: Call) -> Value:
    """Compute on floats, and return bytes again."""
    return _bytes(call, compute(call, _floats(call, 0)), 3, call[0].dtype)


def _pooled(name: str, call: Call, x: Value) -> Value:
    last = call.attribute("channels_last", 0)
    found = WINDOWS[name](evolve(call, inputs=(_channels_first(x, last),)))
    assert isinstance(found, Value)
    return _channels_back(found, last)


def _leaky(call: Call, x: Value) -> Value:
    return select(binary("ge", x, 0), x, binary("mul", x, call.attribute("alpha", 0.01)))


def _softmax(call: Call, x: Value) -> Value:
    told = {"axis": call.attribute("axis", -1)}
    found = ARITHMETIC["Softmax"](
        evolve(call, inputs=(x,), attributes=told, since=call.attribute("opset"))
    )
    assert isinstance(found, Value)
    return found


def _mean(call: Call, x: Value) -> Value:
    return mean(x, call.attribute("axes"), bool(call.attribute("keepdims")))


def _joined(call: Call) -> Value:
    parts = [_floats(call, at) for at in range(2, len(call.inputs), 3)]
    return _bytes(call, concat(parts, call.attribute("axis")), 0, call[2].dtype)


def _chosen(call: Call) -> Value:
    found = select(call[0], _floats(call, 1), _floats(call, 4))
    return _bytes(call, found, 7, call[1].dtype)


def _gemm(call: Call) -> Value:
    """A product of bytes; floats where it has no scale."""
    a, b = (
        transpose(call[at]) if call.attribute(how) else call[at]
        for at, how in ((0, "transA"), (3, "transB"))
    )
    total = _with_bias(matmul_integer(a, b, call.get(2), call.get(5)), call.get(6))
    factor = binary("mul", _by_column(call[1]), _by_column(call[4]))
    scale = binary("mul", factor, call.attribute("alpha", 1.0))
    found = binary("mul", cast(total, scale.dtype), scale)
    if call.get(7) is None:
        return found
    zero = call.get(8)
    return _bytes(call, found, 7, "uint8" if zero is None else zero.dtype)


def _by_column(scale: Value) -> Value:
    return reshape(scale, ()) if scale.size == 1 else scale


def _product(
    a: Value, b: Value, scales: tuple[Value, Value], zeros: Sequence[Value | None]
) -> Value:
    a_scale, b_scale = map(_by_column, scales)
    if a_scale.rank:
        raise UnsupportedWorkload("several scales of the first factor are not supported")
    total = matmul_integer(a, b, *zeros)
    return binary("mul", cast(total, b_scale.dtype), binary("mul", a_scale, b_scale))


def _with_bias(found: Value, bias: Value | None) -> Value:
    return found if bias is None else binary("add", found, bias)


def _to_float(call: Call) -> Value:
    found = _product(call[0], call[1], (call[2], call[3]), (call.get(4), call.get(5)))
    return _with_bias(found, call.get(6))


def _dynamic_product(call: Call) -> Value:
    a, scale, zero = dynamic(call[0])
    found = _product(a, call[1], (scale, call[2]), (zero, call.get(3)))
    return _with_bias(found, call.get(4))


def _dynamic_lstm(call: Call) -> list[Value]:
    """An LSTM whose products are of bytes: rows are quantised for each of them.

    Weights are ``[directions, k, 4 hidden]``, and those of ONNX's LSTM are transposed.
    """
    scales = {1: (call[8], call[9]), 2: (call[10], call[11])}
    if any(it.constant is None for pair in scales.values() for it in pair):
        raise UnsupportedWorkload("scales that are not known are not supported")
    if call.get(4) is not None:
        raise UnsupportedWorkload("lengths of sequences, which bytes depend on, are not supported")

    def product(rows: Value, weights: Value, position: int, direction: int) -> Value:
        scale, zero = (take(it, vector(direction), 0) for it in scales[position])
        a, a_scale, a_zero = dynamic(rows)
        return _product(a, weights, (a_scale, scale), (a_zero, zero))

    weights = [transpose(call[at], (0, 2, 1)) for at in (1, 2)]
    told = {"direction": "forward", "layout": 0, "input_forget": 0, **call.attributes}
    inputs = (call[0], *weights, *call.inputs[3:8])
    return recurrent(evolve(call, kind="LSTM", inputs=inputs, attributes=told), product)


def _fused_product(call: Call) -> Value:
    if call.attribute("transBatchA") or call.attribute("transBatchB"):
        raise UnsupportedWorkload("batches that are transposed, too, are not supported")

    def turned(x: Value, how: str) -> Value:
        if not call.attribute(how) or x.rank < 2:
            return x
        return transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])

    found = matmul(turned(call[0], "transA"), turned(call[1], "transB"))
    alpha = call.attribute("alpha", 1.0)
    return found if alpha == 1 else binary("mul", found, alpha)


def _activation(compute: Callable[[Scalar], Scalar], call: Call) -> Value:
    """Of the first input, and a bias where there is one."""
    bias = call.get(1)
    if bias is None:
        return elementwise(compute, call[0])
    return elementwise(lambda x, more: compute(x + more), call[0], bias)


def _quick(call: Call) -> Value:
    alpha = call.attribute("alpha", 1.702)
    return elementwise(lambda x: x * (x * alpha).call("sigmoid"), call[0])


def _skipped(is_simple: bool, call: Call) -> list[Value | None]:
    """A sum, normalised, and the sum itself."""
    total = binary("add", call[0], call[1])
    total = _with_bias(total, call.get(3 if is_simple else 4))
    epsilon = call.attribute("epsilon", 1e-12)
    found = (
        _root_mean_square(total, call[2], epsilon)
        if is_simple
        else layer_norm(total, call[2], call.get(3), epsilon)
    )
    _check_unread(call, 1, 2)
    return [found, None, None, total]


def _simple(call: Call) -> list[Value | None]:
    _check_unread(call, 1)
    if call.attribute("axis", -1) not in (-1, call[0].rank - 1):
        raise UnsupportedWorkload("axes before the last one are not supported")
    return [_root_mean_square(call[0], call[1], call.attribute("epsilon", 1e-5))]


def _check_unread(call: Call, *positions: int) -> None:
    for position in positions:
        if call.wants(position):
            raise UnsupportedWorkload(f"output {position}, which training reads, is not supported")


def _root_mean_square(x: Value, scale: Value, epsilon: float) -> Value:
    wide = widened(x)
    square = binary("add", mean(binary("mul", wide, wide), [-1]), epsilon)
    found = binary("mul", wide, unary("rsqrt", square))
    return cast(binary("mul", found, cast(scale, wide.dtype)), x.dtype)


def _embedded(call: Call) -> list[Value | None]:
    words, length = call[0], call[0].shape[1]
    if call.get(8) is None:
        table = reshape(call[3], (1, *call[3].shape))
        places = take(table, vector(range(length)), 1)
    else:
        places = take(call[3], call[8], 0)
    total = binary("add", take(call[2], words, 0), places)
    if call.get(1) is not None and call.get(4) is not None:
        total = binary("add", total, take(call[4], call[1], 0))
    found = layer_norm(total, call[5], call[6], call.attribute("epsilon", 1e-12))
    mask = call.get(7)
    if mask is None:
        return [found, constant(np.zeros(words.shape[0], np.int32)), total]
    return [found, reduce("add", cast(binary("ne", mask, 0), "int32"), [1], False), total]


def _group_norm(call: Call) -> Value:
    x, groups = call[0], call.attribute("groups")
    last = call.attribute("channels_last", 1)
    moved = _channels_first(x, last)
    apart = reshape(moved, (x.shape[0], groups, -1))
    found = reshape(normalized(apart, [2], call.attribute("epsilon", 1e-5)), moved.shape)
    column = (-1, *[1] * (x.rank - 2))
    scale, bias = (cast(reshape(call[at], column), found.dtype) for at in (1, 2))
    found = binary("add", binary("mul", found, scale), bias)
    if call.attribute("activation"):
        found = elementwise(lambda it: it * it.call("sigmoid"), found)
    return _channels_back(cast(found, x.dtype), last)


CONTRIBUTED: Mapping[str, Operator] = {
    "QuantizeLinear": QUANTISED["QuantizeLinear"],
    "DequantizeLinear": QUANTISED["DequantizeLinear"],
    "QLinearAdd": partial(_two, "add"),
    "QLinearMul": partial(_two, "mul"),
    "QLinearConcat": _joined,
    "QLinearWhere": _chosen,
    "QLinearSigmoid": partial(_one, lambda call, x: unary("sigmoid", x)),
    "QLinearLeakyRelu": partial(_one, _leaky),
    "QLinearSoftmax": partial(_one, _softmax),
    "QLinearReduceMean": partial(_one, _mean),
    "QLinearAveragePool": partial(_one, partial(_pooled, "AveragePool")),
    "QLinearGlobalAveragePool": partial(_one, partial(_pooled, "GlobalAveragePool")),
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _dynamic_product,
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "FusedMatMul": _fused_product,
    "Gelu": partial(_activation, gelu),
    "BiasGelu": partial(_activation, gelu),
    "FastGelu": partial(_activation, gelu_tanh),
    "QuickGelu": _quick,
    "SkipLayerNormalization": partial(_skipped, False),
    "SkipSimplifiedLayerNormalization": partial(_skipped, True),
    "SimplifiedLayerNormalization": _simple,
    "EmbedLayerNormalization": _embedded,
    "GroupNorm": _group_norm,
    "GroupQueryAttention": grouped_query_attention,
    "MatMulNBits": product_of_few_bits,
    **ATTENTION,
}
"""By name."""
