"""The operators of `operator_rows.py` in torch: eager, in channels-last layout, and compiled.

Tensors have torch's own layout before a call is timed, and its weights, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from support.operator_rows import IMAGES

EAGER, CHANNELS_LAST, COMPILED = "eager", "channels-last", "compile"

Tensors = Sequence[Any]
# What is timed, what it is called with, and the way from its result to TVM's layout.
Made = tuple[Callable[..., Any], Tensors, Callable[[Any], Any]]


def prepared(kind: str, arguments: Sequence[int], tensors: Tensors, variant: str) -> Made:
    """A function, its arguments, and the way from its result to the layout of TVM's operator.

    Args:
        kind: Of the row.
        arguments: Of the row.
        tensors: Inputs as TVM's operator has them.
        variant: One of those above; what is compiled has images in channels-last layout.
    """
    function, given, finish = _BUILDERS[kind](arguments, tensors)
    given = [tensor.contiguous() for tensor in given]
    if kind in IMAGES and variant != EAGER:
        given = [_channels_last(tensor) for tensor in given]
    return function, given, finish


def _channels_last(tensor: Any) -> Any:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    kept = formats.get(tensor.dim())
    return tensor if kept is None else tensor.contiguous(memory_format=kept)


def _same(result: Any) -> Any:
    return result


def _to_front(tensor: Any) -> Any:
    """NHWC to NCHW, for any number of dimensions of space."""
    return tensor.movedim(-1, 1)


def _to_back(tensor: Any) -> Any:
    return tensor.movedim(1, -1)


def _filters(weights: Any) -> Any:
    """HWIO to OIHW."""
    return weights.movedim((-1, -2), (0, 1))


def _convolution(dimensions: int) -> Callable[[Sequence[int], Tensors], Made]:
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[dimensions - 1]

    def made(arguments: Sequence[int], tensors: Tensors) -> Made:
        stride, pad = arguments[dimensions + 4 : dimensions + 6]
        dilation, groups = (*arguments[dimensions + 6 :], 1, 1)[:2]

        def call(x: Any, weights: Any) -> Any:
            return convolve(x, weights, None, stride, pad, dilation, groups)

        return call, [_to_front(tensors[0]), _filters(tensors[1])], _to_back

    return made


def _conv2d_nchw(arguments: Sequence[int], tensors: Tensors) -> Made:
    stride, pad = arguments[6:]
    return lambda x, w: functional.conv2d(x, w, None, stride, pad), tensors, _same


def _conv2d_bn_relu(arguments: Sequence[int], tensors: Tensors) -> Made:
    stride, pad = arguments[6:]
    x, weights, bias, offset, scale = tensors
    flat = [tensor.flatten() for tensor in (bias, offset, scale)]
    mean, variance = torch.zeros_like(flat[0]), torch.ones_like(flat[0])

    def call(x: Any, weights: Any, bias: Any, offset: Any, scale: Any) -> Any:
        y = functional.conv2d(x, weights, bias, stride, pad)
        return functional.relu(
            functional.batch_norm(y, mean, variance, scale, offset, False, 0.0, 0.0)
        )

    return call, [_to_front(x), _filters(weights), *flat], _to_back


def _depthwise(arguments: Sequence[int], tensors: Tensors) -> Made:
    channels, _, stride, pad = arguments[3:]
    x, weights = tensors

    def call(x: Any, weights: Any) -> Any:
        return functional.conv2d(x, weights, None, stride, pad, 1, channels)

    return call, [_to_front(x), weights.permute(3, 0, 1, 2)], _to_back


def _transposed_conv2d(arguments: Sequence[int], tensors: Tensors) -> Made:
    stride, pad = arguments[6:]

    def call(x: Any, weights: Any) -> Any:
        return functional.conv_transpose2d(x, weights, None, stride, pad)

    return call, [_to_front(tensors[0]), tensors[1].permute(2, 3, 0, 1)], _to_back


def _capsule_conv2d(arguments: Sequence[int], tensors: Tensors) -> Made:
    """Rows of the capsules are images, their columns are channels."""
    stride, pad = arguments[6:]
    x, weights = tensors
    n, h, w, rows, columns, channels = x.shape
    size, _, _, out_columns, _, filters = weights.shape
    images = x.permute(0, 3, 4, 5, 1, 2).reshape(n * rows, columns * channels, h, w)
    kernels = weights.permute(3, 5, 2, 4, 0, 1)
    kernels = kernels.reshape(out_columns * filters, columns * channels, size, size)

    def call(images: Any, kernels: Any) -> Any:
        return functional.conv2d(images, kernels, None, stride, pad)

    def finish(y: Any) -> Any:
        parts = y.reshape(n, rows, out_columns, filters, *y.shape[2:])
        return parts.permute(0, 4, 5, 1, 2, 3)

    return call, [images, kernels], finish


def _transposed_matmul(arguments: Sequence[int], tensors: Tensors) -> Made:
    def call(query: Any, value: Any) -> Any:
        return query.permute(0, 2, 1, 3) @ value.permute(0, 2, 3, 1)

    return call, tensors, _same


def _norm(arguments: Sequence[int], tensors: Tensors) -> Made:
    return lambda x: torch.linalg.vector_norm(x, dim=(1, 2)), tensors, _same


def _layer_norm(arguments: Sequence[int], tensors: Tensors) -> Made:
    width = (arguments[1],)
    return lambda x, g, b: functional.layer_norm(x, width, g, b, 1e-5), tensors, _same


def _rms_norm(arguments: Sequence[int], tensors: Tensors) -> Made:
    width = (arguments[1],)
    return lambda x, g: functional.rms_norm(x, width, g, 1e-5), tensors, _same


def _attention(arguments: Sequence[int], tensors: Tensors) -> Made:
    causal = bool(arguments[3])

    def call(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call, [tensor[None] for tensor in tensors], lambda y: y[0]


def _gelu_mlp(arguments: Sequence[int], tensors: Tensors) -> Made:
    def call(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Any:
        hidden = functional.gelu(functional.linear(x, up, up_bias))
        return functional.linear(hidden, down, down_bias)

    return call, tensors, _same


def _max_pool(arguments: Sequence[int], tensors: Tensors) -> Made:
    window = arguments[4:]
    return lambda x: functional.max_pool2d(x, *window), [_to_front(tensors[0])], _to_back


def _average_pool(arguments: Sequence[int], tensors: Tensors) -> Made:
    window = arguments[4:]
    return lambda x: functional.avg_pool2d(x, *window), [_to_front(tensors[0])], _to_back


def _concat_transpose(arguments: Sequence[int], tensors: Tensors) -> Made:
    return lambda a, b: torch.cat((a, b), 1).t().contiguous(), tensors, _same


def _embedding(arguments: Sequence[int], tensors: Tensors) -> Made:
    return lambda table, indices: functional.embedding(indices, table), tensors, _same


def _resize(arguments: Sequence[int], tensors: Tensors) -> Made:
    def call(x: Any) -> Any:
        return functional.interpolate(x, scale_factor=2, mode="bilinear")

    return call, [_to_front(tensors[0])], _to_back


_BUILDERS: dict[str, Callable[[Sequence[int], Tensors], Made]] = {
    "conv1d": _convolution(1),
    "conv2d": _convolution(2),
    "conv3d": _convolution(3),
    "conv2d_nchw": _conv2d_nchw,
    "conv2d_bn_relu": _conv2d_bn_relu,
    "depthwise": _depthwise,
    "transposed_conv2d": _transposed_conv2d,
    "capsule_conv2d": _capsule_conv2d,
    "batch_matmul": lambda _, tensors: (torch.bmm, tensors, _same),
    "transposed_matmul": _transposed_matmul,
    "norm": _norm,
    "softmax": lambda _, tensors: (lambda x: torch.softmax(x, 1), tensors, _same),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "gelu_mlp": _gelu_mlp,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "argmax": lambda _, tensors: (lambda x: torch.argmax(x, 1), tensors, _same),
    "concat_transpose": _concat_transpose,
    "embedding": _embedding,
    "resize": _resize,
    "gemm_bf16": lambda _, tensors: (torch.matmul, tensors, _same),
    "gemm_int8": lambda _, tensors: (torch._int_mm, tensors, _same),
}
