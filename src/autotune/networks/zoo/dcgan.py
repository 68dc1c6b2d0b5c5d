"""DCGAN's generator: Radford et al., "Unsupervised Representation Learning with Deep
Convolutional Generative Adversarial Networks", with the sizes of PyTorch's example."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["DcganGenerator"]

_CHANNELS = 3


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
        self.layers.append(nn.ConvTranspose2d(inputs, _CHANNELS, 4, 2, 1, bias=False))
        self.layers.append(nn.Tanh())

    def forward(self, noise: Any) -> Any:
        """``[1, noise, 1, 1]`` to ``[1, 3, 64, 64]`` within -1 and 1."""
        return self.layers(noise)

    def example_inputs(self, random: torch.Generator) -> tuple[torch.Tensor, ...]:
        return (torch.randn((1, self.noise, 1, 1), generator=random),)
