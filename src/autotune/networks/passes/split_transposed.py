"""Convolutions of images that are mostly zeros, without these: transposed convolutions.

A transposed convolution of stride s convolves an image with s - 1 zeros between its elements: of
the products, all but one in s (along each axis) are with zeros. Each of the s phases of the
output is a convolution of the image itself with every s-th element of the weights; the phases are
further features of one convolution, and are put in their places afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from attrs import frozen

from autotune.networks.graph import (
    Graph,
    Node,
    Value,
    Window,
    constant,
    convolution,
    matmul,
    reshape,
    rewritten,
    slice_axes,
    transpose,
)
from autotune.networks.graph.windows import spread
from autotune.networks.passes.workload_forms import Convolution
from autotune.targets import Target

__all__ = ["split_transposed"]


def split_transposed(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Replace convolutions of spread images, and of images of one element.

    Those with constant weights in the order in which they are read, without groups or dilation.
    A convolution of an image of one element is a product: each output has weights of its own.

    Args:
        graph: A network.
        machine: What it is for; all alike.
    """
    count = 0

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        found = _split(node, operands)
        count += found is not None
        return None if found is None else [found]

    changed = rewritten(graph, change)
    return changed, f"{count} convolutions" if count else ""


def _split(node: Node, operands: Sequence[Value]) -> Value | None:
    found = Convolution.of(node, operands)
    if found is None or found.dimensions[:2] != ("batch", "channel"):
        return None
    rank, windows = found.data.rank - 2, found.windows
    results = [axis.name for axis in found.stage.spatial_axes]
    taken = [it for it in found.taken if it in results]
    plain = (*taken, *(it.tap for it in windows))
    if len(windows) != rank or any((it.stride, it.dilation) != (1, 1) for it in windows):
        return None
    if (found.taken[0], *found.taken[2:]) != plain or results[1:] != [
        *taken,
        *(it.place for it in windows),
    ]:
        return None
    image = node.results[0][0][2:]
    if all(extent == 1 for extent in found.data.shape[2:]) and prod(image) > 1:
        return _product(found, image)
    before = _before_spread(found.data)
    if before is None:
        return None
    source, strides = before
    numbers = (source.shape[2:], strides, found.weights.shape[2:], found.low[2:], image)
    phases = [_Phases.of(*axis) for axis in zip(*numbers, strict=True)]
    window = Window.of(
        [it.taps for it in phases], None, [it.low for it in phases], [it.high for it in phases]
    )
    together = convolution(source, _phase_weights(found.weights, phases), window, 1, found.dtype)
    return _in_place(together, phases)


def _before_spread(image: Value) -> tuple[Value, Sequence[int]] | None:
    """Value between whose elements zeros were put, and the strides."""
    if image.node is None or len(image.node.operands) != 1:
        return None
    (source,) = image.node.operands
    pairs = [*zip(image.shape, source.shape, strict=False)]
    if source.rank != image.rank or any(small < 2 and whole > 1 for whole, small in pairs):
        return None
    strides = [(whole - 1) // max(1, small - 1) if small > 1 else 1 for whole, small in pairs]
    if max(strides) < 2 or min(strides) < 1:
        return None
    wanted = spread(source, strides[2:])
    same = wanted.node is not None and wanted.node.operation == image.node.operation
    return (source, strides[2:]) if same else None


@frozen
class _Phases:
    """The phases along one axis.

    Element ``o`` of the output is the sum of ``x[i] * w[k]`` over ``s * i == o + k - margin``.
    With ``o - margin == s * m - r`` and ``k == s * t + r`` that is ``x[m + t] * w[s * t + r]``
    over ``t``: a convolution for every phase ``r``.

    Attributes:
        stride: How many phases there are.
        taps: Elements of the weights of a phase.
        low, high: Margins of the convolution.
        length: Of a phase.
        cut: Elements of the phases, put in their places, before the first of the output.
        output: Length of the output.
    """

    stride: int
    taps: int
    low: int
    high: int
    length: int
    cut: int
    output: int

    @staticmethod
    def of(size: int, stride: int, kernel: int, margin: int, output: int) -> _Phases:
        """Recognise a convolution of an image of ``size`` elements that were put apart."""
        taps = -(-kernel // stride)
        first, last = -(margin // stride), -((margin - output + 1) // stride)
        high = last + taps - size
        cut = stride - 1 - margin - stride * first
        return _Phases(stride, taps, -first, high, last - first + 1, cut, output)


def _phase_weights(weights: Value, phases: Sequence[_Phases]) -> Value:
    """Weights of the convolution: [phases x features, channels, taps...]."""
    assert weights.constant is not None  # :class:`Convolution` says so
    kernel = weights.shape[2:]
    behind = [it.stride * it.taps - k for it, k in zip(phases, kernel, strict=True)]
    whole = np.pad(weights.constant, [(0, 0), (0, 0), *((0, it) for it in behind)])
    # A zero of bfloat16 has the bits of 0, as of all other types.
    parts = [extent for it in phases for extent in (it.taps, it.stride)]
    apart = whole.reshape(*weights.shape[:2], *parts)
    taps, places = range(2, apart.ndim, 2), tuple(range(3, apart.ndim, 2))
    ordered = np.flip(apart, places).transpose(*places, 0, 1, *taps)
    shape = (-1, weights.shape[1], *(it.taps for it in phases))
    return constant(ordered.reshape(shape), weights.dtype)


def _in_place(together: Value, phases: Sequence[_Phases]) -> Value:
    """From [batch, phases x features, positions...] to the output."""
    count = len(phases)
    batch, features = together.shape[0], together.shape[1] // prod(it.stride for it in phases)
    strides, lengths = [it.stride for it in phases], [it.length for it in phases]
    apart = reshape(together, (batch, *strides, features, *lengths))
    places = (place for at in range(count) for place in (2 + count + at, 1 + at))
    order = [0, 1 + count, *places]
    extents = [length * stride for length, stride in zip(lengths, strides, strict=True)]
    whole = reshape(transpose(apart, order), (batch, features, *extents))
    starts, outputs = [it.cut for it in phases], [it.output for it in phases]
    return slice_axes(whole, [0, 0, *starts], [batch, features, *outputs], [1] * (2 + count))


def _product(found: Convolution, image: Sequence[int]) -> Value:
    """A convolution of one element: an output reads the weights that this element meets."""
    assert found.weights.constant is not None  # :class:`Convolution` says so
    used = found.weights.constant
    for axis, (low, extent) in enumerate(zip(found.low[2:], image, strict=True), start=2):
        kernel = used.shape[axis]
        places = low - np.arange(extent)
        there = (places >= 0) & (places < kernel)
        used = used.take(np.clip(places, 0, kernel - 1), axis)
        used = np.where(there.reshape(-1, *[1] * (used.ndim - axis - 1)), used, 0)
    used = used.astype(found.weights.constant.dtype)
    channels = used.shape[1]
    matrix = constant(np.moveaxis(used, 1, 0).reshape(channels, -1), found.weights.dtype)
    rows = reshape(found.data, (found.data.shape[0], channels))
    flat = matmul(rows, matrix, found.dtype)
    return reshape(flat, (found.data.shape[0], used.shape[0], *image))
