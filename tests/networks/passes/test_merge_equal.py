"""Equal nodes are one, and what is not equal stays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from convolution_networks import same_outputs
from random_graphs import MACHINE, check_equal, labels, weights

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, constant, evaluate, input_value
from autotune.networks.passes.merge_equal import constant_operands, merge_equal
from autotune.targets import Target

X = input_value("x", (4, 6), "float32")


def _merged(*outputs: Value) -> list[str]:
    named = {f"out{number}": value for number, value in enumerate(outputs)}
    return labels(check_equal(Graph((X,), named), merge_equal))


def test_what_is_computed_twice_is_computed_once() -> None:
    one = ops.unary("tanh", ops.binary("add", X, 1.0))
    other = ops.unary("tanh", ops.binary("add", X, 1.0))
    assert _merged(one, other) == ["add", "tanh"]


def test_constants_are_equal_that_hold_the_same() -> None:
    copies = [ops.binary("add", X, constant(np.arange(6, dtype=np.float32))) for _ in range(2)]
    assert _merged(*copies) == ["add"]
    others = [ops.binary("add", X, weights(6, seed=seed)) for seed in (0, 1)]
    assert _merged(*others) == ["add", "add"]


def test_zeros_of_other_signs_and_other_numbers_are_not_equal() -> None:
    assert len(_merged(ops.binary("mul", X, 0.0), ops.binary("mul", X, -0.0))) == 2
    zeros = [constant(np.full(6, sign, np.float32)) for sign in (0.0, -0.0)]
    assert len(_merged(*(ops.binary("mul", X, it) for it in zeros))) == 2


def test_views_are_equal_by_shape() -> None:
    found = [ops.reshape(X, shape) for shape in ((24,), (24,), (2, 12))]
    assert _merged(*found) == ["reshape", "reshape"]


def test_bodies_of_loops_are_graphs_of_their_own() -> None:
    def step(
        states: Sequence[Value], slices: Sequence[Value], fixed: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        twice = [ops.binary("add", states[0], slices[0]) for _ in range(2)]
        return [ops.binary("mul", *twice)], []

    start = input_value("s", (6,), "float32")
    both = [ops.loop(step, 4, [start], [X])[0][0] for _ in range(2)]
    graph = Graph((X, start), {"a": both[0], "b": both[1]})
    changed = check_equal(graph, merge_equal)
    bodies = [it.operation.body for it in changed.nodes]  # type: ignore[union-attr]
    assert [labels(it) for it in bodies] == [["add", "mul"]] * 2


def test_a_graph_without_equal_nodes_is_the_same_object() -> None:
    graph = Graph((X,), {"y": ops.unary("tanh", X)})
    assert merge_equal(graph, MACHINE) == (graph, "")


def test_constants_without_dimensions_and_transposed_ones_are_compared() -> None:
    """Transposed memory is compared as it is read."""
    numbers = np.arange(36, dtype=np.float32).reshape(6, 6)
    same = [constant(numbers.T), constant(np.ascontiguousarray(numbers.T)), constant(numbers)]
    assert len(_merged(*(ops.matmul(X, it) for it in same))) == 2
    scalars = [constant(np.asarray(it, np.float32)) for it in (2.0, 2.0, 3.0)]
    assert len(_merged(*(ops.elementwise(lambda a, b: a * b, X, it) for it in scalars))) == 2


def full(shape: tuple[int, ...], number: float, dtype: str = "float32") -> Value:
    return constant(np.full(shape, number), dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "int64"])
def test_fills_are_numbers(target: Target, dtype: str) -> None:
    x = input_value("x", (3, 4), dtype)
    graph = Graph((x,), {"y": ops.binary("mul", full((3, 4), 3, dtype), x)})
    changed, note = constant_operands(graph, target)
    (node,) = changed.nodes
    assert len(node.operands) == 1 and note == "1 fills"
    same_outputs(graph, changed, 0, 0)


def test_a_divisor_stays_checked(target: Target) -> None:
    x, y = input_value("x", (3,), "int32"), input_value("y", (3,), "int32")
    wide = ops.elementwise(lambda a, b, c: a * b / c, full((3,), 5, "int32"), x, y)
    graph = Graph((x, y), {"z": wide})
    changed, _ = constant_operands(graph, target)
    (node,) = changed.nodes
    assert [it.operand for it in node.requirements] == [1]
    given = {"x": np.array([4, -3, 7], np.int32), "y": np.array([2, 5, -1], np.int32)}
    assert evaluate(changed, given)["z"].tolist() == [10, -3, -35]


def test_others_stay(target: Target) -> None:
    x = input_value("x", (1, 3, 4, 4), "float32")
    outputs = {
        "weights": ops.convolution(x, full((2, 3, 3, 3), 1), Window.of((3, 3))),
        "ends": ops.binary("add", x, constant(np.float32([1, 2, 2, 1]))),
        "nan": ops.binary("add", x, full((4,), np.nan)),
    }
    graph = Graph((x,), outputs)
    changed, note = constant_operands(graph, target)
    assert [*changed.nodes] == [*graph.nodes] and note == ""
