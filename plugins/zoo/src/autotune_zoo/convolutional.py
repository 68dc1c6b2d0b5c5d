"""Networks of convolutions: residual ones in 2-D and 3-D, depthwise ones, transposed ones.

ResNet-50: He et al., "Deep Residual Learning for Image Recognition", with the stride in the 3 x 3
convolution as in torchvision. R3D-18: Tran et al., "A Closer Look at Spatiotemporal Convolutions".
MobileNet-V2: Sandler et al., "Inverted Residuals and Linear Bottlenecks". DCGAN's generator:
Radford et al., "Unsupervised Representation Learning with Deep Convolutional Generative
Adversarial Networks", with the sizes of PyTorch's example.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from autotune_zoo.building import RESIDUAL_GAIN, with_gain

__all__ = ["R3D18", "DcganGenerator", "MobileNetV2", "ResNet50"]


class _Block(nn.Module):  # type: ignore[misc]
    """A branch of convolutions around a shortcut, which changes the shape where they do."""

    def __init__(self, branch: list[Any], shortcut: list[Any]) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)
        self.shortcut = nn.Sequential(*shortcut)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        return self.relu(self.branch(x) + self.shortcut(x))


def _bottleneck(inputs: int, width: int, stride: int) -> _Block:
    """1 x 1, 3 x 3 and 1 x 1 convolutions, to four times the width."""
    outputs = 4 * width
    branch = [
        *_normed(nn.Conv2d(inputs, width, 1, bias=False)),
        nn.ReLU(inplace=True),
        *_normed(nn.Conv2d(width, width, 3, stride, 1, bias=False)),
        nn.ReLU(inplace=True),
        *_normed(nn.Conv2d(width, outputs, 1, bias=False), RESIDUAL_GAIN),
    ]
    changes = stride > 1 or inputs != outputs
    projection = _normed(nn.Conv2d(inputs, outputs, 1, stride, bias=False)) if changes else []
    return _Block(branch, projection)


def _basic_3d(inputs: int, outputs: int, stride: int) -> _Block:
    """Two 3 x 3 x 3 convolutions."""
    branch = [
        *_normed(nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)),
        nn.ReLU(inplace=True),
        *_normed(nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False), RESIDUAL_GAIN),
    ]
    changes = stride > 1 or inputs != outputs
    projection = _normed(nn.Conv3d(inputs, outputs, 1, stride, bias=False)) if changes else []
    return _Block(branch, projection)


class ResNet50(nn.Module):  # type: ignore[misc]
    """Four stages of 3, 4, 6 and 3 bottlenecks, each at most ``blocks``."""

    def __init__(self, image: int, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.shape = (1, 3, image, image)
        self.stem = nn.Sequential(
            *_normed(nn.Conv2d(3, width, 7, 2, 3, bias=False)),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.stages = nn.Sequential()
        inputs = width
        for stage, published in enumerate((3, 4, 6, 3)):
            inner = width << stage
            for index in range(min(published, blocks)):
                stride = 2 if stage > 0 and index == 0 else 1
                self.stages.append(_bottleneck(inputs, inner, stride))
                inputs = 4 * inner
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, image: Any) -> Any:
        """``[1, 3, image, image]`` to ``[1, classes]``."""
        return self.classifier(torch.flatten(self.pool(self.stages(self.stem(image))), 1))

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(self.shape, generator=random),)


class R3D18(nn.Module):  # type: ignore[misc]
    """Four stages of two basic blocks, each at most ``blocks``."""

    def __init__(self, frames: int, image: int, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.shape = (1, 3, frames, image, image)
        self.stem = nn.Sequential(
            *_normed(nn.Conv3d(3, width, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)),
            nn.ReLU(inplace=True),
        )
        self.stages = nn.Sequential()
        inputs = width
        for stage in range(4):
            outputs = width << stage
            for index in range(min(2, blocks)):
                stride = 2 if stage > 0 and index == 0 else 1
                self.stages.append(_basic_3d(inputs, outputs, stride))
                inputs = outputs
        self.pool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, video: Any) -> Any:
        """``[1, 3, frames, image, image]`` to ``[1, classes]``."""
        return self.classifier(torch.flatten(self.pool(self.stages(self.stem(video))), 1))

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn(self.shape, generator=random),)


def _normed(convolution: Any, gain: float = 1.0) -> list[Any]:
    """The convolution and the batch norm of its outputs."""
    norm = nn.BatchNorm3d if isinstance(convolution, nn.Conv3d) else nn.BatchNorm2d
    return [convolution, with_gain(norm(convolution.out_channels), gain)]


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


_IMAGE_CHANNELS = 3


class DcganGenerator(nn.Module):  # type: ignore[misc]
    """Five transposed convolutions from noise to an image of 64 x 64 points."""

    def __init__(self, noise: int, width: int) -> None:
        super().__init__()
        self.noise = noise
        self.layers = nn.Sequential()
        inputs = noise
        for multiple in (8, 4, 2, 1):
            outputs = multiple * width
            stride, padding = (1, 0) if multiple == 8 else (2, 1)
            self.layers.append(nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False))
            self.layers.append(nn.BatchNorm2d(outputs))
            self.layers.append(nn.ReLU(inplace=True))
            inputs = outputs
        self.layers.append(nn.ConvTranspose2d(inputs, _IMAGE_CHANNELS, 4, 2, 1, bias=False))
        self.layers.append(nn.Tanh())

    def forward(self, noise: Any) -> Any:
        """``[1, noise, 1, 1]`` to ``[1, 3, 64, 64]`` within -1 and 1."""
        return self.layers(noise)

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn((1, self.noise, 1, 1), generator=random),)
