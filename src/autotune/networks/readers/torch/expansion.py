"""Operators that torch itself says in terms of others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from autotune.errors import UnsupportedWorkload, one_line
from autotune.networks.readers.torch.operators import OPERATORS

__all__ = ["expanded"]


@cache
def _decompositions() -> Mapping[Any, Any]:
    """Decompositions of torch for operators that are not read as they are."""
    return {
        target: rule
        for target, rule in torch._decomp.decomposition_table.items()
        if isinstance(target, OpOverload) and target._schema.name.split("::")[-1] not in OPERATORS
    }


def expanded(target: Any, args: Any, kwargs: Any) -> GraphModule:
    """The graph of a call; its inputs are the tensors among the arguments, in order.

    Args:
        target: The operator.
        args: Its arguments, with tensors as torch traces with them.
        kwargs: Those by name.

    Raises:
        UnsupportedWorkload: torch has nothing to say of it.
    """
    leaves, form = tree_flatten((list(args), dict(kwargs)))
    places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        given = list(leaves)
        for at, tensor in zip(places, tensors, strict=True):
            given[at] = tensor
        called, named = tree_unflatten(given, form)
        return target(*called, **named)

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fakes = [
            torch.empty_strided(it.shape, it.stride(), dtype=it.dtype)
            for it in (leaves[at] for at in places)
        ]
    try:
        with torch.no_grad():
            found = make_fx(
                torch.func.functionalize(call), dict(_decompositions()), tracing_mode="fake"
            )(*fakes)
    except Exception as error:  # whatever torch meets
        raise UnsupportedWorkload(
            f"the operator is not supported ({one_line(str(error))})"
        ) from error
    calls = [node for node in found.graph.nodes if node.op == "call_function"]
    if any(node.target is target for node in calls):
        raise UnsupportedWorkload("the operator is not supported")
    return found
