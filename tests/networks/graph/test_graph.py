from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.networks import graph as ops
from autotune.networks.graph import (
    Graph,
    HostOperator,
    Node,
    Value,
    binary,
    constant,
    evaluate,
    evaluate_node,
    input_value,
    matmul,
    reshape,
    softmax,
    sort,
    unary,
)
from autotune.networks.plan.cpu_network import compile_network
from autotune.targets import detect_cpu, preset
from tests.support.network_graphs import drawn

X = input_value("x", (3, 4), "float32")
W = constant(drawn((4, 4), "float32"), name="w")


def layers(count: int) -> Graph:
    made = X
    for _ in range(count):
        made = unary("tanh", matmul(made, W))
    return Graph((X,), {"y": softmax(made, 1), "x": X, "w": W})


def test_nodes_come_after_what_they_read_and_nothing_is_there_that_nobody_needs() -> None:
    shared = unary("exp", X)
    unary("log", shared)
    graph = Graph((X,), {"y": binary("add", binary("mul", shared, X), shared)})
    assert [node.label for node in graph.nodes] == ["exp", "mul", "add"]
    done: set[int] = set()
    for node in layers(3).nodes:
        assert all(it.node is None or id(it.node) in done for it in node.operands)
        done.add(id(node))


def test_deep_graphs_are_walked_without_recursion() -> None:
    assert len(layers(1500).nodes) == 3001


def test_outputs_may_be_inputs_and_constants() -> None:
    given = drawn((3, 4), "float32")
    found = evaluate(layers(1), {"x": given})
    assert [*found] == ["y", "x", "w"]
    np.testing.assert_array_equal(found["x"], given)
    np.testing.assert_array_equal(found["w"], W.constant)


def test_equal_workloads_are_compiled_once_and_counted() -> None:
    assert sorted(layers(3).workloads.values()) == [1, 3, 3]


def test_a_compiled_graph_is_what_is_evaluated() -> None:
    graph, given = layers(3), drawn((3, 4), "float32", 5)
    wanted, compiled = evaluate(graph, {"x": given}), compile_network(graph, {}, detect_cpu(), 2)
    for threads_see in (given, np.asfortranarray(given)):
        found = compiled.run({"x": threads_see})
        for name, right in wanted.items():
            np.testing.assert_allclose(found[name], right, rtol=1e-5, atol=1e-6)
    with pytest.raises(UnsupportedTarget):
        compile_network(graph, {}, preset("a100"), 1)


def test_names_are_for_people() -> None:
    assert unary("exp", X).named("grown").name == "grown" and X.named("z").name == "x"
    assert repr(X) == "Value('x', float32[3, 4])"


def test_bfloat16_is_kept_as_its_bits() -> None:
    value = constant([1.5, -2.0], "bfloat16")
    assert value.constant is not None and value.constant.tolist() == [0x3FC0, 0xC000]
    assert constant(value.constant, "bfloat16").constant is value.constant
    assert reshape(value, (2, 1)).constant is not None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"inputs are \['x'\], and \[\] are given"),
        ({"x": np.zeros((3, 5), np.float32)}, r"is float32\[3, 4\], and float32\[3, 5\]"),
        ({"x": np.zeros((3, 4))}, r"float64\[3, 4\] is given"),
    ],
)
def test_inputs_are_checked(given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        evaluate(layers(1), given)


def test_what_is_no_graph_is_said() -> None:
    with pytest.raises(InvalidValueError, match="two inputs are called 'x'"):
        Graph((X, input_value("x", (1,), "int8")), {"y": X})
    with pytest.raises(InvalidValueError, match="Value.'x', float32.* is no input"):
        Graph((), {"y": unary("exp", X)})
    with pytest.raises(AutotuneError, match="float7"):
        constant([1], "float7")


def test_an_operator_that_the_host_lacks_is_named() -> None:
    node = Node(HostOperator("sotr"), (X,), (((3, 4), "float32"),))
    with pytest.raises(UnknownNameError, match="sort"):
        evaluate_node(node, [drawn((3, 4), "float32")])
    assert sort(X)[0].node is not None


def test_nodes_of_loops_run_as_often_as_all_loops_around_them() -> None:
    def sums(body: Any, trips: int, start: Value, slices: Value) -> Value:
        states, _ = ops.loop(lambda s, r, f: ([body(s[0], r[0])], []), trips, [start], [slices])
        return states[0]

    def outer(state: Value, rows: Value) -> Value:
        inner = sums(lambda s, row: ops.binary("add", s, row), 3, state, rows)
        return ops.unary("tanh", inner)

    x, start = input_value("x", (2, 3, 4), "float32"), input_value("s", (4,), "float32")
    graph = Graph((x, start), {"y": ops.unary("neg", sums(outer, 2, start, x))})
    found = [(node.label, times) for node, times in graph.runs]
    assert found == [("loop", 1), ("loop", 2), ("add", 6), ("tanh", 2), ("neg", 1)]
    assert {it.name: count for it, count in graph.workloads.items()} == {
        "add": 6,
        "tanh": 2,
        "neg": 1,
    }
