"""Models of torch that are read, and what they compute beside torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from autotune.ir.element_types import element_type
from autotune.networks.graph import evaluate
from autotune.networks.readers.torch import TorchNetwork, read_torch


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def plain(tensor: torch.Tensor) -> Any:
    """A tensor as programs have it."""
    held = tensor.detach().contiguous()
    if held.dtype == torch.bfloat16:
        return held.view(torch.int16).numpy().view(np.uint16).copy()
    return held.numpy().copy()


def computed(network: TorchNetwork, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """Outputs of a network as numbers; its state is as it was read."""
    given = [*map(plain, tensors), *network.state.values()]
    feeds = {it.name: array for it, array in zip(network.graph.inputs, given, strict=True)}
    found = evaluate(network.graph, feeds)
    dtypes = [it.dtype for it in network.graph.outputs.values()]
    return [
        element_type(dtype).numbers(array)
        for dtype, array in zip(dtypes, found.values(), strict=True)
    ]


def check_read(
    model: nn.Module, inputs: Sequence[Any], rtol: float = 1e-4, atol: float = 1e-5
) -> TorchNetwork:
    """Read a model, and compare what it returns with torch."""
    network = read_torch(model, inputs)
    tensors = [it for it in tree_leaves(tuple(inputs)) if isinstance(it, torch.Tensor)]
    found = computed(network, tensors)[len(network.writes) :]
    with torch.no_grad():
        wanted = [it for it in tree_leaves(model(*inputs)) if isinstance(it, torch.Tensor)]
    values = list(network.graph.outputs.values())[len(network.writes) :]
    for value, got, want in zip(values, found, wanted, strict=True):
        assert (value.dtype, value.shape) == (str(want.dtype)[6:], tuple(want.shape))
        known = element_type(value.dtype).numbers(plain(want))
        np.testing.assert_allclose(got, known, rtol=rtol, atol=atol, err_msg=value.name)
    return network
