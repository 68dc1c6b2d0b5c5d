"""Makes a network from its class: shapes first, then random weights from a seed.

Weights keep activations near unit variance from layer to layer, so that outputs of two runtimes
can be compared. Statistics of batch norms differ from 0 and 1: a pass that folds them wrongly
must show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, cast

import torch
from torch import nn

from autotune.errors import InvalidValueError
from autotune.networks.zoo.shared import HasOwnTensors

__all__ = ["ZooNetwork", "build", "outline"]


class ZooNetwork(Protocol):
    """Parts of a network's class besides being a ``torch.nn.Module``."""

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor: ...

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        """Inputs of batch 1, on the CPU."""
        ...


def outline(kind: type[Any], sizes: Mapping[str, int]) -> Any:
    """The network without memory for its weights, on torch's device ``meta``.

    Raises:
        InvalidValueError: A size does not fit the others.
    """
    with torch.device("meta"):
        return kind(**sizes).eval()


def build(
    kind: type[Any], sizes: Mapping[str, int], seed: int
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """The network with weights, in evaluation mode, and example inputs.

    Raises:
        InvalidValueError: A size does not fit the others, or the seed is negative.
    """
    if seed < 0:
        raise InvalidValueError(f"a seed is not negative; {seed} is")
    random = torch.Generator().manual_seed(seed)
    module = outline(kind, sizes).to_empty(device="cpu")
    with torch.no_grad():
        for part in module.modules():
            _fill(part, random)
    for weight in module.parameters():
        weight.requires_grad_(False)
    return module, cast(ZooNetwork, module).example_inputs(random)


def _fill(part: nn.Module, random: torch.Generator) -> None:
    """Gives the tensors that belong to ``part`` itself their values."""
    if isinstance(part, HasOwnTensors):
        part.fill(random)
    elif isinstance(part, nn.Conv2d | nn.Conv3d | nn.Linear):
        inputs = part.weight[0].numel()
        gain = 1.0 if isinstance(part, nn.Linear) else math.sqrt(2.0)
        part.weight.normal_(0.0, gain / math.sqrt(inputs), generator=random)
        _small(part.bias, random)
    elif isinstance(part, nn.ConvTranspose2d):
        # Each output point sums over the kernel's points that the stride leaves to it.
        taps = math.prod(part.kernel_size) / math.prod(part.stride)
        inputs = part.in_channels * max(1.0, taps)
        part.weight.normal_(0.0, math.sqrt(2.0 / inputs), generator=random)
        _small(part.bias, random)
    elif isinstance(part, nn.BatchNorm2d | nn.BatchNorm3d):
        gain = getattr(part, "gain", 1.0)
        part.weight.uniform_(0.8 * gain, 1.2 * gain, generator=random)
        _small(part.bias, random)
        _small(part.running_mean, random)
        cast(torch.Tensor, part.running_var).uniform_(0.8, 1.2, generator=random)
        cast(torch.Tensor, part.num_batches_tracked).zero_()
    elif isinstance(part, nn.LayerNorm):
        part.weight.uniform_(0.8, 1.2, generator=random)
        _small(part.bias, random)
    elif isinstance(part, nn.Embedding):
        part.weight.normal_(0.0, 1.0 / math.sqrt(part.embedding_dim), generator=random)
    elif any(True for _ in part.parameters(recurse=False)) or any(
        True for _ in part.buffers(recurse=False)
    ):
        raise TypeError(f"nothing gives the tensors of {type(part).__name__} their values")


def _small(tensor: torch.Tensor | None, random: torch.Generator) -> None:
    if tensor is not None:
        tensor.normal_(0.0, 0.1, generator=random)
