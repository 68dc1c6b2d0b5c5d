"""Products of matrices, as torch computes them.

TVM's translator sums the products of any type in single precision. That is what torch does with
halves, but TVM leaves the result there, so that the next operator meets two types. Here it becomes
the type of torch's node again, once, after a bias is added; double precision stays double.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from autotune_tvm.networks.sources.converters.emission import (
    Converter,
    accumulator,
    as_type,
    emit,
    node_type,
    own_converter,
)

__all__ = ["PRODUCTS"]


def _product(node: Any, translator: Any) -> Any:
    dtype = node_type(node)
    if dtype == "float32":
        return own_converter(translator, node)
    left, right = (translator.env[operand] for operand in node.args[:2])
    return as_type(translator, _sums(translator, left, right, dtype), dtype)


def _product_and_sum(node: Any, translator: Any) -> Any:
    """``beta * bias + alpha * (left @ right)``."""
    from tvm import relax

    dtype = node_type(node)
    if dtype == "float32":
        return own_converter(translator, node)
    bias, left, right = (translator.env[operand] for operand in node.args[:3])
    wide = accumulator(dtype)
    result = _sums(translator, left, right, dtype)
    parts = [(node.kwargs.get("beta", 1), as_type(translator, bias, wide))]
    parts.append((node.kwargs.get("alpha", 1), result))
    scaled = [
        part
        if factor == 1
        else emit(translator, relax.op.multiply(part, relax.const(factor, wide)))
        for factor, part in parts
        if factor != 0
    ]
    total = scaled[0]
    for other in scaled[1:]:
        total = emit(translator, relax.op.add(total, other))
    return as_type(translator, total, dtype)


def _sums(translator: Any, left: Any, right: Any, dtype: str) -> Any:
    from tvm import relax

    product = relax.op.linear_algebra.matmul(left, right, out_dtype=accumulator(dtype))
    return emit(translator, product)


PRODUCTS: Mapping[str, Converter] = MappingProxyType(
    {
        "mm.default": _product,
        "bmm.default": _product,
        "matmul.default": _product,
        "addmm.default": _product_and_sum,
        "baddbmm.default": _product_and_sum,
    }
)
"""Products of matrices by name of the operator."""
