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

__all__ = ["PRODUCTS"]


def _matmul(call: Call) -> Value:
    return matmul(call[0], call[1])


def _gemm(call: Call) -> Value:
    a = transpose(call[0]) if call.attribute("transA") else call[0]
    b = transpose(call[1]) if call.attribute("transB") else call[1]
    found, alpha, beta = matmul(a, b), call.attribute("alpha"), call.attribute("beta")
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
