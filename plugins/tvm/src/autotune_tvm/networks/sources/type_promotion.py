"""Operands of one type, as torch promotes them.

TVM computes ``i + 0.5`` of whole numbers in whole numbers, and refuses what has two types.
"""

from __future__ import annotations

from typing import Any

__all__ = ["promote_types"]

# The operands of what follows are given the type of the result ...
_LIKE_RESULT = frozenset(
    [
        "add.Tensor",
        "add.Scalar",
        "sub.Tensor",
        "sub.Scalar",
        "mul.Tensor",
        "mul.Scalar",
        "pow.Tensor_Tensor",
        "pow.Tensor_Scalar",
        "pow.Scalar",
        "remainder.Tensor",
        "remainder.Scalar",
        "fmod.Tensor",
        "fmod.Scalar",
        "maximum.default",
        "minimum.default",
        "where.self",
        "cat.default",
        "stack.default",
        "clamp.default",
        "clamp.Tensor",
        "clamp_min.default",
        "clamp_max.default",
        "atan2.default",
        "cumsum.default",
        "cumprod.default",
        "bitwise_and.Tensor",
        "bitwise_or.Tensor",
        "bitwise_xor.Tensor",
    ]
)
# ... and of what follows that of all operands together, for the result is a boolean.
_COMPARISONS = frozenset(
    f"{name}.{kind}"
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
)


def promote_types(program: Any) -> None:
    """Convert operands in the graph of an exported program to the type that torch computes in."""
    for node in list(program.graph.nodes):
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        if name in _LIKE_RESULT:
            _convert(
                program.graph, node, node.meta["val"].dtype, skipped=int(name == "where.self")
            )
        elif name in _COMPARISONS:
            _convert(program.graph, node, _common_type(node.args[:2]))


def _common_type(operands: Any) -> Any:
    import torch

    values = [getattr(it, "meta", {}).get("val", it) for it in operands]
    return torch.result_type(*values)


def _convert(graph: Any, node: Any, dtype: Any, skipped: int = 0) -> None:
    """Give the tensors among the arguments of a node a type, but for the first ``skipped``."""
    converted = [
        argument if position < skipped else _converted(graph, node, argument, dtype)
        for position, argument in enumerate(node.args)
    ]
    if converted != list(node.args):
        node.args = tuple(converted)


def _converted(graph: Any, node: Any, argument: Any, dtype: Any) -> Any:
    import torch

    if isinstance(argument, (list, tuple)):
        return type(argument)(_converted(graph, node, it, dtype) for it in argument)
    value = getattr(argument, "meta", {}).get("val")
    if not isinstance(value, torch.Tensor) or value.dtype == dtype:
        return argument
    with graph.inserting_before(node):
        copy = graph.call_function(torch.ops.aten._to_copy.default, (argument,), {"dtype": dtype})
    copy.meta["val"] = value.to(dtype)
    return copy
