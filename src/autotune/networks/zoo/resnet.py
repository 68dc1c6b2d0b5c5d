"""Residual networks of 2-D and 3-D convolutions.

ResNet-50: He et al., "Deep Residual Learning for Image Recognition", with the stride in the 3 x 3
convolution as in torchvision. R3D-18: Tran et al., "A Closer Look at Spatiotemporal Convolutions".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from autotune.networks.zoo.shared import RESIDUAL_GAIN, with_gain

__all__ = ["R3D18", "ResNet50"]


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
