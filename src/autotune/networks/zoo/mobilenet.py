"""MobileNet-V2: Sandler et al., "Inverted Residuals and Linear Bottlenecks"."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from autotune.networks.zoo.shared import RESIDUAL_GAIN, with_gain

__all__ = ["MobileNetV2"]

# Expansion, channels, blocks and stride of each stage: table 2 of the paper.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class _InvertedResidual(nn.Module):  # type: ignore[misc]
    """Expands by a 1 x 1 convolution, filters depthwise, and projects without an activation."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        # Without an activation in between, the next expansion would double the variance.
        gain = RESIDUAL_GAIN if self.residual else math.sqrt(0.5)
        expand = _convolution(inputs, inner, 1) if expansion > 1 else []
        self.branch = nn.Sequential(
            *expand,
            *_convolution(inner, inner, 3, stride, inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            with_gain(nn.BatchNorm2d(outputs), gain),
        )

    def forward(self, x: Any) -> Any:
        return x + self.branch(x) if self.residual else self.branch(x)


class MobileNetV2(nn.Module):  # type: ignore[misc]
    """Seven stages of inverted residuals, each of at most ``blocks``."""

    def __init__(self, image: int, width_percent: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.shape = (1, 3, image, image)
        inputs = _scaled(32, width_percent)
        self.features = nn.Sequential(*_convolution(3, inputs, 3, 2))
        for expansion, channels, published, stride in _STAGES:
            outputs = _scaled(channels, width_percent)
            for index in range(min(published, blocks)):
                step = stride if index == 0 else 1
                self.features.append(_InvertedResidual(inputs, outputs, expansion, step))
                inputs = outputs
        last = _scaled(1280, max(100, width_percent))
        self.features.extend(_convolution(inputs, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, image: Any) -> Any:
        """``[1, 3, image, image]`` to ``[1, classes]``."""
        pooled = nn.functional.adaptive_avg_pool2d(self.features(image), (1, 1))
        return self.classifier(torch.flatten(pooled, 1))

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(self.shape, generator=random),)


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[Any]:
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    ]


def _scaled(channels: int, percent: int) -> int:
    """``channels`` times ``percent``, a multiple of 8 not less than 90 % of that."""
    exact = channels * percent / 100
    rounded = max(8, int(exact + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * exact else rounded
