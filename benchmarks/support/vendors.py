"""Operators in numpy and in torch, as somebody who has no tuner would write them.

Nothing of this project is imported here, and torch only where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Workloads that numpy has, but for loops in Python.
IN_NUMPY = ("gemm", "batch_matmul", "softmax", "elementwise")
IN_TORCH = (*IN_NUMPY, "conv2d", "depthwise_conv2d")


def numpy_call(
    name: str, inputs: Sequence[Any], shape: tuple[int, ...], dtype: str
) -> Callable[[], object]:
    """A workload as numpy calls that write into arrays allocated beforehand.

    Args:
        name: One of :data:`IN_NUMPY`.
        inputs: The workload's input arrays.
        shape: Shape of its output.
        dtype: Type of its output.
    """
    output = np.empty(shape, dtype)
    if name == "softmax":
        return lambda: _numpy_softmax(inputs[0], output)
    if name == "elementwise":
        return lambda: _numpy_elementwise(inputs[0], inputs[1], output)
    return lambda: np.matmul(inputs[0], inputs[1], out=output)


def _numpy_softmax(x: Any, output: Any) -> None:
    np.subtract(x, x.max(axis=1, keepdims=True), out=output)
    np.exp(output, out=output)
    output /= output.sum(axis=1, keepdims=True)


def _numpy_elementwise(x: Any, z: Any, output: Any) -> None:
    np.multiply(x, z, out=output)
    output += x
    np.maximum(output, 0, out=output)
    output *= 0.5


def torch_call(name: str, parameters: Mapping[str, int]) -> Callable[[], object]:
    """A workload as torch calls on tensors of random numbers, on the threads that torch has.

    Args:
        name: One of :data:`IN_TORCH`.
        parameters: The workload's parameters, defaults included.
    """
    import torch

    p = parameters
    if name in ("conv2d", "depthwise_conv2d"):
        return _torch_convolution(p, name == "depthwise_conv2d")
    if name == "softmax":
        x = torch.rand(p["m"], p["n"])
        return lambda: torch.softmax(x, 1)
    if name == "elementwise":
        x, z = torch.rand(p["m"], p["n"]), torch.rand(p["m"], p["n"])
        return lambda: torch.addcmul(x, x, z).relu_().mul_(0.5)
    batch = (p["b"],) if name == "batch_matmul" else ()
    left, right = torch.rand(*batch, p["m"], p["k"]), torch.rand(*batch, p["k"], p["n"])
    output = torch.empty(*batch, p["m"], p["n"])
    return lambda: torch.matmul(left, right, out=output)


def _torch_convolution(p: Mapping[str, int], depthwise: bool) -> Callable[[], object]:
    import torch

    channels, filters, groups = (p["c"], p["c"], p["c"]) if depthwise else (p["ci"], p["co"], 1)
    last = torch.channels_last
    data = torch.rand(p["n"], channels, p["h"], p["w"]).to(memory_format=last)
    weights = torch.rand(filters, channels // groups, p["kh"], p["kw"]).to(memory_format=last)
    bias = torch.rand(filters) if p.get("bias") else None
    options = {"stride": p["stride"], "padding": p["pad"], "dilation": p["dilation"]}

    def call() -> object:
        result = torch.nn.functional.conv2d(data, weights, bias, groups=groups, **options)
        return torch.relu_(result) if p.get("relu") else result

    return call


def torch_bytes_call(
    name: str, parameters: Mapping[str, int], engine: str
) -> Callable[[], object]:
    """int8 matmul in torch: with int32 accumulation, or by a quantised layer.

    Args:
        name: ``gemm`` or ``conv2d``.
        parameters: The workload's parameters, defaults included; those with ``requantize`` ask
            for bytes.
        engine: Torch's name of the library that computes layers; its weights are packed before.
    """
    import torch
    from torch.ao.nn import quantized

    p = parameters
    torch.backends.quantized.engine = engine
    if not p.get("requantize"):
        left = torch.randint(-128, 128, (p["m"], p["k"]), dtype=torch.int8)
        right = torch.randint(-128, 128, (p["k"], p["n"]), dtype=torch.int8)
        return lambda: torch._int_mm(left, right)
    if name == "gemm":
        layer = quantized.Linear(p["k"], p["n"])
        shape: tuple[int, ...] = (p["m"], p["k"])
        weights = torch.randn(p["n"], p["k"])
    else:
        kernel, last = (p["kh"], p["kw"]), torch.channels_last
        layer = quantized.Conv2d(
            p["ci"], p["co"], kernel, stride=p["stride"], padding=p["pad"], dilation=p["dilation"]
        )
        shape = (p["n"], p["ci"], p["h"], p["w"])
        weights = torch.randn(p["co"], p["ci"], *kernel)
    layer.set_weight_bias(torch.quantize_per_tensor(weights, 0.02, 0, torch.qint8), None)
    # A zero point of 0 makes the quantised layer clip what is negative, too.
    layer.scale, layer.zero_point = 0.1, 0
    data = torch.quantize_per_tensor(torch.rand(shape) * 10, 0.04, 0, torch.quint8)
    if name != "gemm":
        data = data.contiguous(memory_format=last)
    return lambda: layer(data)
