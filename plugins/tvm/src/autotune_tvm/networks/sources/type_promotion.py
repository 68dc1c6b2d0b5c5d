"""Operands of one type, as torch promotes them, and of types that TVM computes in.

TVM computes ``i + 0.5`` of whole numbers in whole numbers, and refuses what has two types. It
orders bfloat16 as if its bits were whole numbers, and lacks functions of halves.
"""

from __future__ import annotations

from typing import Any

__all__ = ["promote_types", "widen_halves"]

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

# Of bfloat16 these are computed in single precision, which has all of its numbers.
_WIDENED = frozenset(
    [
        "_native_batch_norm_legit.no_stats",
        "argmax.default",
        "argmin.default",
        "argsort.default",
        "fmod.Scalar",
        "fmod.Tensor",
        "isfinite.default",
        "isinf.default",
        "isnan.default",
        "max.dim",
        "max_pool2d_with_indices.default",
        "max_pool3d_with_indices.default",
        "median.default",
        "median.dim",
        "min.dim",
        "pow.Scalar",
        "pow.Tensor_Scalar",
        "pow.Tensor_Tensor",
        "remainder.Scalar",
        "remainder.Tensor",
        "sort.default",
        "sort.stable",
        "topk.default",
    ]
)
# And these of both halves, of which TVM's code generator has no functions.
_ELEMENTARY = frozenset(
    f"{name}.default"
    for name in ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "tan")
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


def widen_halves(program: Any) -> None:
    """Compute in single precision what TVM lacks, or gets wrong, for halves."""
    for node in list(program.graph.nodes):
        name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
        for dtype in _types_widened(name):
            if any(_is_of(it, dtype) for it in node.all_input_nodes):
                _widen(program.graph, node, dtype)


def _types_widened(name: str) -> tuple[Any, ...]:
    import torch

    if name in _ELEMENTARY:
        return torch.bfloat16, torch.float16
    return (torch.bfloat16,) if name in _WIDENED else ()


def _widen(graph: Any, node: Any, dtype: Any) -> None:
    import operator

    import torch

    _convert(graph, node, torch.float32, only=dtype)
    made = node.meta["val"]
    if isinstance(made, torch.Tensor):
        _narrow(graph, node, dtype)
        return
    node.meta["val"] = type(made)(it.to(torch.float32) if it.dtype == dtype else it for it in made)
    for user in list(node.users):
        if user.target is operator.getitem:
            _narrow(graph, user, dtype)


def _narrow(graph: Any, node: Any, dtype: Any) -> None:
    """What a node computes in single precision becomes what it was, where that was a half."""
    import torch

    if not _is_of(node, dtype):
        return
    node.meta["val"] = node.meta["val"].to(torch.float32)
    with graph.inserting_after(node):
        copy = graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": dtype})
    copy.meta["val"] = node.meta["val"].to(dtype)
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)


def _is_of(node: Any, dtype: Any) -> bool:
    """Whether a node computes a tensor of a type."""
    return bool(getattr(node.meta.get("val"), "dtype", None) == dtype)


def _common_type(operands: Any) -> Any:
    import torch

    values = [getattr(it, "meta", {}).get("val", it) for it in operands]
    return torch.result_type(*values)


def _convert(graph: Any, node: Any, dtype: Any, skipped: int = 0, only: Any = None) -> None:
    """Give the tensors among the arguments of a node a type, but for the first ``skipped``.

    Args:
        graph: Of the node.
        node: What computes.
        dtype: The type.
        skipped: How many arguments stay as they are.
        only: The type of those that are converted; None for any.
    """
    converted = [
        argument if position < skipped else _converted(graph, node, argument, dtype, only)
        for position, argument in enumerate(node.args)
    ]
    if converted != list(node.args):
        node.args = tuple(converted)


def _converted(graph: Any, node: Any, argument: Any, dtype: Any, only: Any) -> Any:
    import torch

    if isinstance(argument, (list, tuple)):
        return type(argument)(_converted(graph, node, it, dtype, only) for it in argument)
    value = getattr(argument, "meta", {}).get("val")
    if not isinstance(value, torch.Tensor) or value.dtype == dtype:
        return argument
    if only is not None and value.dtype != only:
        return argument
    with graph.inserting_before(node):
        copy = graph.call_function(torch.ops.aten._to_copy.default, (argument,), {"dtype": dtype})
    copy.meta["val"] = value.to(dtype)
    return copy
