"""Operators that draw random numbers, by what torch says of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule

__all__ = ["draws", "first_drawing"]

_IN_TRAINING = ("train", "training")
_PROBABILITIES = ("dropout_p", "dropout", "p")


def draws(node: Any) -> bool:
    """Tell if a call of an operator draws random numbers.

    Operators that do are tagged as such by torch, those of third parties too. Some draw only in
    training, or where something is dropped.
    """
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    given = _arguments_of(node)
    if any(given.get(name) is False for name in _IN_TRAINING):
        return False
    never = [given[name] == 0 for name in _PROBABILITIES if given.get(name) is not None]
    return not (never and all(never))


def first_drawing(module: GraphModule) -> Any:
    """The first node of a graph, or of one inside it, that draws random numbers; else None."""
    return next(filter(_draws_anywhere, _calls(module)), None)


def _draws_anywhere(node: Any) -> bool:
    if isinstance(node.target, OpOverload):
        return draws(node)
    # An operator of operators, such as one that keeps the state of a generator.
    tag = torch.Tag.nondeterministic_seeded
    return any(isinstance(it, OpOverload) and tag in it.tags for it in node.args)


def _calls(module: GraphModule) -> Iterator[Any]:
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from (node for node in part.graph.nodes if node.op == "call_function")


def _arguments_of(node: Any) -> dict[str, Any]:
    """Arguments of a call by name, with its operator's defaults where nothing is given."""
    assert isinstance(node.target, OpOverload)
    wanted = node.target._schema.arguments
    found = {it.name: it.default_value for it in wanted if it.has_default_value()}
    found |= {it.name: value for it, value in zip(wanted, node.args, strict=False)}
    return found | dict(node.kwargs)
