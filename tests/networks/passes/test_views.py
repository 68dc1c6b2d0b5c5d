"""Reshapes merged, moved behind, and left where they are needed."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import MACHINE, check_equal, labels, weights
from written import written

from autotune.ir.workloads.reference import reference_outputs
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, Window, constant, input_value
from autotune.networks.passes.views import AxisGroup, axis_groups, on_other_axes, views

X = input_value("x", (2, 6, 8), "float32")


def _moved(value: Value, *inputs: Value) -> list[str]:
    return labels(check_equal(Graph((X, *inputs), {"y": value}), views))


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[AxisGroup]:
    return axis_groups(before, after)


@pytest.mark.parametrize(
    ("before", "after", "groups"),
    [
        ((2, 3), (6,), [((0, 1), (0,))]),
        ((1, 4), (4,), [((0,), ()), ((1,), (0,))]),
        ((4, 6), (4, 2, 1, 3), [((0,), (0,)), ((1,), (1, 2, 3))]),
        ((4,), (4, 1), [((0,), (0,)), ((), (1,))]),
        ((), (1,), [((), (0,))]),
    ],
)
def test_groups_are_the_smallest(
    before: tuple[int, ...],
    after: tuple[int, ...],
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    assert _groups(before, after) == [AxisGroup(*it) for it in groups]


def test_reshapes_and_permutations_are_merged() -> None:
    assert _moved(ops.reshape(ops.reshape(X, (96,)), (12, 8))) == ["reshape"]
    assert _moved(ops.transpose(ops.transpose(X, [2, 0, 1]), [1, 2, 0])) == []
    assert _moved(ops.transpose(ops.transpose(X, [2, 0, 1]), [1, 0, 2])) == ["transpose"]


def test_elementwise_operations_are_before_a_reshape() -> None:
    y = ops.reshape(ops.matmul(X, weights(8, 4)), (2, 6, 4))
    other = input_value("o", (2, 6, 4), "float32")
    z = ops.binary("add", ops.binary("add", y, weights(4)), other)
    found = _moved(ops.unary("tanh", z), other)
    assert found == ["reshape", "matmul", "add", "reshape", "add", "tanh", "reshape"]
    graph, _ = views(Graph((X, other), {"y": ops.unary("tanh", z)}), MACHINE)
    assert labels(views(graph, MACHINE)[0]) == found


def test_operations_on_rows_are_before_a_reshape_of_other_axes() -> None:
    y = ops.reshape(X, (12, 8))
    assert _moved(ops.softmax(y, -1)) == ["softmax", "reshape"]
    normal = _moved(ops.normalized(y, [-1], 0.1))
    assert normal.count("reshape") == 1 and normal[-1] == "reshape"


def test_what_needs_the_axes_of_a_reshape_stays_behind_it() -> None:
    y = ops.reshape(X, (12, 8))
    assert _moved(ops.scan("add", y, 0)) == ["reshape", "scan"]
    assert _moved(ops.slice_axis(y, 0, 1, 5)) == ["reshape", "slice"]
    assert _moved(ops.binary("mul", y, weights(12, 1))) == ["mul", "reshape"]
    split = ops.reshape(X, (2, 6, 2, 4))
    assert _moved(ops.binary("mul", split, weights(2, 1))) == ["reshape", "mul"]


def test_heads_are_split_before_one_of_three_is_taken() -> None:
    x = input_value("h", (6, 24), "float32")
    part = ops.reshape(ops.slice_axis(x, 1, 8, 16), (1, 6, 2, 4))
    assert _moved(ops.transpose(part, [0, 2, 1, 3]), x) == ["reshape", "slice", "transpose"]
    odd = ops.reshape(ops.slice_axis(x, 1, 2, 10), (6, 2, 4))
    assert _moved(odd, x) == ["slice", "reshape"]
    rows = ops.reshape(ops.slice_axis(x, 0, 2, 4), (2, 4, 6))
    assert _moved(rows, x) == ["reshape", "slice"]


def test_a_mean_is_read_without_the_axis_that_it_kept() -> None:
    found = _moved(ops.binary("sub", X, ops.reduce("max", X, [-1])))
    assert found == ["max", "sub"]


def test_channels_of_groups_are_joined_behind_what_follows() -> None:
    x = input_value("i", (1, 4, 5, 5), "float32")
    y = ops.convolution(x, weights(6, 2, 3, 3), Window.of([3, 3]), 2)
    z = ops.clamp(ops.binary("add", y, weights(6, 1, 1)), 0)
    assert _moved(z, x) == ["reshape", "convolution", "add", "clamp", "reshape"]


def test_a_constant_index_is_a_slice() -> None:
    assert _moved(ops.take(X, constant(np.int64(-1)), 1)) == ["slice", "reshape"]
    assert _moved(ops.take(X, constant(np.array([0, 2])), 1)) == ["take"]


def test_two_inputs_are_read_before_their_reshapes_one_after_the_other() -> None:
    """Axes of the second change have names that the first one's do not have."""
    workload = written("A[6], B[4]", "C[i:6, j:4] = A[i] + B[j]")
    first = on_other_axes(workload, "A", (2, 3), axis_groups((2, 3), (6,)))
    assert first is not None
    second = on_other_axes(first, "B", (2, 2), axis_groups((2, 2), (4,)))
    assert second is not None
    a, b = np.arange(6, dtype=np.float32), np.arange(4, dtype=np.float32) / 8
    given = {"A": a.reshape(2, 3), "B": b.reshape(2, 2)}
    (found,) = reference_outputs(second, given).values()
    np.testing.assert_array_equal(found.reshape(6, 4), a[:, None] + b)
