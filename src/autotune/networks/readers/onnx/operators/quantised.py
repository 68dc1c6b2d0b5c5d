"""Numbers quantised to bytes, and products of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    broadcast,
    cast,
    clamp,
    constant,
    convolution_integer,
    elementwise,
    matmul_integer,
    maximum,
    minimum,
    reduce,
    reshape,
    where,
)
from autotune.networks.readers.onnx.call import Call, Dequantised, Operator
from autotune.networks.readers.onnx.operators.byte_products import BYTES, dequantised, moving
from autotune.networks.readers.onnx.operators.windows import convolution_window
from autotune.networks.readers.onnx.tensors import dtype_of

__all__ = ["QUANTISED", "dynamic", "quantised"]


def _spread(parameter: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point that broadcasts to ``x``: one, one for each index, or for blocks."""
    if parameter.size == 1:
        return reshape(parameter, ())
    axis %= x.rank
    if block:
        whole = list(parameter.shape)
        whole.insert(axis + 1, block)
        rows = reshape(parameter, (*parameter.shape[: axis + 1], 1, *parameter.shape[axis + 1 :]))
        return reshape(broadcast(rows, whole), x.shape)
    return reshape(parameter, (-1, *[1] * (x.rank - axis - 1)))


def _parameters(call: Call, x: Value) -> tuple[Value, Value | None]:
    axis, block = call.attribute("axis", 1), call.attribute("block_size", 0)
    scale, zero = call[1], call.get(2)
    return _spread(scale, x, axis, block), None if zero is None else _spread(zero, x, axis, block)


def quantised(x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    """``x / scale`` rounded to even, shifted, and at most what the type holds."""
    limits = np.iinfo(dtype)

    def number(it: Scalar, *zeros: Scalar) -> Scalar:
        rounded = it.call("round")
        for zero in zeros:
            rounded = rounded + zero.cast(it.dtype)
        return minimum(maximum(rounded, int(limits.min)), int(limits.max)).cast(dtype)

    # The quotient is rounded by itself: which way halves go depends on its last digit.
    quotient = binary("div", x, cast(scale, x.dtype))
    return elementwise(number, quotient, *moving(zero), dtype=dtype, name="quantize")


def _quantize(call: Call) -> Value:
    x = call[0]
    scale, zero = _parameters(call, x)
    told = call.attribute("output_dtype")
    dtype = dtype_of(told) if told else "uint8" if zero is None else zero.dtype
    before = call.dequantised.get(x.key)
    if before is not None and before.stored.dtype == dtype and before.is_by(call[1], call.get(2)):
        # They come back exactly: quotients are off by far less than one half.
        return before.stored
    if x.dtype in ("float16", "bfloat16", "int32"):
        x = cast(x, "float32")
    return quantised(x, scale, zero, dtype)


def _dequantize(call: Call) -> Value:
    x = call[0]
    scale, zero = _parameters(call, x)
    told = call.attribute("output_dtype")
    dtype = dtype_of(told) if told else call[1].dtype
    found = dequantised(x, scale, zero, dtype)
    if x.dtype in BYTES and dtype == "float32" and not call.attribute("block_size", 0):
        axis = call.attribute("axis", 1) % max(1, x.rank)
        kept = Dequantised(found, x, call[1], call.get(2), axis)
        call.dequantised[found.key] = kept
    return found


def dynamic(x: Value) -> list[Value]:
    """Bytes for floats by the range that these have; the scale, and what stands for 0."""
    low = clamp(reduce("min", x, None, False), None, 0.0)
    high = clamp(reduce("max", x, None, False), 0.0, None)
    scale = elementwise(
        lambda least, most: where(most.equals(least), 1, (most - least) / 255), low, high
    )
    zero = elementwise(
        lambda least, by: minimum(maximum((-least / by).call("round"), 0), 255),
        low,
        scale,
        dtype="uint8",
    )
    return [quantised(x, scale, zero, "uint8"), scale, zero]


def _requantized(total: Value, scale: Value, zero: Value) -> Value:
    wide = binary("mul", cast(total, scale.dtype), scale)
    one = constant(np.ones((), np.float32))
    return quantised(wide, cast(one, wide.dtype), zero, zero.dtype)


def _scales(call: Call, positions: tuple[int, int, int]) -> Value:
    """The product of the scales of what is multiplied, divided by that of the result."""
    a, b, y = (_single(call[at]) for at in positions)
    return binary("div", binary("mul", a, b), y)


def _single(scale: Value) -> Value:
    wide = cast(scale, "float32") if scale.dtype in ("float16", "bfloat16") else scale
    return reshape(wide, ()) if wide.size == 1 else wide


def _qlinear_matmul(call: Call) -> Value:
    a, b, zero = call[0], call[3], call[7]
    total = matmul_integer(a, b, call[2], call[5])
    a_scale = _single(call[1])
    if a_scale.rank == 1:
        a_scale = reshape(a_scale, (-1, 1))
    b_scale = _single(call[4])
    factor = binary("div", binary("mul", a_scale, b_scale), _single(call[6]))
    return _requantized(total, factor, _flat(zero))


def _flat(zero: Value) -> Value:
    if zero.size != 1:
        raise UnsupportedWorkload("several zero points of a result are not supported")
    return reshape(zero, ())


def _qlinear_conv(call: Call) -> Value:
    x, w = call[0], call[3]
    window, groups = convolution_window(call, x, w), call.attribute("group")
    total = convolution_integer(x, w, window, groups, call[2], call[5])
    column = (-1, *[1] * (x.rank - 2))
    bias = call.get(8)
    if bias is not None:
        total = binary("add", total, reshape(bias, column))
    factor = _scales(call, (1, 4, 6))
    factor = reshape(factor, column) if factor.size > 1 else factor
    return _requantized(total, factor, _flat(call[7]))


QUANTISED: Mapping[str, Operator] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": lambda call: dynamic(call[0]),
    "QLinearMatMul": _qlinear_matmul,
    "QLinearConv": _qlinear_conv,
}
