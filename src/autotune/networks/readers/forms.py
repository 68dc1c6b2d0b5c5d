"""Forms of operators that models of ONNX and of torch have alike, and their operands' types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune.ir.element_types import element_type
from autotune.networks.graph import (
    Scalar,
    Value,
    Window,
    binary,
    cast,
    constant,
    elementwise,
    loop,
    maximum,
    reshape,
    select,
    where,
    window_reduce,
)
from autotune.networks.graph.making import computed_type

__all__ = [
    "Step",
    "as_type",
    "batch_affine",
    "celu",
    "column",
    "gelu",
    "gelu_tanh",
    "grown",
    "is_float",
    "margins_of_parts",
    "ordered",
    "repeated",
    "scaled",
    "softplus",
    "vector",
    "widened",
    "window_counts",
    "with_bias",
]


def is_float(dtype: str) -> bool:
    """Tell if a type is one of floating-point numbers."""
    return element_type(dtype).is_float


def widened(x: Value) -> Value:
    """The elements in the type that sums of them are of."""
    return cast(x, computed_type(x.dtype))


def vector(numbers: object) -> Value:
    """A constant of int64."""
    return constant(np.asarray(numbers, np.int64))


def as_type(x: Value, dtype: str) -> Value:
    """The elements in another type; what becomes a truth is one unless it is 0."""
    if x.dtype == dtype:
        return x
    if dtype == "bool":
        return elementwise(lambda it: it.differs(0), x, dtype="bool", name="cast")
    if is_float(x.dtype) and dtype.startswith("uint"):
        # Of what does not fit, compilers and processors make different numbers.
        return cast(cast(x, "int64"), dtype)
    return cast(x, dtype)


def ordered(x: Value) -> Value:
    """Truths as whole numbers, which have an order."""
    return as_type(x, "uint8") if x.dtype == "bool" else x


def column(value: Value, rank: int, axis: int = 1) -> Value:
    """A number for each index of an axis, shaped so that it broadcasts to ``rank`` axes."""
    return reshape(value, (-1, *[1] * (rank - 1 - axis)))


def with_bias(found: Value, bias: Value | None) -> Value:
    """``[n, c, *image]`` and a number for each channel added, if there is one."""
    return found if bias is None else binary("add", found, column(bias, found.rank))


# Functions of an element.


def softplus(x: Scalar) -> Scalar:
    """``log(1 + exp(x))``, also of large numbers."""
    return maximum(x, 0) + (1 + (-x.call("abs")).call("exp")).call("log")


def celu(x: Scalar, alpha: float = 1.0) -> Scalar:
    """``x``, below 0 an exponential that is as steep there."""
    return where(x < 0, ((x / alpha).call("exp") - 1) * alpha, x)


def gelu(x: Scalar) -> Scalar:
    """``x`` times the share of a normal distribution below it."""
    return x * 0.5 * ((x * math.sqrt(0.5)).call("erf") + 1)


def gelu_tanh(x: Scalar) -> Scalar:
    """Approximate :func:`gelu`."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (inner.call("tanh") + 1)


# Normalisations.


def scaled(x: Value, scale: Value | None, bias: Value | None, dtype: str) -> Value:
    """``x * scale + bias`` in the type of ``x``, and then in another one."""
    if scale is not None:
        x = binary("mul", x, cast(scale, x.dtype))
    if bias is not None:
        x = binary("add", x, cast(bias, x.dtype))
    return cast(x, dtype)


def batch_affine(
    x: Value, centre: Value, spread: Value, scale: Value, bias: Value, epsilon: float
) -> Value:
    """``(x - centre) / sqrt(spread + epsilon) * scale + bias`` as one product and one sum.

    Args:
        x: ``[n, c, *image]``.
        centre: ``[c]``, as ``spread``, ``scale`` and ``bias``.
        spread: The variance.
        scale: The factor.
        bias: The term.
        epsilon: Added to the variance.
    """
    kind = computed_type(x.dtype)
    centre, spread, scale, bias = (
        column(cast(it, kind), x.rank) for it in (centre, spread, scale, bias)
    )
    factor = elementwise(lambda s, v: s / (v + epsilon).call("sqrt"), scale, spread)
    offset = elementwise(lambda b, c, f: b - c * f, bias, centre, factor)
    found = elementwise(
        lambda it, by, more: it * by + more, widened(x), factor, offset, name="batch_norm"
    )
    return cast(found, x.dtype)


# Pools.


def margins_of_parts(window: Window, image: Sequence[int]) -> tuple[int, ...]:
    """Elements by which margins behind grow, so that part windows are taken in.

    None begins in the margin behind the image.
    """
    more = []
    for at, extent in enumerate(image):
        stride, low = window.strides[at], window.low[at]
        reach = (window.kernel[at] - 1) * window.dilations[at] + 1
        room = extent + low + window.high[at] - reach
        count = -(-room // stride) + 1
        if (count - 1) * stride >= extent + low:
            count -= 1
        more.append(max(0, (count - 1) * stride - room))
    return tuple(more)


def grown(window: Window, more: Sequence[int]) -> Window:
    """The window with larger margins behind."""
    high = [it + extra for it, extra in zip(window.high, more, strict=True)]
    return Window(window.kernel, window.strides, window.low, high, window.dilations)


def window_counts(
    image: Sequence[int], window: Window, more: Sequence[int], dtype: str, margins: bool
) -> Value:
    """The number of elements of each window, ``[1, 1, *places]``.

    Args:
        image: Extents.
        window: The window.
        more: As of :func:`margins_of_parts`; what part windows have there does not count.
        dtype: Type of the result.
        margins: Whether the window's own margins count.
    """
    around = grown(window, more)
    if margins:
        image = [sum(it) for it in zip(window.low, image, window.high, strict=True)]
        none = [0] * len(image)
        around = Window(window.kernel, window.strides, none, more, window.dilations)
    return window_reduce("add", constant(np.ones((1, 1, *image)), dtype), around)


# Recurrences.

Step = Callable[[Sequence[Value], Value, Sequence[Value]], list[Value]]
"""From states, the inputs' part of the gates, and weights to the next states."""


def repeated(
    step: Step,
    inputs: Value,
    starts: Sequence[Value],
    fixed: Sequence[Value],
    reverse: bool,
    mask: Value | None = None,
) -> tuple[Value, list[Value]]:
    """All first states ``[time, batch, hidden]`` of a step along time, and the last states.

    Args:
        step: The step.
        inputs: ``[time, batch, gates]``.
        starts: The states before the first step.
        fixed: Weights.
        reverse: Whether the last of ``inputs`` comes first.
        mask: ``[time, batch, 1]``; where it ends, states stay and what is shown is 0.
    """

    def one(
        states: Sequence[Value], slices: Sequence[Value], known: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        after = step(states, slices[0], known)
        if mask is None:
            return after, [after[0]]
        shown = select(slices[1], after[0], 0)
        kept = [select(slices[1], new, old) for new, old in zip(after, states, strict=True)]
        return kept, [shown]

    slices = [inputs] if mask is None else [inputs, mask]
    last, kept = loop(
        one, inputs.shape[0], starts, slices, fixed, [reverse] * len(slices), [reverse]
    )
    return kept[0], last
