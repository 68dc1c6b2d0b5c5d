"""ViT-B/16: Dosovitskiy et al., "An Image is Worth 16x16 Words"."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from autotune.errors import InvalidValueError
from autotune.networks.zoo.shared import HasOwnTensors, SelfAttention, check_heads

__all__ = ["VisionTransformer"]

_PATCH = 16


class _Layer(nn.Module):  # type: ignore[misc]
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
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
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
