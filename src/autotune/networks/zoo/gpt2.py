"""GPT-2: Radford et al., "Language Models are Unsupervised Multitask Learners"."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from autotune.errors import InvalidValueError
from autotune.networks.zoo.shared import HasOwnTensors, check_heads, merge_heads, split_heads

__all__ = ["Gpt2"]

_POSITIONS = 1024


class _Affine(HasOwnTensors):
    """A linear layer with weights ``[inputs, outputs]``, as published weights are stored."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Any) -> Any:
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], self.weight.shape[1])

    def fill(self, random: torch.Generator) -> None:
        self.weight.normal_(0.0, 1.0 / math.sqrt(self.weight.shape[0]), generator=random)
        self.bias.normal_(0.0, 0.1, generator=random)


class _Layer(nn.Module):  # type: ignore[misc]
    """Causal attention and a perceptron, each of normalised inputs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention = _Affine(width, 3 * width)
        self.projection = _Affine(width, width)
        self.norm = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            _Affine(width, 4 * width), nn.GELU(approximate="tanh"), _Affine(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        qkv = self.attention(self.attention_norm(x)).split(self.width, dim=2)
        q, k, v = (split_heads(part, self.heads) for part in qkv)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(merge_heads(mixed))
        return x + self.perceptron(self.norm(x))


class Gpt2(nn.Module):  # type: ignore[misc]
    """Embeddings, decoder layers, and logits by the token embedding's own weights."""

    def __init__(
        self, sequence: int, layers: int, width: int, heads: int, vocabulary: int
    ) -> None:
        check_heads(width, heads)
        if sequence > _POSITIONS:
            raise InvalidValueError(f"GPT-2 reads at most {_POSITIONS} tokens, not {sequence}")
        super().__init__()
        self.sequence = sequence
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(_POSITIONS, width)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Any) -> Any:
        """``[1, sequence]`` of int64 to logits ``[1, sequence, vocabulary]``."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.norm(self.layers(self.tokens(tokens) + self.positions(positions)))
        return functional.linear(x, self.tokens.weight)

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        shape = (1, self.sequence)
        return (torch.randint(self.tokens.num_embeddings, shape, generator=random),)
