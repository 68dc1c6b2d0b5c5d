"""Poolings whose windows reach into a margin of zeros."""

from __future__ import annotations

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    maximum,
    minimum,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["average_pooling"]


def average_pooling(
    extent: int = 9,
    channels: int = 16,
    kernel: int = 3,
    stride: int = 2,
    pad: int = 1,
    margin: int = 0,
    images: int = 1,
) -> Workload:
    """Channels last: means of what of a window lies inside the image.

    Args:
        extent: Rows and columns of the image.
        channels: Of the image.
        kernel: Rows and columns of a window.
        stride: From window to window.
        pad: Rows and columns of zeros around the image.
        margin: Channels of zeros in front of the image's.
        images: How many there are.
    """
    padded, out = extent + 2 * pad, (extent + 2 * pad - kernel) // stride + 1
    number = Axis("n", images)
    inside = number, Axis("h", padded), Axis("w", padded), Axis("c", channels + margin)
    n, h, w, c = (var(axis.name) for axis in inside)
    read = Load("X", (n, h - pad, w - pad, c - margin))
    within = [_within(h, pad, extent), _within(w, pad, extent), _within(c, margin, channels)]
    condition = Binary("and", Binary("and", *within[:2]), within[2])
    surrounded = Select(condition, read, Constant(0.0, "float32"))
    spatial = number, Axis("h", out), Axis("w", out), Axis("c", channels + margin)
    taps = Axis("a", kernel, "reduce"), Axis("b", kernel, "reduce")
    window = Load("P", (n, h * stride + var("a"), w * stride + var("b"), c))
    count = _count(h, kernel, stride, pad, extent) * _count(w, kernel, stride, pad, extent)
    mean = Binary("div", Load("S", (n, h, w, c)), Cast("float32", IndexValue(count)))
    shape = (images, out, out, channels + margin)
    stages = (
        Stage(Tensor("P", (images, padded, padded, shape[-1]), "float32"), inside, surrounded),
        Stage(Tensor("S", shape, "float32"), (*spatial, *taps), window, "add"),
        Stage(Tensor("Y", shape, "float32"), spatial, mean),
    )
    image = Tensor("X", (images, extent, extent, channels), "float32")
    return Workload("average pooling", (image,), stages, ("Y",))


def _within(index: IntExpr, low: int, extent: int) -> ScalarExpr:
    begins = Binary("ge", IndexValue(index), IndexValue(const(low)))
    return Binary("and", begins, Binary("lt", IndexValue(index), IndexValue(const(low + extent))))


def _count(index: IntExpr, kernel: int, stride: int, pad: int, extent: int) -> IntExpr:
    """Number of places of a window that lie inside."""
    start = index * stride - pad
    return minimum(start + kernel, const(extent)) - maximum(start, const(0))
