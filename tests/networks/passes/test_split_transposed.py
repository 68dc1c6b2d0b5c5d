"""Transposed convolutions in phases."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Window, input_value
from autotune.networks.passes.split_transposed import split_transposed
from tests.support.random_graphs import check_equal, labels, weights


@given(st.data())
@settings(max_examples=25)
def test_phases_are_the_transposed_convolution(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))

    def drawn(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in range(rank)]

    kernel, strides, image = drawn(1, 5), drawn(1, 3), drawn(1, 4)
    low, high, more = drawn(0, 3), drawn(0, 3), drawn(0, 2)
    window = Window.of(kernel, strides, low, high)
    extents = [
        (n - 1) * s + k - a - b + m
        for n, s, k, a, b, m in zip(image, strides, kernel, low, high, more, strict=True)
    ]
    assume(min(extents) > 0 and max(strides) > 1)
    x = input_value("x", (2, 3, *image), "float32")
    y = ops.transposed_convolution(x, weights(3, 2, *kernel), window, more=more)
    graph = check_equal(Graph((x,), {"y": y}), split_transposed)
    # Margins wider than the weights are cut off the image before.
    if all(max(a, b - m) < k for k, a, b, m in zip(kernel, low, high, more, strict=True)):
        assert "spread" not in labels(graph)


def test_what_follows_is_kept_and_other_convolutions_stay() -> None:
    x = input_value("x", (1, 4, 5, 5), "float32")
    window = Window.of([4, 4], [2, 2], [1, 1])
    y = ops.clamp(ops.transposed_convolution(x, weights(4, 6, 4, 4), window), 0)
    graph = check_equal(Graph((x,), {"y": y}), split_transposed)
    assert labels(graph) == ["convolution", "reshape", "phases", "clamp"]
    assert graph.nodes[0].results[0][0] == (1, 24, 6, 6)
    grouped = ops.transposed_convolution(x, weights(4, 1, 4, 4), window, groups=4)
    assert "spread" in labels(check_equal(Graph((x,), {"y": grouped}), split_transposed))
    moving = input_value("w", (4, 6, 4, 4), "float32")
    other = ops.transposed_convolution(x, moving, window)
    assert "spread" in labels(check_equal(Graph((x, moving), {"y": other}), split_transposed))
