"""BERT: Devlin et al., "Pre-training of Deep Bidirectional Transformers"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from autotune.errors import InvalidValueError
from autotune.networks.zoo.shared import SelfAttention, check_heads

__all__ = ["Bert"]

_POSITIONS = 512
_SEGMENTS = 2


class _Layer(nn.Module):  # type: ignore[misc]
    """Attention and a perceptron, each normalised after its residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Any) -> Any:
        x = self.attention_norm(x + self.attention(x))
        return self.norm(x + self.perceptron(x))


class Bert(nn.Module):  # type: ignore[misc]
    """Embeddings, encoder layers, and a pooler of the first token."""

    def __init__(
        self, sequence: int, layers: int, width: int, heads: int, vocabulary: int
    ) -> None:
        check_heads(width, heads)
        if sequence > _POSITIONS:
            raise InvalidValueError(f"BERT reads at most {_POSITIONS} tokens, not {sequence}")
        super().__init__()
        self.sequence = sequence
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(_POSITIONS, width)
        self.segments = nn.Embedding(_SEGMENTS, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, tokens: Any) -> Any:
        """``[1, sequence]`` of int64 to ``[1, sequence, width]`` and ``[1, width]``."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        segments = self.segments(torch.zeros_like(tokens))
        x = self.layers(self.norm(self.tokens(tokens) + self.positions(positions) + segments))
        return x, self.pooler(x[:, 0])

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        shape = (1, self.sequence)
        return (torch.randint(self.tokens.num_embeddings, shape, generator=random),)
