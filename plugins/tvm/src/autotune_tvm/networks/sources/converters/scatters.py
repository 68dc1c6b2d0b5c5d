"""Scatters that add up or compare what meets at one place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune_tvm.networks.sources.converters.emission import Converter, argument, emit

__all__ = ["SCATTERS"]

_REDUCTIONS = MappingProxyType(
    {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": ""}
)


def _scatter_add(node: Any, translator: Any) -> Any:
    return _scattered(node, translator, "add")


def _scatter_reduce(node: Any, translator: Any) -> Any:
    """``scatter_reduce`` over what is there already."""
    name = argument(node, 4, "reduce")
    reduction = _REDUCTIONS.get(name, "")
    if not reduction or not argument(node, 5, "include_self", True):
        kept = "" if argument(node, 5, "include_self", True) else " with include_self=False"
        raise UnsupportedWorkload(
            f"scatter_reduce {name!r}{kept} is not known; sum, prod, amax and amin that include "
            "what is there are"
        )
    return _scattered(node, translator, reduction)


def _scattered(node: Any, translator: Any, reduction: str) -> Any:
    from tvm import relax

    data, index, source = (translator.env[node.args[i]] for i in (0, 2, 3))
    shape, given = (node.args[i].meta["val"].shape for i in (2, 3))
    if tuple(shape) != tuple(given):  # torch takes of the source what the indices cover
        count = len(shape)
        source = emit(
            translator,
            relax.op.strided_slice(source, list(range(count)), [0] * count, list(shape)),
        )
    axis = node.args[1] % max(len(shape), 1)
    scatter = relax.op.scatter_elements(data, index, source, axis=axis, reduction=reduction)
    return emit(translator, scatter)


SCATTERS: Mapping[str, Converter] = MappingProxyType(
    {"scatter_add.default": _scatter_add, "scatter_reduce.two": _scatter_reduce}
)
"""Scatters by name of the operator."""
