"""Building a network from its class, shapes first, then random weights; blocks of several.

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
from torch.nn import functional

from autotune.errors import InvalidValueError

__all__ = [
    "HasOwnTensors",
    "RESIDUAL_GAIN",
    "SelfAttention",
    "ZooNetwork",
    "build",
    "check_heads",
    "merge_heads",
    "outline",
    "split_heads",
    "with_gain",
]


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


# Of a residual branch's last norm: a stack of blocks keeps about the variance of its inputs.
RESIDUAL_GAIN = 0.25


class HasOwnTensors(nn.Module):  # type: ignore[misc]
    """A module with parameters or buffers of its own besides those of the modules in it."""

    def fill(self, random: torch.Generator) -> None:
        """Gives them their values."""
        raise NotImplementedError


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Multi-head self-attention with one projection each for queries, keys and values.

    Args:
        width: Columns of the input and of the output.
        heads: Number of heads, a divisor of the width.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        """``[1, sequence, width]`` to the same."""
        q, k, v = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.output(merge_heads(mixed))


def with_gain(norm: Any, gain: float) -> Any:
    """The norm, with random weights about ``gain`` instead of 1."""
    norm.gain = gain
    return norm


def split_heads(x: Any, heads: int) -> Any:
    """``[1, sequence, heads * depth]`` to ``[1, heads, sequence, depth]``."""
    return x.view(1, x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def merge_heads(x: Any) -> Any:
    """``[1, heads, sequence, depth]`` to ``[1, sequence, heads * depth]``."""
    return x.transpose(1, 2).reshape(1, x.shape[2], x.shape[1] * x.shape[3])


def check_heads(width: int, heads: int) -> None:
    """Raises:
    InvalidValueError: The width is not a multiple of the number of heads.
    """
    if width % heads:
        nearest = max(1, round(width / heads)) * heads
        raise InvalidValueError(
            f"width {width} is not a multiple of heads {heads}; the nearest is {nearest}"
        )
