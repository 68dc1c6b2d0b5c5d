"""Products; those of floats that were bytes before they were dequantised are products of bytes.

Where ``x = s (a - p)`` and ``w = t (b - q)``, the product of both is ``s t`` times that of
``a - p`` and ``b - q``, which is exact in int32.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.networks.graph import (
    Scalar,
    Value,
    binary,
    cast,
    determinant,
    einsum,
    elementwise,
    matmul,
    matmul_integer,
    reshape,
    transpose,
)
from autotune.networks.graph.making import computed_type
from autotune.networks.readers.onnx.call import Call, Dequantised, Operator

__all__ = ["BYTES", "PRODUCTS", "byte_factors", "dequantised", "moving", "scaled_sums"]

BYTES = ("int8", "uint8")


def dequantised(x: Value, scale: Value, zero: Value | None, dtype: str) -> Value:
    """``(x - zero) * scale``.

    Args:
        x: Integers.
        scale: Broadcasts to them.
        zero: Likewise; None for 0.
        dtype: Type of the result.
    """
    computed = computed_type(dtype)

    def number(it: Scalar, by: Scalar, *zeros: Scalar) -> Scalar:
        for zero in zeros:
            it = it.cast("int32") - zero.cast("int32")
        return it.cast(computed) * by.cast(computed)

    operands = (x, scale, *moving(zero))
    return elementwise(number, *operands, dtype=dtype, name="dequantize")


def moving(zero: Value | None) -> tuple[Value, ...]:
    """A zero point that is not 0."""
    is_none = zero is None or (zero.constant is not None and not zero.constant.any())
    return () if is_none or zero is None else (zero,)


def byte_factors(
    call: Call, x: Value, w: Value, axis: int
) -> tuple[Dequantised, Dequantised] | None:
    """The integers of two factors before they were dequantised; None where one of them was not.

    Args:
        call: The node.
        x: A factor that has one scale.
        w: One that has one scale, or one for each index of ``axis``.
        axis: An axis of ``w`` that the result has.
    """
    left, right = call.dequantised.get(x.key), call.dequantised.get(w.key)
    if left is None or right is None or left.scale.size > 1 or (left.zero and left.zero.size > 1):
        return None
    return (left, right) if right.scale.size == 1 or right.axis == axis % w.rank else None


def scaled_sums(total: Value, left: Dequantised, right: Dequantised, behind: int) -> Value:
    """Sums of products of bytes as the floats that they stand for.

    Args:
        total: The sums (int32).
        left: The factor with one scale.
        right: The other one.
        behind: How many axes of the sums are behind that of several scales.
    """
    scale = binary("mul", reshape(left.scale, ()), right.scale)
    column = () if scale.size == 1 else (-1, *[1] * behind)
    return binary("mul", cast(total, scale.dtype), reshape(scale, column))


def _matmul(call: Call) -> Value:
    pair = byte_factors(call, call[0], call[1], -1) if call[1].rank == 2 else None
    if pair is None:
        return matmul(call[0], call[1])
    a, b = pair
    return scaled_sums(matmul_integer(a.stored, b.stored, a.zero, b.zero), a, b, 0)


def _product(call: Call) -> Value:
    """The product of two matrices, each as it is or transposed."""

    def turned(value: Value, how: str) -> Value:
        return transpose(value) if call.attribute(how) else value

    pair = byte_factors(call, call[0], call[1], 0 if call.attribute("transB") else 1)
    if pair is None:
        return matmul(turned(call[0], "transA"), turned(call[1], "transB"))
    a, b = pair
    factors = turned(a.stored, "transA"), turned(b.stored, "transB")
    return scaled_sums(matmul_integer(*factors, a.zero, b.zero), a, b, 0)


def _gemm(call: Call) -> Value:
    found, alpha, beta = _product(call), call.attribute("alpha"), call.attribute("beta")
    if alpha != 1:
        found = binary("mul", found, alpha)
    c = call.get(2)
    if c is None or beta == 0:
        return found
    return binary("add", found, c if beta == 1 else binary("mul", c, beta))


PRODUCTS: Mapping[str, Operator] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": lambda call: einsum(call.attribute("equation"), *call.tensors),
    "MatMulInteger": lambda call: matmul_integer(call[0], call[1], call.get(2), call.get(3)),
    "Det": lambda call: determinant(call[0]),
}
