"""Numbers quantised to bytes, products of them, and operators that move or choose the bytes.

What moves dequantised bytes moves the bytes. They are dequantised behind it, and not at all where
the next node quantises them again or multiplies them. Weights of a few bits are unpacked while a
model is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

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
    matmul,
    matmul_integer,
    maximum,
    minimum,
    reduce,
    reshape,
    where,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.forms import widened
from autotune.networks.readers.onnx.call import Call, Dequantised, Item, Operator
from autotune.networks.readers.onnx.model_file import dtype_of
from autotune.networks.readers.onnx.operators.products import BYTES, dequantised, moving
from autotune.networks.readers.onnx.operators.windows import convolution_window

__all__ = ["QUANTISED", "dynamic", "in_bytes", "product_of_few_bits", "quantised"]


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
    found = widened(scale)
    return reshape(found, ()) if found.size == 1 else found


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


Array = NDArray[Any]

_BITS = (2, 4, 8)


def product_of_few_bits(call: Call) -> Value:
    """``MatMulNBits``: a product with weights that have a scale for each block of a column.

    Raises:
        UnsupportedWorkload: the weights are of other widths, or their columns are in groups.
        ValueNeeded: the weights are not known.
    """
    if call.get(4) is not None:
        raise UnsupportedWorkload("input 4 (g_idx) is not supported")
    x, weights = call[0], _weights(call)
    turned = constant(np.ascontiguousarray(weights.T), "float32")
    found = matmul(x, cast(turned, computed_type(x.dtype)))
    if call.get(5) is not None:
        found = binary("add", found, cast(call[5], found.dtype))
    return cast(found, x.dtype)


def _weights(call: Call) -> Array:
    """The weights as numbers: a row for each column of the product."""
    rows, columns = call.attribute("N"), call.attribute("K")
    bits, block = call.attribute("bits", 4), call.attribute("block_size")
    if bits not in _BITS:
        raise UnsupportedWorkload(f"weights of {bits} bits are not supported; of 2, 4 and 8 are")
    blocks = -(-columns // block)
    numbers = _unpacked(call.known(1).reshape(rows * blocks, -1), bits)[:, :block]
    scales = call.known(2).reshape(rows * blocks, 1).astype(np.float32)
    zeros: Array = np.full((rows * blocks, 1), 1 << bits - 1, np.float32)
    if call.get(3) is not None:
        zeros = call.known(3)
        if call[3].dtype == "uint8":
            zeros = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
        zeros = zeros.reshape(rows * blocks, 1).astype(np.float32)
    found: Array = (numbers.astype(np.float32) - zeros) * scales
    return found.reshape(rows, blocks * block)[:, :columns]


def _unpacked(packed: Array, bits: int) -> Array:
    """Numbers of a few bits in rows of bytes, those in the lowest bits first."""
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * np.uint8(bits)
    apart = packed[:, :, None] >> shifts & np.uint8((1 << bits) - 1)
    found: Array = apart.reshape(packed.shape[0], packed.shape[1] * each)
    return found


def in_bytes(name: str, operator: Operator) -> Operator:
    """An operator that takes bytes where it can; as it is where it does arithmetic.

    Args:
        name: Of the operator.
        operator: What it computes.
    """
    form = _FORMS.get(name)
    return operator if form is None else partial(_moved, form, operator)


def _moved(form: Callable[[Call], Call | None], operator: Operator, call: Call) -> list[Item]:
    known = _known(call)
    bytes_of = None if known is None else form(call)
    found = operator(call if bytes_of is None else bytes_of)
    items: list[Item] = [*found] if isinstance(found, Sequence) else [found]
    if known is None or bytes_of is None:
        return items
    return [_with_floats(call, known, it) if _is_bytes(it, known) else it for it in items]


def _known(call: Call) -> Dequantised | None:
    """The bytes that the first input was."""
    first = call.inputs[0] if call.inputs else None
    return call.dequantised.get(first.key) if isinstance(first, Value) else None


def _is_bytes(item: Item, known: Dequantised) -> bool:
    return isinstance(item, Value) and item.dtype == known.stored.dtype


def _with_floats(call: Call, known: Dequantised, moved: Item) -> Value:
    """The floats that bytes stand for, known to have been these bytes."""
    assert isinstance(moved, Value)
    axis = known.axis
    if not known.is_by_one:
        axis = call.attribute("perm", [*range(moved.rank)][::-1]).index(axis)
    column = (-1, *[1] * (moved.rank - axis - 1)) if not known.is_by_one else ()
    zero = None if known.zero is None else reshape(known.zero, column)
    found = dequantised(moved, reshape(known.scale, column), zero, "float32")
    call.dequantised[found.key] = evolve(known, value=found, stored=moved, axis=axis)
    return found


def _first(call: Call) -> Call | None:
    """The call on bytes in the place of the first input."""
    known = _known(call)
    if known is None or not known.is_by_one:
        return None
    return evolve(call, inputs=(known.stored, *call.inputs[1:]))


def _chosen(call: Call) -> Call | None:
    """Choose as :func:`_first`, for comparisons: a scale below 0 turns the order around."""
    known = _known(call)
    scale = None if known is None else known.scale.constant
    return _first(call) if scale is not None and scale.size and scale.min() > 0 else None


def _turned(call: Call) -> Call | None:
    """A transposition, which may be of several scales, too."""
    known = _known(call)
    return None if known is None else evolve(call, inputs=(known.stored,))


def _joined(call: Call) -> Call | None:
    """A concatenation of bytes of one scale."""
    first, parts = _known(call), list[Value]()
    for item in call.inputs:
        known = call.dequantised.get(item.key) if isinstance(item, Value) else None
        if first is None or known is None or known.stored.dtype != first.stored.dtype:
            return None
        if not known.is_by(first.scale, first.zero):
            return None
        parts.append(known.stored)
    return evolve(call, inputs=tuple(parts))


def _padded(call: Call) -> Call | None:
    """Padding: what stands for 0 is around, unless it is elements of the tensor."""
    found, known = _first(call), _known(call)
    if found is None or known is None or call.attribute("mode", "constant") != "constant":
        return found
    value = call.get(2) if "pads" not in call.attributes else None
    told = call.attribute("value", 0)
    if told or (value is not None and (value.constant is None or value.constant.any())):
        return None
    if known.zero is None:
        return found
    if "pads" in call.attributes:
        return None if known.zero.constant is None or known.zero.constant.any() else found
    inputs = (*found.inputs, *[None] * (3 - len(found.inputs)))
    return evolve(found, inputs=(*inputs[:2], reshape(known.zero, ()), *inputs[3:]))


def _nearest(call: Call) -> Call | None:
    return _first(call) if call.attribute("mode", "nearest") == "nearest" else None


_FORMS: Mapping[str, Callable[[Call], Call | None]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Split"),
                *("Gather", "GatherElements", "GatherND", "Expand", "Tile"),
                *("DepthToSpace", "SpaceToDepth"),
            ),
            _first,
        ),
        **dict.fromkeys(("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin"), _chosen),
        "Transpose": _turned,
        "Concat": _joined,
        "Pad": _padded,
        "Resize": _nearest,
        "Upsample": _nearest,
    }
)
