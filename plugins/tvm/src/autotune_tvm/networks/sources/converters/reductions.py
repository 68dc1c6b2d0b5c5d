"""Reductions that TVM's translator lacks, or makes a search for the largest k of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from autotune_tvm.networks.sources.converters.emission import (
    Converter,
    argument,
    as_type,
    emit,
    node_type,
)

__all__ = ["REDUCTIONS"]


def _extreme(name: str) -> Converter:
    """``amax`` and ``amin``: the extreme over some dimensions, or all."""

    def convert(node: Any, translator: Any) -> Any:
        dims = list(argument(node, 1, "dim", [])) or None
        keepdim = argument(node, 2, "keepdim", False)
        return _reduced(translator, translator.env[node.args[0]], name, dims, keepdim)

    return convert


def _extreme_and_place(name: str) -> Converter:
    """``max.dim`` and ``min.dim``: the extreme over one dimension, and where it is first."""

    def convert(node: Any, translator: Any) -> Any:
        from tvm import relax

        data = translator.env[node.args[0]]
        dim, keepdim = node.args[1], argument(node, 2, "keepdim", False)
        if not node.args[0].meta["val"].dim():
            place = relax.op.zeros((), "int64")
            return emit(translator, relax.Tuple([data, emit(translator, place)]))
        found = _reduced(translator, data, name, [dim], keepdim)
        search = relax.op.argmax if name == "max" else relax.op.argmin
        numbers = _numbers(translator, data)
        place = emit(translator, search(numbers, axis=dim, keepdims=keepdim))
        return emit(translator, relax.Tuple([found, as_type(translator, place, "int64")]))

    return convert


def _product_over(node: Any, translator: Any) -> Any:
    """``prod`` over one dimension, or all; integers become those of 64 bits first."""
    from tvm import relax

    data = as_type(translator, translator.env[node.args[0]], node_type(node))
    along = "dim_int" in node.target.__name__
    dims = [node.args[1]] if along else None
    keepdim = argument(node, 2, "keepdim", False) if along else False
    if not node.args[0].meta["val"].dim():
        return data
    return emit(translator, relax.op.prod(data, axis=dims, keepdims=keepdim))


def _any(node: Any, translator: Any) -> Any:
    """``any`` over one dimension, several or all, of booleans and numbers."""
    name = node.target.__name__
    dims = None if name == "any.default" else argument(node, 1, "dim")
    dims = [dims] if isinstance(dims, int) else dims
    keepdim = name != "any.default" and argument(node, 2, "keepdim", False)
    truth = as_type(translator, translator.env[node.args[0]], "bool")
    return _reduced(translator, truth, "max", dims, keepdim)


def _reduced(translator: Any, data: Any, name: str, dims: Any, keepdim: bool) -> Any:
    from tvm import relax

    dtype = str(data.ty.dtype)
    if not data.ty.shape.values:
        return data
    reduce: Callable[..., Any] = getattr(relax.op, name)
    result = reduce(_numbers(translator, data), axis=dims or None, keepdims=keepdim)
    return as_type(translator, emit(translator, result), dtype)


def _numbers(translator: Any, data: Any) -> Any:
    """Booleans as numbers: TVM has no least and no largest boolean."""
    return as_type(translator, data, "int8") if str(data.ty.dtype) == "bool" else data


REDUCTIONS: Mapping[str, Converter] = MappingProxyType(
    {
        "amax.default": _extreme("max"),
        "amin.default": _extreme("min"),
        "max.dim": _extreme_and_place("max"),
        "min.dim": _extreme_and_place("min"),
        "prod.default": _product_over,
        "prod.dim_int": _product_over,
        "any.default": _any,
        "any.dim": _any,
        "any.dims": _any,
    }
)
"""Reductions by name of the operator."""
