"""Graphs made from graphs."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Node, Value, evaluate, input_value
from autotune.networks.graph.graph import named_after
from autotune.networks.graph.rewriting import readers, rewritten


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
