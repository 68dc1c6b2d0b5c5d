"""What converters of single operators share.

A converter is given a node of torch's graph and TVM's translator, whose ``env`` has the values of
the nodes before it, and returns the value of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Converter", "accumulator", "argument", "as_type", "emit", "node_type", "own_converter"]

Converter = Callable[[Any, Any], Any]

_HALVES = ("float16", "bfloat16")


def emit(translator: Any, expression: Any) -> Any:
    """Bind an expression to a variable."""
    return translator.block_builder.emit(expression)


def argument(node: Any, position: int, name: str, default: Any = None) -> Any:
    """An argument of a node, by position or keyword."""
    if len(node.args) > position:
        return node.args[position]
    return node.kwargs.get(name, default)


def node_type(node: Any) -> str:
    """The element type of what a node computes, such as ``"float16"``; "" if it is no tensor."""
    return str(getattr(node.meta.get("val"), "dtype", "")).removeprefix("torch.")


def accumulator(dtype: str) -> str:
    """The type in which torch sums numbers of a type: single precision for halves."""
    return "float32" if dtype in _HALVES else dtype


def as_type(translator: Any, value: Any, dtype: str) -> Any:
    """A tensor in another element type."""
    from tvm import relax

    if str(value.ty.dtype) == dtype:
        return value
    return emit(translator, relax.op.astype(value, dtype))


def own_converter(translator: Any, node: Any) -> Any:
    """What TVM's own converter makes of a node."""
    return translator.create_convert_map()[node.target.__name__](node)
