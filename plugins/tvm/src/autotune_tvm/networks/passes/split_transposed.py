"""Transposed convolutions as convolutions.

A transposed convolution of stride s reads an input with s - 1 zeros between its elements: of the
products, all but one in s (along each axis) are with zeros. Each of the s phases of the output is
a convolution of the input itself with every s-th element of the weights; the phases are further
output channels of one convolution, and are put in their places afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import frozen
from tvm import relax
from tvm.ir import IRModule

from autotune_tvm.networks.graph import (
    Array,
    Graph,
    array_of,
    constant,
    operator_of,
    rewrite,
    shape_of,
)

__all__ = ["split_transposed"]

op = relax.op

_CONVOLUTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "nn.conv1d_transpose": op.nn.conv1d,
        "nn.conv2d_transpose": op.nn.conv2d,
        "nn.conv3d_transpose": op.nn.conv3d,
    }
)


@frozen
class _Axis:
    """One axis of space.

    Attributes:
        stride: Of the transposed convolution: how many phases there are.
        taps: Elements of the weights of a phase.
        before, after: Padding of the convolution.
        length: Of a phase.
        cut: Elements of the phases, put in their places, before the first of the output.
        output: Length of the output.
    """

    stride: int
    taps: int
    before: int
    after: int
    length: int
    cut: int
    output: int

    @staticmethod
    def of(size: int, kernel: int, stride: int, padding: int, output: int) -> _Axis | None:
        """None where the convolution would have to leave out parts of the input.

        Element ``o`` of the output is the sum of ``x[i] * w[k]`` over ``i * stride + k == o +
        padding``. With ``o + padding == stride * q + r`` and ``k == stride * t + r`` that is ``x[q
        - t] * w[stride * t + r]`` over ``t``: a convolution for every phase ``r``.
        """
        taps = -(-kernel // stride)
        first, last = padding // stride, (output - 1 + padding) // stride
        before, after = taps - 1 - first, last + 1 - size
        if before < 0 or after < 0:
            return None
        cut = padding - first * stride
        return _Axis(stride, taps, before, after, last + 1 - first, cut, output)


def split_transposed(module: IRModule) -> tuple[IRModule, str]:
    """Replace transposed convolutions with constant weights by convolutions.

    Those with groups or dilation stay, and those whose padding is larger than their weights.
    """
    count = 0

    def split(call: Any, graph: Graph) -> Any:
        nonlocal count
        found = _split(call, graph) if operator_of(call) in _CONVOLUTIONS else None
        count += found is not None
        return found

    changed = rewrite(module, split)
    return changed, f"{count} transposed convolutions" if count else ""


def _split(call: Any, graph: Graph) -> Any:
    attributes = call.attrs
    weights, shape = array_of(call.args[1]), shape_of(call.args[0])
    result = shape_of(graph.builder.normalize(call))
    plain = str(attributes.data_layout).startswith("NC") and str(
        attributes.kernel_layout
    ).startswith("IO")
    dilated = any(int(it) != 1 for it in attributes.dilation)
    if weights is None or shape is None or result is None or not plain or dilated:
        return None
    if int(attributes.groups) != 1 or str(attributes.out_layout) != str(attributes.data_layout):
        return None
    padding = [int(it) for it in attributes.padding][: len(shape) - 2]
    if all(extent == 1 for extent in shape[2:]):
        return _as_product(call.args[0], weights, padding, result, graph)
    axes = [
        _Axis.of(*numbers)
        for numbers in zip(
            shape[2:],
            weights.shape[2:],
            map(int, attributes.strides),
            padding,
            result[2:],
            strict=True,
        )
    ]
    known = [axis for axis in axes if axis is not None]
    if len(known) < len(axes):
        return None
    convolution = _CONVOLUTIONS[operator_of(call)]
    pads = [axis.before for axis in known] + [axis.after for axis in known]
    phases = convolution(call.args[0], constant(_phase_weights(weights, known)), padding=pads)
    return _in_place(graph.emit(phases), known, result, graph)


def _as_product(
    data: Any, weights: Array, padding: list[int], result: tuple[int, ...], graph: Graph
) -> Any:
    """One element in space: every output is a product of the channels with its own weights."""
    spans = [slice(p, p + extent) for p, extent in zip(padding, result[2:], strict=True)]
    used = weights[(slice(None),) * 2 + tuple(spans)]
    if used.shape[2:] != result[2:]:
        return None  # output padding reaches beyond the weights
    rows = graph.emit(op.reshape(data, (result[0], weights.shape[0])))
    flat = graph.emit(op.matmul(rows, constant(used.reshape(weights.shape[0], -1))))
    return op.reshape(flat, result)


def _phase_weights(weights: Array, axes: list[_Axis]) -> Array:
    """Weights of the convolution: [channels out, phases..., channels in, taps...], flattened."""
    pads = [(0, axis.stride * axis.taps - weights.shape[2 + i]) for i, axis in enumerate(axes)]
    padded = np.pad(weights, [(0, 0), (0, 0), *pads])
    parts = []
    for phase in product(*(range(axis.stride) for axis in axes)):
        spans = [slice(r, None, axis.stride) for r, axis in zip(phase, axes, strict=True)]
        part = padded[(slice(None),) * 2 + tuple(spans)]
        parts.append(np.flip(part, tuple(range(2, part.ndim))))
    # [phase, in, out, taps...] becomes [out, phase, in, taps...].
    whole = np.moveaxis(np.stack(parts), 2, 0)
    return whole.reshape(-1, weights.shape[0], *(axis.taps for axis in axes))


def _in_place(phases: Any, axes: list[_Axis], result: tuple[int, ...], graph: Graph) -> Any:
    """From [batch, channels x phases, positions...] to the output."""
    count = len(axes)
    batch, channels = result[:2]
    strides, lengths = [a.stride for a in axes], [a.length for a in axes]
    apart = graph.emit(op.reshape(phases, (batch, channels, *strides, *lengths)))
    order = [0, 1, *(place for i in range(count) for place in (2 + count + i, 2 + i))]
    mixed = graph.emit(op.permute_dims(apart, order))
    whole = [length * stride for length, stride in zip(lengths, strides, strict=True)]
    together = op.reshape(mixed, (batch, channels, *whole))
    if all(a.cut == 0 and a.output == extent for a, extent in zip(axes, whole, strict=True)):
        return together
    return op.strided_slice(
        graph.emit(together),
        list(range(2, 2 + count)),
        [axis.cut for axis in axes],
        [axis.cut + axis.output for axis in axes],
    )
