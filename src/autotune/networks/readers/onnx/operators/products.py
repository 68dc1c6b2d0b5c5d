"""Products of matrices, and sums of products of any indices."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.networks.graph import (
    Value,
    binary,
    determinant,
    einsum,
    matmul,
    matmul_integer,
    transpose,
)
from autotune.networks.readers.onnx.call import Call, Operator
from autotune.networks.readers.onnx.operators.byte_products import byte_factors, scaled_sums

__all__ = ["PRODUCTS"]


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


def _einsum(call: Call) -> Value:
    return einsum(call.attribute("equation"), *call.tensors)


def _matmul_integer(call: Call) -> Value:
    return matmul_integer(call[0], call[1], call.get(2), call.get(3))


PRODUCTS: Mapping[str, Operator] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "MatMulInteger": _matmul_integer,
    "Det": lambda call: determinant(call[0]),
}
