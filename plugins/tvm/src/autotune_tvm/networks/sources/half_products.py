"""Products of half precision in torch's graphs, as torch computes them.

TVM's translator sums the products of any type in single precision, which is what torch does, but
leaves the result there, so that the next operator meets two types. Here it becomes the type of
torch's node again, once, after a bias is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["half_products"]

_HALF = "float16"


def half_products(graph: Any) -> dict[str, Callable[[Any, Any], Any]] | None:
    """Converters for TVM's translator, where a graph has products of half precision.

    Args:
        graph: Of an exported program, decomposed.

    Returns:
        A function of a node and the translator by name of the operator; None where all products
        are of other types.
    """
    names = (getattr(node.target, "__name__", "") for node in graph.nodes if _is_half(node))
    return dict(_CONVERTERS) if set(_CONVERTERS) & set(names) else None


def _is_half(node: Any) -> bool:
    return node.op == "call_function" and _dtype(node) == _HALF


def _dtype(node: Any) -> str:
    return str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")


def _product(node: Any, translator: Any) -> Any:
    left, right = (translator.env[operand] for operand in node.args[:2])
    return _rounded(_sums(translator, left, right), node, translator)


def _product_and_sum(node: Any, translator: Any) -> Any:
    """``beta * bias + alpha * (left @ right)``."""
    from tvm import relax

    bias, left, right = (translator.env[operand] for operand in node.args[:3])
    result = _sums(translator, left, right)
    parts = [(node.kwargs.get("beta", 1), _single(translator, bias))]
    parts.append((node.kwargs.get("alpha", 1), result))
    scaled = [
        part
        if factor == 1
        else translator.block_builder.emit(relax.op.multiply(part, relax.const(factor, "float32")))
        for factor, part in parts
        if factor != 0
    ]
    total = scaled[0]
    for other in scaled[1:]:
        total = translator.block_builder.emit(relax.op.add(total, other))
    return _rounded(total, node, translator)


def _convolution(node: Any, translator: Any) -> Any:
    """TVM's own converter, on operands of single precision."""
    convert = translator.create_convert_map()["convolution.default"]
    halves = {it: translator.env[it] for it in node.all_input_nodes}
    translator.env.update({it: _single(translator, value) for it, value in halves.items()})
    try:
        result = convert(node)
    finally:
        translator.env.update(halves)
    return _rounded(result, node, translator)


def _sums(translator: Any, left: Any, right: Any) -> Any:
    from tvm import relax

    product = relax.op.linear_algebra.matmul(left, right, out_dtype="float32")
    return translator.block_builder.emit(product)


def _single(translator: Any, value: Any) -> Any:
    from tvm import relax

    if str(value.ty.dtype) != _HALF:
        return value
    return translator.block_builder.emit(relax.op.astype(value, "float32"))


def _rounded(value: Any, node: Any, translator: Any) -> Any:
    """The value in the type of torch's node."""
    from tvm import relax

    dtype = _dtype(node)
    if str(value.ty.dtype) == dtype:
        return value
    return translator.block_builder.emit(relax.op.astype(value, dtype))


_CONVERTERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "mm.default": _product,
    "bmm.default": _product,
    "matmul.default": _product,
    "addmm.default": _product_and_sum,
    "baddbmm.default": _product_and_sum,
    "convolution.default": _convolution,
}
