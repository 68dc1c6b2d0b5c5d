"""Products with weights of a few bits, which are unpacked while a model is read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import Value, binary, cast, constant, matmul
from autotune.networks.readers.onnx.call import Call

__all__ = ["product_of_few_bits"]

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
    wide = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    found = matmul(x, cast(constant(np.ascontiguousarray(weights.T), "float32"), wide))
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
    return np.reshape(apart, (packed.shape[0], packed.shape[1] * each))
