"""Decoder layers of Llama: Touvron et al., "Open and Efficient Foundation Language Models".

Rotary positions, root mean square norms, grouped-query attention and a gated perceptron, with the
shapes of Llama 3.2 1B.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from autotune.errors import InvalidValueError
from autotune.networks.zoo.shared import HasOwnTensors, check_heads, merge_heads, split_heads

__all__ = ["LlamaBlock"]

_ROTARY_BASE = 500_000.0


class _RmsNorm(HasOwnTensors):
    """Divides by the root mean square of the last axis; computed in float32 as published."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Any) -> Any:
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * (wide * scale).to(x.dtype)

    def fill(self, random: torch.Generator) -> None:
        self.weight.uniform_(0.8, 1.2, generator=random)


class _Rotary(HasOwnTensors):
    """Cosines and sines ``[1, 1, sequence, depth]`` of the positions' angles."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.register_buffer("frequencies", torch.empty(depth // 2), persistent=False)

    def forward(self, positions: Any) -> tuple[Any, Any]:
        angles = positions[:, None].to(torch.float32) * self.frequencies[None, :]
        doubled = torch.cat((angles, angles), dim=-1)[None, None]
        return doubled.cos(), doubled.sin()

    def fill(self, random: torch.Generator) -> None:
        exponents = torch.arange(0, self.depth, 2, dtype=torch.float32) / self.depth
        self.frequencies.copy_(_ROTARY_BASE**-exponents)


class _Attention(nn.Module):  # type: ignore[misc]
    """Each of ``groups`` heads of keys and values serves ``heads / groups`` heads of queries."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        depth = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * depth, bias=False)
        self.value = nn.Linear(width, groups * depth, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Any, mask: Any, cos: Any, sin: Any) -> Any:
        q = _rotated(split_heads(self.query(x), self.heads), cos, sin)
        k = _rotated(split_heads(self.key(x), self.groups), cos, sin)
        v = split_heads(self.value(x), self.groups)
        copies = self.heads // self.groups
        mixed = functional.scaled_dot_product_attention(
            q, _repeated(k, copies), _repeated(v, copies), attn_mask=mask
        )
        return self.output(merge_heads(mixed))


class _Layer(nn.Module):  # type: ignore[misc]
    """Attention and a gated perceptron, each of normalised inputs."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = _RmsNorm(width)
        self.attention = _Attention(width, heads, groups)
        self.norm = _RmsNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any, mask: Any, cos: Any, sin: Any) -> Any:
        x = x + self.attention(self.attention_norm(x), mask, cos, sin)
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class LlamaBlock(nn.Module):  # type: ignore[misc]
    """Decoder layers and the last norm, on hidden states with a padding mask."""

    def __init__(
        self, sequence: int, layers: int, width: int, heads: int, groups: int, hidden: int
    ) -> None:
        check_heads(width, heads)
        if heads % groups:
            raise InvalidValueError(f"groups {groups} do not divide heads {heads}")
        if width // heads % 2:
            raise InvalidValueError(
                f"rotary positions need heads of even depth; width {width} with {heads} heads "
                f"gives {width // heads}"
            )
        super().__init__()
        self.shape = (1, sequence, width)
        self.rotary = _Rotary(width // heads)
        self.layers = nn.ModuleList(_Layer(width, heads, groups, hidden) for _ in range(layers))
        self.norm = _RmsNorm(width)

    def forward(self, hidden: Any, padding: Any) -> Any:
        """Hidden states ``[1, sequence, width]`` to the same.

        ``padding`` ``[1, sequence]`` of int64 is 1 where there is a token, and 0 after the last.
        """
        positions = torch.arange(hidden.shape[1], device=hidden.device)
        causal = positions[None, :] <= positions[:, None]
        mask = causal[None, None] & (padding != 0)[:, None, None, :]
        cos, sin = (it.to(hidden.dtype) for it in self.rotary(positions))
        for layer in self.layers:
            hidden = layer(hidden, mask, cos, sin)
        return self.norm(hidden)

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        padding = torch.ones(self.shape[:2], dtype=torch.int64)
        return torch.randn(self.shape, generator=random), padding


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _repeated(x: Any, copies: int) -> Any:
    """``[1, groups, sequence, depth]`` with each group ``copies`` times in a row."""
    _, groups, sequence, depth = x.shape
    spread = x[:, :, None].expand(1, groups, copies, sequence, depth)
    return spread.reshape(1, groups * copies, sequence, depth)
