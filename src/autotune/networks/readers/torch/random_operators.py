"""Operators that draw random numbers, by what torch says of them."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

__all__ = ["draws"]

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


def _arguments_of(node: Any) -> dict[str, Any]:
    """What a call is given by name, with what its operator's schema says where nothing is."""
    assert isinstance(node.target, OpOverload)
    wanted = node.target._schema.arguments
    found = {it.name: it.default_value for it in wanted if it.has_default_value()}
    found |= {it.name: value for it, value in zip(wanted, node.args, strict=False)}
    return found | dict(node.kwargs)
