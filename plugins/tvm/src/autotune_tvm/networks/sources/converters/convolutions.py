"""Convolutions of one to three dimensions, plain and transposed, of any floating-point type."""

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
)

__all__ = ["CONVOLUTIONS"]

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def _convolution(node: Any, translator: Any) -> Any:
    """``aten.convolution``: halves are summed in single precision, and rounded after the bias."""
    from tvm import relax

    data, weight, bias, strides, padding, dilation, transposed, output_padding, groups = node.args
    dtype = node_type(node)
    wide = accumulator(dtype)
    count = node.meta["val"].dim() - 2
    operands = [as_type(translator, translator.env[it], wide) for it in (data, weight)]
    options: dict[str, Any] = {
        "strides": _each(strides, count),
        "padding": _each(padding, count),
        "dilation": _each(dilation, count),
        "groups": groups,
        "data_layout": f"NC{_SPACE[count]}",
        "kernel_layout": f"{'IO' if transposed else 'OI'}{_SPACE[count]}",
        "out_dtype": wide,
    }
    if transposed:
        options["output_padding"] = _each(output_padding, count)
    name = f"conv{count}d{'_transpose' if transposed else ''}"
    result = emit(translator, getattr(relax.op.nn, name)(*operands, **options))
    if bias is not None:
        shifts = relax.op.reshape(translator.env[bias], (1, -1, *[1] * count))
        shifts = as_type(translator, emit(translator, shifts), wide)
        result = emit(translator, relax.op.add(result, shifts))
    return as_type(translator, result, dtype)


def _each(values: Any, count: int) -> list[int]:
    """One number for each dimension; torch gives one for all of them, too."""
    return list(values) * count if len(values) == 1 else list(values)


CONVOLUTIONS: Mapping[str, Converter] = MappingProxyType({"convolution.default": _convolution})
"""Convolutions by name of the operator: torch decomposes all of its own into one."""
