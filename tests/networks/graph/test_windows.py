from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_graphs import drawn, folded
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.networks.graph import (
    Graph,
    Window,
    constant,
    convolution,
    convolution_integer,
    input_value,
    resample,
    transposed_convolution,
    window_arg,
    window_reduce,
)

Array = NDArray[Any]


def margins(x: Array, window: Window, value: float = 0) -> Array:
    widths = [(0, 0), (0, 0), *zip(window.low, window.high, strict=True)]
    return np.pad(x, widths, constant_values=value)


def patches(x: Array, window: Window) -> Array:
    """``[n, c, *places, *kernel]`` of an image with its margins."""
    reach = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilations, strict=True)]
    axes = range(2, 2 + len(reach))
    every = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(axes))
    steps = [slice(None, None, it) for it in (*window.strides, *window.dilations)]
    return np.asarray(every[(slice(None), slice(None), *steps)])


def convolved(x: Array, w: Array, window: Window, groups: int) -> Array:
    made = patches(margins(x, window), window)
    parts = []
    for part, weights in zip(np.split(made, groups, 1), np.split(w, groups, 0), strict=True):
        rank = len(window.kernel)
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        found = np.tensordot(part, weights, (axes, [1, *range(2, 2 + rank)]))
        parts.append(np.moveaxis(found, -1, 1))
    return np.concatenate(parts, 1)


@st.composite
def windows(draw: st.DrawFn, rank: int) -> Window:
    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    return Window.of(each(1, 3), each(1, 3), each(0, 2), each(0, 2), each(1, 2))


@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_are_sums_over_windows(rank: int, data: st.DataObject) -> None:
    """And transposed ones are their adjoints: ``<conv(x), y> = <x, transposed(y)>``."""
    window = data.draw(windows(rank))
    groups, inner, outer = (data.draw(st.integers(1, 3)) for _ in range(3))
    x = drawn((2, groups * inner, *[6 - rank + 3] * rank), "float64")
    w = drawn((groups * outer, inner, *window.kernel), "float64", 1)
    (found,) = folded(lambda a, b: convolution(a, b, window, groups), x, w)
    wanted = convolved(x, w, window, groups)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    y = drawn(wanted.shape, "float64", 2)
    size = [
        (places - 1) * stride + (k - 1) * d + 1 - low - high
        for places, stride, k, d, low, high in zip(
            wanted.shape[2:], window.strides, window.kernel, window.dilations,
            window.low, window.high, strict=True,
        )
    ]  # fmt: skip
    more = [extent - it for extent, it in zip(x.shape[2:], size, strict=True)]
    (back,) = folded(lambda a, b: transposed_convolution(a, b, window, groups, more), y, w)
    assert back.shape == x.shape
    assert np.vdot(x, back) == pytest.approx(np.vdot(wanted, y))


@settings(max_examples=25)
@given(window=windows(2))
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_windows_are_reduced(dtype: str, window: Window) -> None:
    """Margins take no part; NaN is the largest number and the smallest."""
    x = drawn((1, 2, 7, 6), dtype, special=True)
    lowest = -np.inf if dtype == "float32" else np.iinfo(dtype).min
    made = patches(margins(x, window, lowest), window)
    flat = made.reshape(*made.shape[:4], -1)
    places = np.arange(42).reshape(1, 1, 7, 6)
    inside = patches(margins(places, window, -1), window).reshape(1, 1, *made.shape[2:4], -1)
    largest, arg = folded(lambda a: [window_reduce("max", a, window), window_arg(a, window)], x)
    np.testing.assert_array_equal(largest, flat.max(-1), strict=True)
    alone = (inside < 0).all(-1)
    with np.errstate(invalid="ignore"):
        best = np.where(
            (inside >= 0) & ((flat == flat.max(-1, keepdims=True)) | (flat != flat)), inside, 42
        )
    np.testing.assert_array_equal(np.where(alone, 42, arg), np.where(alone, 42, best.min(-1)))


@pytest.mark.parametrize(("groups", "channels"), [(1, 6), (2, 6), (4, 4)])
@pytest.mark.parametrize("zero", [None, 5])
def test_zero_points_are_subtracted_and_are_margins(
    groups: int, channels: int, zero: int | None
) -> None:
    x, w = drawn((2, 4, 9), "uint8"), drawn((channels, 4 // groups, 3), "int8", 1)
    window = Window.of((3,), (2,), (1,), (2,))
    q, p = drawn((channels,), "int8", 2), [] if zero is None else [np.array(zero, np.uint8)]
    (found,) = folded(
        lambda a, b, d, *c: convolution_integer(a, b, window, groups, *(c or [None]), d),
        *(x, w, q, *p),
    )
    wide = w.astype(np.int64) - q.astype(np.int64).reshape(channels, 1, 1)
    wanted = convolved(x.astype(np.int64) - (zero or 0), wide, window, groups)
    np.testing.assert_array_equal(found, wanted.astype(np.int32), strict=True)


def test_zero_points_of_weights_do_not_take_a_second_convolution() -> None:
    """All channels of a result have one sum of their window, which takes no products."""
    x, w = input_value("x", (1, 8, 9, 9), "uint8"), constant(drawn((16, 8, 3, 3), "uint8"))
    window = Window.of((3, 3))
    zeros = constant(np.uint8(4)), constant(np.uint8(7))
    found = convolution_integer(x, w, window, 1, *zeros)
    graph = Graph((x,), {"y": found})
    flop = sum(it.operation.flop for it in graph.nodes if isinstance(it.operation, Workload))
    alone = Graph((x,), {"y": convolution_integer(x, w, window, 1)})
    product = sum(it.operation.flop for it in alone.nodes if isinstance(it.operation, Workload))
    assert product < flop < 1.1 * product


def test_resampling_is_a_weighted_sum() -> None:
    x = drawn((2, 3, 8), "float32")
    places, weights = np.array([[0, 1], [7, 7]]), np.array([[0.25, 0.75], [1, 0]])
    (found,) = folded(lambda a: resample(a, -1, places, weights), x)
    wanted = np.stack([x[..., 0] * 0.25 + x[..., 1] * 0.75, x[..., 7]], -1)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: Window.of((3, 3), (1,)), "not as many numbers"),
        (lambda x: Window.of((0,)), "below 1"),
        (lambda x: window_reduce("max", x, Window.of((9,))), "spans 9 does not fit 5"),
        (
            lambda x: convolution(x, input_value("w", (2, 2, 3), "float32"), Window.of((3,)), 2),
            "2 groups",
        ),
        (
            lambda x: convolution(x, input_value("w", (2, 2, 3), "float32"), Window.of((2,))),
            "weights",
        ),
    ],
)
def test_what_cannot_be_is_said(build: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        build(input_value("x", (1, 2, 5), "float32"))  # type: ignore[operator]
