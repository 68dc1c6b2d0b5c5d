"""Networks with their channels last compute the same, and transpose at their borders only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, input_value
from autotune.networks.passes.channels_last import channels_last, convolutions
from tests.support.convolution_networks import convolved, networks, same_outputs, weights


def labels(graph: Graph) -> list[str]:
    """What its nodes are called, reshapes left out."""
    return [node.label for node in graph.nodes if node.label != "reshape"]


def last(build: Callable[[Value], Value], shape: Sequence[int] = (1, 8, 7, 6)) -> list[str]:
    """The nodes of a network with the channels last, which computes the same."""
    x = input_value("x", shape, "float32")
    graph = Graph((x,), {"y": build(x)})
    changed = channels_last(graph)
    same_outputs(graph, changed)
    return labels(changed)


@settings(max_examples=15)
@given(graph=networks())
def test_random_networks_compute_the_same(graph: Graph) -> None:
    same_outputs(graph, channels_last(graph))


@pytest.mark.parametrize(
    ("shape", "kernel", "window", "groups"),
    [
        ((2, 4, 9), (8, 4, 3), Window.of((3,), (2,)), 1),
        ((1, 4, 7, 6), (8, 4, 3, 3), Window.of((3, 3), None, (1, 0), (2, 1)), 1),
        ((1, 4, 7, 7), (8, 2, 3, 3), Window.of((3, 3), None, None, None, (2, 2)), 2),
        ((1, 4, 7, 7), (4, 1, 3, 3), Window.of((3, 3)), 4),
        ((1, 4, 7, 7), (8, 4, 1, 1), Window.of((1, 1), (2, 2)), 1),
        ((1, 4, 4, 5, 5), (8, 4, 2, 3, 3), Window.of((2, 3, 3), (1, 2, 2)), 1),
    ],
)
def test_transposes_are_left_at_the_borders(
    shape: Sequence[int], kernel: Sequence[int], window: Window, groups: int
) -> None:
    found = last(lambda x: ops.convolution(x, weights(kernel), window, groups), shape)
    assert found == ["transpose", "convolution", "transpose"]


def test_convolutions_of_one_element_are_products() -> None:
    found = last(lambda x: convolved(convolved(x, 12, 1), 4, 1))
    assert found == ["transpose", "matmul", "add", "clamp", "matmul", "add", "clamp", "transpose"]


BETWEEN: dict[str, Callable[[Value], Value]] = {
    "pool": lambda y: ops.window_reduce("max", y, Window.of((2, 2), (2, 2))),
    "resample": lambda y: ops.resample(y, 2, np.array([[0, 1], [1, 2]]), np.ones((2, 2))),
    "concat": lambda y: ops.concat([y, ops.unary("tanh", y)], 1),
    "slice": lambda y: ops.slice_axis(y, 1, 0, 4),
    "pad": lambda y: ops.pad(y, (0, 0, 1, 0), (0, 1, 0, 2)),
    "softmax": lambda y: ops.softmax(y, 1),
    "excite": lambda y: ops.binary("mul", y, ops.unary("sigmoid", ops.mean(y, [2, 3]))),
    "function": lambda y: ops.unary("tan", y),
    "residual": lambda y: ops.binary("add", y, convolved(y, y.shape[1], 3)),
    "constant": lambda y: ops.binary("add", y, weights(y.shape)),
    "shuffle": lambda y: ops.reshape(
        ops.transpose(ops.reshape(y, (1, 2, -1, *y.shape[2:])), (0, 2, 1, 3, 4)), y.shape
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_between_convolutions_is_computed_as_it_is_stored(name: str) -> None:
    found = last(lambda x: convolved(BETWEEN[name](convolved(x, 8, 3)), 8, 3))
    moved = [it for it in found if it == "transpose"]
    # Groups that are shuffled are moved, of what is stored.
    assert len(moved) == 2 + (name == "shuffle")


def test_a_mean_over_the_image_needs_no_transpose() -> None:
    found = last(
        lambda x: ops.matmul(ops.mean(convolved(x, 8, 3), [2, 3], False), weights((8, 4)))
    )
    assert found.count("transpose") == 1


def test_a_transposed_result_is_what_is_stored() -> None:
    found = last(lambda x: ops.transpose(convolved(x, 8, 3), (0, 2, 3, 1)))
    assert found.count("transpose") == 1


def test_products_of_two_images_are_of_the_model() -> None:
    def build(x: Value) -> Value:
        y = ops.reshape(convolved(x, 8, 3), (1, 8, -1))
        return ops.matmul(y, ops.transpose(y, (0, 2, 1)))

    assert last(build).count("transpose") >= 2


def test_networks_without_constant_weights_stay() -> None:
    x, w = input_value("x", (1, 3, 6, 6), "float32"), input_value("w", (4, 3, 3, 3), "float32")
    graph = Graph((x, w), {"y": ops.convolution(x, w, Window.of((3, 3)))})
    assert convolutions(graph) == 0
    assert [*channels_last(graph).nodes] == [*graph.nodes]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_other_types_are_converted_as_they_were(dtype: str) -> None:
    x = input_value("x", (1, 4, 5, 5), dtype)
    result = "int32" if dtype == "int8" else dtype
    outputs = {
        name: ops.convolution(x, weights(kernel, dtype), Window.of(kernel[2:]), 1, result)
        for name, kernel in (("y", (6, 4, 3, 3)), ("z", (6, 4, 1, 1)))
    }
    graph = Graph((x,), outputs)
    changed = channels_last(graph)
    assert labels(changed).count("convolution") == labels(changed).count("matmul") == 1
    same_outputs(graph, changed)
