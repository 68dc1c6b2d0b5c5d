"""Constants of one number are numbers in the bodies that read them."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, constant, evaluate, input_value
from autotune.networks.passes.constant_operands import constant_operands
from autotune.targets import Target
from tests.support.convolution_networks import same_outputs


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
