"""A network as a custom operator of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from autotune.networks.library.loaded import LoadedNetwork

__all__ = ["torch_operator"]


def torch_operator(network: LoadedNetwork, name: str) -> Callable[..., Any]:
    """Register a network as a custom operator; as :meth:`LoadedNetwork.as_torch_operator`.

    Args:
        network: One without a state, of which torch would know nothing when it moves calls.
        name: With a namespace.
    """
    given = ", ".join(f"Tensor input{at}" for at in range(len(network.inputs)))
    several = len(network.outputs) > 1
    returned = ", ".join(["Tensor"] * len(network.outputs))
    schema = f"({given}) -> {f'({returned})' if several else returned}"

    def handed(found: tuple[Any, ...]) -> Any:
        return found if several else found[0]

    def run(*tensors: torch.Tensor) -> Any:
        found = network(*tensors)
        # A network without inputs returns arrays.
        return handed(tuple(map(torch.as_tensor, found)))

    def shaped(*tensors: torch.Tensor) -> Any:
        kinds = [getattr(torch, it.dtype) for it in network.outputs]
        return handed(
            tuple(
                torch.empty(it.shape, dtype=kind, device="cpu")
                for it, kind in zip(network.outputs, kinds, strict=True)
            )
        )

    operator: Any = torch.library.custom_op(
        name, run, mutates_args=(), device_types="cpu", schema=schema
    )
    operator.register_fake(shaped)
    registered: Callable[..., Any] = operator
    return registered
