"""Reductions at quotients: convolutions in groups or with fractional strides, adaptive pooling,
products whose batches share a factor."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = [
    "adaptive_pooling",
    "fractional_convolution",
    "grouped_convolution",
    "multiplied_channels",
    "shared_factor",
]


def grouped_convolution(
    extent: int = 6, groups: int = 2, inside: int = 3, out: int = 16, stride: int = 1
) -> Workload:
    """Channels last: ``groups`` of ``inside`` channels each, ``out`` results for each group."""
    taps = 3
    size = (extent - 1) * stride + taps
    inputs = (
        Tensor("X", (size, size, groups * inside), "float32"),
        Tensor("W", (taps, taps, inside, groups * out), "float32"),
    )
    axes = (
        *(Axis("h", extent), Axis("w", extent), Axis("c", groups * out)),
        *(Axis("a", taps, "reduce"), Axis("b", taps, "reduce"), Axis("k", inside, "reduce")),
    )
    h, w, c, a, b, k = (var(axis.name) for axis in axes)
    data = Load("X", (h * stride + a, w * stride + b, c // out * inside + k))
    return _sum("grouped", axes, Binary("mul", data, Load("W", (a, b, k, c))), inputs)


def multiplied_channels(extent: int = 6, channels: int = 4, multiplier: int = 2) -> Workload:
    """A depthwise convolution with several results for each channel, which come first."""
    inputs = (
        Tensor("X", (channels, extent + 2, extent + 2), "float32"),
        Tensor("W", (channels, multiplier, 3, 3), "float32"),
    )
    axes = (
        *(Axis("c", channels * multiplier), Axis("h", extent), Axis("w", extent)),
        *(Axis("a", 3, "reduce"), Axis("b", 3, "reduce")),
    )
    c, h, w, a, b = (var(axis.name) for axis in axes)
    data = Load("X", (c // multiplier, h + a, w + b))
    weight = Load("W", (c // multiplier, c % multiplier, a, b))
    return _sum("multiplied channels", axes, Binary("mul", data, weight), inputs)


def fractional_convolution(
    extents: Sequence[int] = (8, 6),
    strides: Sequence[int] = (2, 2),
    taps: Sequence[int] = (4, 3),
    channels: int = 5,
    out: int = 16,
) -> Workload:
    """Channels last: what lies between the rows and columns of the data is zero."""
    shape = tuple(
        (extent + tap - 2) // stride + 1
        for extent, tap, stride in zip(extents, taps, strides, strict=True)
    )
    inputs = (
        Tensor("X", (*shape, channels), "float32"),
        Tensor("W", (*taps, channels, out), "float32"),
    )
    axes = (
        *(Axis("h", extents[0]), Axis("w", extents[1]), Axis("c", out)),
        *(Axis("a", taps[0], "reduce"), Axis("b", taps[1], "reduce")),
        Axis("k", channels, "reduce"),
    )
    h, w, c, a, b, k = (var(axis.name) for axis in axes)
    condition = Binary("and", _divides(strides[0], h + a), _divides(strides[1], w + b))
    read = Load("X", ((h + a) // strides[0], (w + b) // strides[1], k))
    data = Select(condition, read, Constant(0.0, "float32"))
    weight = Load("W", (taps[0] - 1 - a, taps[1] - 1 - b, k, c))
    return _sum("fractional", axes, Binary("mul", data, weight), inputs)


def adaptive_pooling(extent: int = 13, out: int = 5, channels: int = 16) -> Workload:
    """Channels last: sums over windows of which the largest bounds the reduce axes."""
    starts = [at * extent // out for at in range(out)]
    stops = [-(-(at + 1) * extent // out) for at in range(out)]
    most = max(stop - start for start, stop in zip(starts, stops, strict=True))
    axes = (
        *(Axis("h", out), Axis("w", out), Axis("c", channels)),
        *(Axis("a", most, "reduce"), Axis("b", most, "reduce")),
    )
    h, w, c, a, b = (var(axis.name) for axis in axes)

    def within(place: IntExpr, at: IntExpr) -> ScalarExpr:
        size = (place * extent + extent + out - 1) // out - place * extent // out
        return Binary("lt", IndexValue(at), IndexValue(size))

    read = Load("X", (h * extent // out + a, w * extent // out + b, c))
    inside = Binary("and", within(h, a), within(w, b))
    inputs = (Tensor("X", (extent, extent, channels), "float32"),)
    return _sum("adaptive", axes, Select(inside, read, Constant(0.0, "float32")), inputs)


def shared_factor(
    batches: int = 6,
    copies: int = 3,
    rows: int = 5,
    columns: int = 23,
    depth: int = 16,
    first: int = 0,
) -> Workload:
    """A batch of products with the transposes of matrices that ``copies`` neighbours share.

    They are ``first`` fewer that share the first one.
    """
    axes = (
        *(Axis("b", batches), Axis("i", rows), Axis("j", columns)),
        Axis("k", depth, "reduce"),
    )
    b, i, j, k = (var(axis.name) for axis in axes)
    inputs = (
        Tensor("Q", (batches, rows, depth), "float32"),
        Tensor("K", ((batches - 1 + first) // copies + 1, columns, depth), "float32"),
    )
    body = Binary("mul", Load("Q", (b, i, k)), Load("K", ((b + first) // copies, j, k)))
    return _sum("shared factor", axes, body, inputs)


def _divides(divisor: int, index: IntExpr) -> ScalarExpr:
    return Binary("eq", IndexValue(index % divisor), IndexValue(const(0)))


def _sum(
    name: str, axes: tuple[Axis, ...], body: ScalarExpr, inputs: tuple[Tensor, ...]
) -> Workload:
    shape = tuple(axis.extent for axis in axes if axis.kind == "spatial")
    return Workload(
        name, inputs, (Stage(Tensor("Y", shape, "float32"), axes, body, "add"),), ("Y",)
    )
