"""Arithmetic of whole numbers: divisions, shifts of bits, and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from autotune_tvm.networks.sources.converters.emission import (
    Converter,
    argument,
    as_type,
    emit,
    node_type,
    own_converter,
)

__all__ = ["ARITHMETIC"]


def _division(node: Any, translator: Any) -> Any:
    """``div``: exact, or rounded down or towards 0, in the type of torch's node."""
    from tvm import relax

    dtype = node_type(node)
    left, right = (_operand(translator, it, dtype) for it in node.args[:2])
    mode = argument(node, 2, "rounding_mode")
    if mode == "floor":
        return emit(translator, relax.op.floor_divide(left, right))
    # That of whole numbers is rounded towards 0 already.
    result = emit(translator, relax.op.divide(left, right))
    if mode == "trunc" and dtype.startswith(("float", "bfloat")):
        return emit(translator, relax.op.trunc(result))
    return result


def _shift(name: str) -> Converter:
    def convert(node: Any, translator: Any) -> Any:
        from tvm import relax

        dtype = node_type(node)
        left, right = (_operand(translator, it, dtype) for it in node.args[:2])
        return emit(translator, getattr(relax.op, name)(left, right))

    return convert


def _bounded(node: Any, translator: Any) -> Any:
    """``clamp``: TVM has no infinite bound of whole numbers."""
    from tvm import relax

    dtype = node_type(node)
    if "int" not in dtype:
        return own_converter(translator, node)
    name = node.target.__name__
    least = None if name == "clamp_max.default" else argument(node, 1, "min")
    most = argument(node, 1 if name == "clamp_max.default" else 2, "max")
    result = translator.env[node.args[0]]
    if least is not None:
        result = emit(translator, relax.op.maximum(result, relax.const(least, dtype)))
    if most is not None:
        result = emit(translator, relax.op.minimum(result, relax.const(most, dtype)))
    return result


def _operand(translator: Any, value: Any, dtype: str) -> Any:
    from tvm import relax

    if isinstance(value, (int, float)):
        return relax.const(value, dtype)
    return as_type(translator, translator.env[value], dtype)


ARITHMETIC: Mapping[str, Converter] = MappingProxyType(
    {
        "div.Tensor": _division,
        "div.Scalar": _division,
        "div.Tensor_mode": _division,
        "div.Scalar_mode": _division,
        "clamp.default": _bounded,
        "clamp_min.default": _bounded,
        "clamp_max.default": _bounded,
        "__lshift__.Scalar": _shift("left_shift"),
        "__lshift__.Tensor": _shift("left_shift"),
        "bitwise_left_shift.Tensor": _shift("left_shift"),
        "bitwise_left_shift.Tensor_Scalar": _shift("left_shift"),
        "__rshift__.Scalar": _shift("right_shift"),
        "__rshift__.Tensor": _shift("right_shift"),
        "bitwise_right_shift.Tensor": _shift("right_shift"),
        "bitwise_right_shift.Tensor_Scalar": _shift("right_shift"),
    }
)
"""Divisions, shifts and bounds by name of the operator."""
