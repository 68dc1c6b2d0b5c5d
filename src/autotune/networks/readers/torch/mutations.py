"""Programs that can be read as they are.

An operator that writes into what another has just computed, and that nobody has seen through a
view, is one that computes something new. All else is left to torch, which takes as long as
exporting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node

__all__ = ["is_plain", "writes"]

# Operators made of others that return no operand, and no view of one.
_FRESH: frozenset[str] = frozenset(
    {
        *("batch_norm", "einsum", "embedding_bag", "group_norm", "instance_norm", "layer_norm"),
        *("linear", "log_softmax", "matmul", "scaled_dot_product_attention", "silu", "softmax"),
        *(f"conv{at}d" for at in (1, 2, 3)),
        *(f"conv_transpose{at}d" for at in (1, 2, 3)),
        *(f"max_pool{at}d" for at in (1, 2, 3)),
        *(f"adaptive_avg_pool{at}d" for at in (1, 2, 3)),
    }
)


def is_plain(module: GraphModule) -> bool:
    """Tell if what a module writes can be read as new values, and shapes and types as they are."""
    graphs = [it.graph for it in module.modules() if isinstance(it, GraphModule)]
    nodes = [node for graph in graphs for node in graph.nodes]
    if any(map(_updates_statistics, nodes)) or any(map(_transforms, nodes)):
        return False
    if any(map(_casts, nodes)):
        return False
    written = [node for node in nodes if writes(node)]
    if len(graphs) > 1 and written:
        return False
    order = {node: at for at, node in enumerate(nodes)}
    return all(_is_local(node, order) for node in written)


def writes(node: Node) -> bool:
    """Tell if a node writes into an operand."""
    return _any_argument(node, lambda it: it.alias_info is not None and it.alias_info.is_write)


def _any_argument(node: Node, test: Callable[[Any], bool]) -> bool:
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    return any(map(test, target._schema.arguments))


def _is_local(node: Node, order: Mapping[Node, int]) -> bool:
    """Tell if a node writes into its first operand only, which is another's own result."""
    target: Any = node.target
    written = [
        at
        for at, it in enumerate(target._schema.arguments)
        if it.alias_info is not None and it.alias_info.is_write
    ]
    if written != [0]:
        return False
    first = node.args[0] if node.args else None
    if not isinstance(first, Node) or not _has_own_type(node, first):
        return False
    same = {node}
    while writes(first):
        same.add(first)
        below = first.args[0]
        if not isinstance(below, Node):
            return False
        first = below
    same.add(first)
    return _is_fresh(first) and not _is_seen(same, node, order)


def _updates_statistics(node: Node) -> bool:
    """Tell if a node is a norm that keeps statistics, which its schema does not say."""
    name = getattr(node.target, "__name__", "").split(".")[0]
    if node.op != "call_function" or name not in ("batch_norm", "instance_norm"):
        return False
    return node.args[3] is not None and bool(node.args[5])


def _transforms(node: Node) -> bool:
    """Tell if a node is of ``vmap`` or of a derivative, whose values hide an axis."""
    return getattr(node.target, "__module__", "") == "torch._functorch.predispatch"


def _casts(node: Node) -> bool:
    """Tell if a node is a region of autocast, where operators have operands of other types.

    Torch's own rules say of which ones: taken apart, a program has these casts as its nodes.
    """
    return getattr(node.target, "__name__", "") == "wrap_with_autocast" and bool(node.args[2])


def _has_own_type(node: Node, operand: Node) -> bool:
    """Tell if a result has the shape and type of the operand that it is written into."""
    new, old = node.meta.get("val"), operand.meta.get("val")
    both = isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor)
    return both and (new.shape, new.dtype) == (old.shape, old.dtype)


def _is_fresh(node: Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if any(
        it.alias_info is not None for it in (*target._schema.arguments, *target._schema.returns)
    ):
        return False
    name = target._schema.name.split("::")[-1]
    return name in _FRESH or not target._can_decompose()


def _is_seen(same: set[Node], writer: Node, order: Mapping[Node, int]) -> bool:
    """Tell if something that may be a view of an operand is made before it is written."""
    return any(
        order[user] < order[writer] and user not in same and not _is_fresh(user)
        for node in same
        for user in node.users
    )
