"""Blocks that several networks are made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from autotune.errors import InvalidValueError

__all__ = [
    "RESIDUAL_GAIN",
    "HasOwnTensors",
    "SelfAttention",
    "check_heads",
    "merge_heads",
    "split_heads",
    "with_gain",
]

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
