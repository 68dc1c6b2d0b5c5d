"""Operators of torch that draw random numbers, or that compute something else in training.

What they are is read from the operators themselves: the tag that torch gives to all that use a
generator, and the arguments of their schemas that turn this off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["arguments_of", "described", "draws", "first_drawing", "first_in_training"]

_IN_TRAINING = ("train", "training")
_PROBABILITIES = ("dropout_p", "dropout")


def arguments_of(node: Any) -> dict[str, Any]:
    """What a call is given by name, with what its operator's schema says where nothing is."""
    wanted = node.target._schema.arguments
    found = {it.name: it.default_value for it in wanted if it.has_default_value()}
    found |= {it.name: value for it, value in zip(wanted, node.args, strict=False)}
    return found | dict(node.kwargs)


def draws(node: Any) -> bool:
    """Whether a call of an operator draws random numbers.

    Operators that do are tagged as such by torch, those of third parties too. Some draw only in
    training, or where something is dropped.
    """
    if node.op != "call_function":
        return False
    if not _is_operator(node.target):
        # An operator of operators, such as one that keeps the state of a generator.
        return any(_is_operator(it) and _is_tagged(it) for it in node.args)
    if not _is_tagged(node.target):
        return False
    given = arguments_of(node)
    if any(given.get(name) is False for name in _IN_TRAINING):
        return False
    never = [given[name] == 0 for name in _PROBABILITIES if given.get(name) is not None]
    return not (never and all(never))


def first_drawing(module: Any) -> Any:
    """The first node of a graph, or of one inside it, that draws random numbers; else None."""
    return next(filter(draws, _nodes(module)), None)


def first_in_training(module: Any) -> Any:
    """The first node of a decomposed graph that computes something else in training; else None.

    The one that is left as it is has no running statistics: it is computed by those of the batch.
    """
    import torch

    known = torch.ops.aten._native_batch_norm_legit.no_stats
    for node in _nodes(module):
        if node.op == "call_function" and _is_operator(node.target) and node.target != known:
            given = arguments_of(node)
            if any(given.get(name) for name in _IN_TRAINING):
                return node
    return None


def described(node: Any) -> str:
    """A node's name, operator, and the module that it is in."""
    operator = getattr(node.target, "__name__", node.target)
    stack = node.meta.get("nn_module_stack") or {}
    path = [path for path, _ in stack.values() if path][-1:]
    inside = f" in {path[0]!r}" if path else ""
    return f"{node.name!r} ({operator}{inside})"


def _nodes(module: Any) -> Iterator[Any]:
    from torch.fx import GraphModule

    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes


def _is_operator(target: Any) -> bool:
    from torch._ops import OpOverload

    return isinstance(target, OpOverload)


def _is_tagged(operator: Any) -> bool:
    import torch

    return torch.Tag.nondeterministic_seeded in operator.tags
