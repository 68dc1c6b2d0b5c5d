"""Convolutions that no builder makes: with channels first, and in groups."""

from __future__ import annotations

from typing import TypeVar

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["convolution"]

_Each = TypeVar("_Each")


def convolution(
    *,
    h: int,
    w: int,
    ci: int,
    co: int,
    n: int = 1,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 0,
    groups: int = 1,
    bias: int = 0,
    last: int = 0,
    dtype: str = "float16",
) -> Workload:
    """A convolution with channels first and OIHW weights; with ``last``, as builders have them.

    Sums are of float32 or int32. A bias is followed by relu.
    """
    parameters = dict(locals())
    total = "float32" if element_type(dtype).is_float else "int32"
    size = [(extent + 2 * pad - kernel) // stride + 1 for extent in (h, w)]
    data = Tensor("X", _placed(last, n, ci, h, w), dtype)
    apart = ci // groups
    weights = (kernel, kernel, apart, co) if last else (co, apart, kernel, kernel)
    inputs = [data, Tensor("W", weights, dtype)]
    stages = [_padded(data, pad, last)] if pad else []
    axes = _placed(last, Axis("n", n), Axis("co", co), Axis("ho", size[0]), Axis("wo", size[1]))
    kh, kw = (Axis(name, kernel, "reduce") for name in ("kh", "kw"))
    summed = Axis("ci", apart, "reduce")
    reduced = (kh, kw, summed) if last else (summed, kh, kw)
    channel = var("ci") if groups == 1 else var("co") // (co // groups) * apart + var("ci")
    window = [var(f"{key}o") * stride + var(f"k{key}") for key in "hw"]
    factors = [
        Load("P" if pad else "X", _placed(last, var("n"), channel, *window)),
        Load("W", tuple(map(var, ("kh", "kw", "ci", "co") if last else ("co", "ci", "kh", "kw")))),
    ]
    wide = [load if dtype == total else Cast(total, load) for load in factors]
    shape = tuple(axis.extent for axis in axes)
    body = Binary("mul", *wide)
    stages.append(Stage(Tensor("Y", shape, total), (*axes, *reduced), body, "add"))
    if bias:
        inputs.append(Tensor("B", (co,), total))
        place = tuple(var(axis.name) for axis in axes)
        value = Binary("add", Load("Y", place), Load("B", (var("co"),)))
        relu = Binary("max", value, Constant(0.0 if total == "float32" else 0, total))
        stages.append(Stage(Tensor("R", shape, total), axes, relu))
    outputs = (stages[-1].name,)
    return Workload("convolution", tuple(inputs), tuple(stages), outputs, parameters)


def _placed(
    last: int, batch: _Each, channel: _Each, height: _Each, width: _Each
) -> tuple[_Each, ...]:
    image = (height, width)
    return (batch, *image, channel) if last else (batch, channel, *image)


def _padded(data: Tensor, pad: int, last: int) -> Stage:
    """Images with margins of zeros."""
    names = _placed(last, "np", "cp", "hp", "wp")
    margins = _placed(last, 0, 0, pad, pad)
    grown = tuple(extent + 2 * margin for extent, margin in zip(data.shape, margins, strict=True))
    zero = Constant(0.0 if data.element.is_float else 0, data.dtype)
    place = tuple(var(name) - margin for name, margin in zip(names, margins, strict=True))
    body: ScalarExpr = Load(data.name, place)
    for name, margin, extent in zip(names, margins, data.shape, strict=True):
        if margin:
            own = IndexValue(var(name))
            above = Binary("ge", own, IndexValue(const(margin)))
            below = Binary("lt", own, IndexValue(const(margin + extent)))
            body = Select(Binary("and", above, below), body, zero)
    axes = tuple(map(Axis, names, grown))
    return Stage(Tensor("P", grown, data.dtype), axes, body)
