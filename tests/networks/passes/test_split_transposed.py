"""Transposed convolutions, without the zeros between the elements of their images."""

from __future__ import annotations

from typing import Any

import pytest
from convolution_networks import same_outputs, weights
from hypothesis import given
from hypothesis import strategies as st

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Window, input_value
from autotune.networks.passes.split_transposed import split_transposed
from autotune.targets import Target


def transposed(
    shape: tuple[int, ...],
    kernel: tuple[int, ...],
    window: Window,
    groups: int = 1,
    more: Any = None,
    dtype: str = "float32",
) -> Graph:
    """A network of one transposed convolution."""
    x = input_value("x", shape, dtype)
    y = ops.transposed_convolution(x, weights(kernel, dtype), window, groups, more)
    return Graph((x,), {"y": y})


def labels(graph: Graph) -> list[str]:
    """Labels of its nodes, reshapes left out."""
    return [node.label for node in graph.nodes if node.label != "reshape"]


@given(
    image=st.tuples(*[st.integers(1, 4)] * 2),
    kernel=st.tuples(*[st.integers(1, 5)] * 2),
    strides=st.tuples(*[st.integers(1, 4)] * 2),
    cut=st.tuples(*[st.integers(0, 2)] * 4),
    more=st.tuples(*[st.integers(0, 2)] * 2),
)
def test_phases_compute_the_same(
    target: Target,
    image: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    cut: tuple[int, int, int, int],
    more: tuple[int, int],
) -> None:
    lengths = [
        (size - 1) * stride + taps - low - high + behind
        for size, stride, taps, low, high, behind in zip(
            image, strides, kernel, cut[:2], cut[2:], more, strict=True
        )
    ]
    if min(lengths) < 1:
        return
    window = Window.of(kernel, strides, cut[:2], cut[2:])
    graph = transposed((2, 3, *image), (3, 2, *kernel), window, 1, more)
    changed, _ = split_transposed(graph, target)
    same_outputs(graph, changed)
    # What more is cut off than the weights reach is cut off before.
    inside = all(it < taps for it, taps in zip(cut, kernel * 2, strict=True))
    if max(strides) > 1 and min(image) > 1 and inside:
        assert "spread" in labels(graph) and "spread" not in labels(changed)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("image", [(5,), (3, 4), (2, 3, 2), (1, 1)])
def test_other_ranks_and_types(target: Target, dtype: str, image: tuple[int, ...]) -> None:
    rank = len(image)
    window = Window.of([4] * rank, [2] * rank, [1] * rank)
    graph = transposed((1, 4, *image), (4, 3, *[4] * rank), window, dtype=dtype)
    changed, note = split_transposed(graph, target)
    assert note == "1 convolutions"
    assert ("matmul" in labels(changed)) == (image == (1, 1))
    same_outputs(graph, changed)


def test_an_image_of_one_element_is_multiplied_by_all_weights(target: Target) -> None:
    graph = transposed((2, 8, 1, 1), (8, 4, 4, 4), Window.of((4, 4)))
    changed, _ = split_transposed(graph, target)
    assert labels(changed) == ["matmul"]
    same_outputs(graph, changed)


@pytest.mark.parametrize(
    ("kernel", "window", "groups"),
    [
        ((4, 2, 3, 3), Window.of((3, 3), (2, 2)), 2),
        ((4, 2, 3, 3), Window.of((3, 3), (2, 2), None, None, (2, 1)), 1),
        ((4, 2, 3, 3), Window.of((3, 3)), 1),
    ],
)
def test_others_stay(target: Target, kernel: tuple[int, ...], window: Window, groups: int) -> None:
    graph = transposed((1, 4, 3, 3), kernel, window, groups)
    changed, note = split_transposed(graph, target)
    assert [*changed.nodes] == [*graph.nodes] and note == ""
