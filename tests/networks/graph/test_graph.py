from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_graphs import drawn

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.workloads import Stage, Tensor, Workload
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
from autotune.networks.graph.graph import named_after, readers, rewritten
from autotune.networks.graph.making import index_requirements, spatial
from autotune.networks.plan.cpu_network import compile_network
from autotune.targets import detect_cpu, preset

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


ROWS, COLUMNS, READ = 5, 3, 4


def _table(index: Any, dtype: str = "int64") -> Workload:
    """Rows of a table at places that ``index`` makes of an element of the second input."""
    table, places = Tensor("t", (ROWS, COLUMNS), "float32"), Tensor("p", (READ,), dtype)
    body = index(Load("p", (var("i0"),)))
    stage = Stage(Tensor("y", (READ, COLUMNS), "float32"), spatial((READ, COLUMNS)), body)
    return Workload("others", (table, places), (stage,), ("y",))


def _at(place: ScalarExpr) -> Gather:
    return Gather("t", (place, IndexValue(var("i1"))))


def _number(value: int) -> Constant:
    return Constant(value, "int64")


def _wrapped(it: ScalarExpr) -> ScalarExpr:
    moved = Binary("add", it, _number(ROWS))
    return Select(Binary("lt", it, _number(0)), moved, it)


def _clipped(it: ScalarExpr) -> ScalarExpr:
    return Binary("min", Binary("max", it, _number(0)), _number(ROWS - 1))


@pytest.mark.parametrize(
    ("index", "dtype", "bounds"),
    [
        (_at, "int64", [(0, 4)]),
        (lambda it: _at(Cast("int64", it)), "int32", [(0, 4)]),
        (lambda it: _at(Cast("int64", it)), "uint8", [(0, 4)]),
        (lambda it: _at(_wrapped(it)), "int64", [(-5, 4)]),
        (lambda it: _at(Binary("sub", it, _number(2))), "int64", [(2, 6)]),
        (lambda it: _at(Binary("max", it, _number(0))), "int64", [(None, 4)]),
        (lambda it: _at(_clipped(it)), "int64", []),
        (lambda it: _at(Binary("mod", it, _number(ROWS))), "int64", []),
        (lambda it: Select(Binary("ge", it, _number(0)), _at(it), Constant(0.0, "float32")),
         "int64", []),
    ],
)  # fmt: skip
def test_a_range_is_what_reads_elements_that_there_are(
    index: Any, dtype: str, bounds: list[tuple[int, int]]
) -> None:
    found = index_requirements(_table(index, dtype))
    assert [(it.operand, it.low, it.high) for it in found] == [(1, *each) for each in bounds]


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_an_index_is_refused_where_it_reads_beside_the_table(shift: int, place: int) -> None:
    workload = _table(lambda it: _at(Binary("add", it, _number(shift))))
    table, places = input_value("t", (ROWS, COLUMNS), "float32"), input_value("p", (4,), "int64")
    (y,) = ops.workload(workload, [table, places])
    feeds = {
        "t": np.arange(15, dtype=np.float32).reshape(ROWS, COLUMNS),
        "p": np.array([-shift, -shift, place, -shift]),
    }
    graph = Graph((table, places), {"y": y})
    if 0 <= place + shift < ROWS:
        np.testing.assert_array_equal(evaluate(graph, feeds)["y"], feeds["t"][feeds["p"] + shift])
    else:
        with pytest.raises(InvalidValueError, match=f"others: index {place} is not from"):
            evaluate(graph, feeds)


def test_each_of_several_indices_of_a_place_has_its_own_range() -> None:
    table, places = Tensor("t", (ROWS, COLUMNS), "float32"), Tensor("p", (READ, 2), "int64")
    both = tuple(Load("p", (var("i0"), const(at))) for at in range(2))
    stage = Stage(Tensor("y", (READ,), "float32"), spatial((READ,)), Gather("t", both))
    found = index_requirements(Workload("others", (table, places), (stage,), ("y",)))
    given = np.array([[4, 2], [0, 0]])
    for it in found:
        it.check(given, "others")
    for wrong in ([5, 0], [0, 3], [-1, 0], [0, -1]):
        with pytest.raises(InvalidValueError, match="index"):
            for it in found:
                it.check(np.array([wrong]), "others")


def _graph() -> Graph:
    x = input_value("x", (3,), "float32")
    y = ops.elementwise(lambda a: a + 1, x, name="plus")
    z = ops.elementwise(lambda a: a * 2, y, name="twice")
    return Graph((x,), {"y": y, "z": z})


def _without_plus(node: Node, operands: tuple[Value, ...]) -> list[Value] | None:
    return [operands[0]] if node.label == "plus" else None


def test_readers_see_what_takes_the_place_of_a_node() -> None:
    given = {"x": np.arange(3, dtype=np.float32)}
    found = evaluate(rewritten(_graph(), _without_plus), given)
    assert found["y"].tolist() == [0, 1, 2]
    assert found["z"].tolist() == [0, 2, 4]


def test_a_graph_that_nothing_changes_keeps_its_nodes() -> None:
    graph = _graph()
    again = rewritten(graph, lambda node, operands: None)
    assert all(a is b for a, b in zip(graph.nodes, again.nodes, strict=True))


def test_bodies_of_loops_are_rewritten() -> None:
    x, start = input_value("x", (4, 2), "float32"), input_value("s", (2,), "float32")

    def step(
        states: list[Value], slices: list[Value], fixed: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        total = ops.elementwise(lambda a, b: a + b, states[0], slices[0], name="sum")
        return [total], [ops.elementwise(lambda a: a + 1, total, name="plus")]

    states, kept = ops.loop(step, 4, [start], [x])
    graph = Graph((x, start), {"last": states[0], "all": kept[0]})
    given = {"x": np.ones((4, 2), np.float32), "s": np.zeros(2, np.float32)}
    assert evaluate(graph, given)["all"][:, 0].tolist() == [2, 3, 4, 5]
    changed = rewritten(graph, _without_plus)
    assert evaluate(changed, given)["all"][:, 0].tolist() == [1, 2, 3, 4]


def test_other_shapes_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="plus: .*cannot take the place of"):
        rewritten(_graph(), lambda node, operands: [input_value("x", (4,), "float32")])


def test_readers_are_nodes_and_outputs() -> None:
    graph = _graph()
    plus, twice = graph.nodes
    found = readers(graph)
    assert found[graph.outputs["y"].key] == [(twice, 0), (None, 0)]
    assert found[graph.inputs[0].key] == [(plus, 0)]


def test_what_is_made_in_the_place_of_a_node_has_its_name() -> None:
    x = input_value("x", (4,), "float32")
    with named_after("first"):
        y = ops.unary("tanh", x)
    graph = Graph((x,), {"y": ops.unary("exp", y)})

    def change(node: Node, operands: tuple[Value, ...]) -> list[Value] | None:
        return [ops.unary("sin", ops.unary("neg", operands[0]))] if node.name else None

    assert [it.label for it in rewritten(graph, change).nodes] == ["first", "first", "exp"]
