"""Transformers: encoders and decoders of text, and one of images.

BERT: Devlin et al., "Pre-training of Deep Bidirectional Transformers". GPT-2: Radford et al.,
"Language Models are Unsupervised Multitask Learners". Llama: Touvron et al., "Open and Efficient
Foundation Language Models": rotary positions, root mean square norms, grouped-query attention and
a gated perceptron, with the shapes of Llama 3.2 1B. ViT-B/16: Dosovitskiy et al., "An Image is
Worth 16x16 Words".
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from autotune.errors import InvalidValueError
from autotune_zoo.building import (
    HasOwnTensors,
    SelfAttention,
    check_heads,
    merge_heads,
    split_heads,
)

__all__ = ["Bert", "Gpt2", "LlamaBlock", "VisionTransformer"]

_GPT2_POSITIONS = 1024


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


class _Gpt2Layer(nn.Module):  # type: ignore[misc]
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
        if sequence > _GPT2_POSITIONS:
            raise InvalidValueError(
                f"GPT-2 reads at most {_GPT2_POSITIONS} tokens, not {sequence}"
            )
        super().__init__()
        self.sequence = sequence
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(_GPT2_POSITIONS, width)
        self.layers = nn.Sequential(*(_Gpt2Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Any) -> Any:
        """``[1, sequence]`` of int64 to logits ``[1, sequence, vocabulary]``."""
        positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.norm(self.layers(self.tokens(tokens) + self.positions(positions)))
        return functional.linear(x, self.tokens.weight)

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        shape = (1, self.sequence)
        return (torch.randint(self.tokens.num_embeddings, shape, generator=random),)


_BERT_POSITIONS = 512
_SEGMENTS = 2


class _BertLayer(nn.Module):  # type: ignore[misc]
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
        if sequence > _BERT_POSITIONS:
            raise InvalidValueError(f"BERT reads at most {_BERT_POSITIONS} tokens, not {sequence}")
        super().__init__()
        self.sequence = sequence
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(_BERT_POSITIONS, width)
        self.segments = nn.Embedding(_SEGMENTS, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.Sequential(*(_BertLayer(width, heads) for _ in range(layers)))
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


class _LlamaAttention(nn.Module):  # type: ignore[misc]
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


class _LlamaLayer(nn.Module):  # type: ignore[misc]
    """Attention and a gated perceptron, each of normalised inputs."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = _RmsNorm(width)
        self.attention = _LlamaAttention(width, heads, groups)
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
        self.layers = nn.ModuleList(
            _LlamaLayer(width, heads, groups, hidden) for _ in range(layers)
        )
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


_PATCH = 16


class _VitLayer(nn.Module):  # type: ignore[misc]
    """Attention and a perceptron, each of normalised inputs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = SelfAttention(width, heads)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.attention_norm(x))
        return x + self.perceptron(self.norm(x))


class VisionTransformer(HasOwnTensors):
    """Patches of 16 x 16 points and a class token through encoder layers."""

    def __init__(self, image: int, layers: int, width: int, heads: int, classes: int) -> None:
        check_heads(width, heads)
        if image % _PATCH:
            nearest = max(1, round(image / _PATCH)) * _PATCH
            raise InvalidValueError(
                f"image {image} is not a multiple of the patch {_PATCH}; the nearest is {nearest}"
            )
        super().__init__()
        self.shape = (1, 3, image, image)
        patches = (image // _PATCH) ** 2
        self.patches = nn.Conv2d(3, width, _PATCH, _PATCH)
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, patches + 1, width))
        self.layers = nn.Sequential(*(_VitLayer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.classifier = nn.Linear(width, classes)

    def forward(self, image: Any) -> Any:
        """``[1, 3, image, image]`` to ``[1, classes]``."""
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token, patches), dim=1) + self.positions
        return self.classifier(self.norm(self.layers(x))[:, 0])

    def fill(self, random: torch.Generator) -> None:
        self.class_token.normal_(generator=random)
        self.positions.normal_(generator=random)

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(self.shape, generator=random),)
