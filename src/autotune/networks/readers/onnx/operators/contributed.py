"""Operators of the domain ``com.microsoft`` that exporters and quantisers write into models.

Those that onnxruntime writes for itself alone are refused when a file is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

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
    reshape,
    select,
    take,
    transpose,
    unary,
)
from autotune.networks.graph import reduce as reduced
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.attention import (
    ATTENTION,
    grouped_query_attention,
)
from autotune.networks.readers.onnx.operators.elementwise import gelu, gelu_tanh
from autotune.networks.readers.onnx.operators.normalisation import layer_norm
from autotune.networks.readers.onnx.operators.products import dequantised
from autotune.networks.readers.onnx.operators.quantised import (
    QUANTISED,
    dynamic,
    product_of_few_bits,
    quantised,
)
from autotune.networks.readers.onnx.operators.recurrent import recurrent
from autotune.networks.readers.onnx.operators.reductions import REDUCTIONS
from autotune.networks.readers.onnx.operators.shapes import vector
from autotune.networks.readers.onnx.operators.windows import WINDOWS

__all__ = ["CONTRIBUTED"]


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
    if last:
        x = transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])
    found = WINDOWS[name](evolve(call, inputs=(x,)))
    assert isinstance(found, Value)
    return transpose(found, [0, *range(2, found.rank), 1]) if last else found


def _leaky(call: Call, x: Value) -> Value:
    return select(binary("ge", x, 0), x, binary("mul", x, call.attribute("alpha", 0.01)))


def _softmax(call: Call, x: Value) -> Value:
    told = {"axis": call.attribute("axis", -1)}
    found = REDUCTIONS["Softmax"](
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
    total = matmul_integer(a, b, call.get(2), call.get(5))
    if call.get(6) is not None:
        total = binary("add", total, call[6])
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


def _skipped(call: Call) -> list[Value | None]:
    """A sum, normalised; with it, where something reads them, what is saved for training."""
    parts = [call[0], call[1], *([] if call.get(4) is None else [call[4]])]
    total = reduce(partial(binary, "add"), parts)
    found = layer_norm(total, call[2], call.get(3), call.attribute("epsilon", 1e-12))
    _check_unread(call, 1, 2)
    return [found, None, None, total]


def _skipped_simple(call: Call) -> list[Value | None]:
    parts = [call[0], call[1], *([] if call.get(3) is None else [call[3]])]
    total = reduce(partial(binary, "add"), parts)
    _check_unread(call, 1, 2)
    return [_root_mean_square(total, call[2], call.attribute("epsilon", 1e-12)), None, None, total]


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
    wide = cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
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
    return [found, reduced("add", cast(binary("ne", mask, 0), "int32"), [1], False), total]


def _group_norm(call: Call) -> Value:
    x, groups = call[0], call.attribute("groups")
    last = call.attribute("channels_last", 1)
    moved = transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)]) if last else x
    apart = reshape(moved, (x.shape[0], groups, -1))
    found = reshape(normalized(apart, [2], call.attribute("epsilon", 1e-5)), moved.shape)
    column = (-1, *[1] * (x.rank - 2))
    scale, bias = (cast(reshape(call[at], column), found.dtype) for at in (1, 2))
    found = binary("add", binary("mul", found, scale), bias)
    if call.attribute("activation"):
        found = elementwise(lambda it: it * it.call("sigmoid"), found)
    found = cast(found, x.dtype)
    return transpose(found, [0, *range(2, x.rank), 1]) if last else found


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
    "SkipLayerNormalization": _skipped,
    "SkipSimplifiedLayerNormalization": _skipped_simple,
    "SimplifiedLayerNormalization": _simple,
    "EmbedLayerNormalization": _embedded,
    "GroupNorm": _group_norm,
    "GroupQueryAttention": grouped_query_attention,
    "MatMulNBits": product_of_few_bits,
    **ATTENTION,
}
"""By name."""
