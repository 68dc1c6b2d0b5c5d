"""Tests of which operations become a single workload, and of its text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from random_graphs import MACHINE, check_equal, labels, random_graphs, weights

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload, softmax
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Scalar, Value, Window, evaluate, input_value
from autotune.networks.graph.elementwise import maximum, minimum
from autotune.networks.passes.fuse import Flow, fuse
from autotune.networks.passes.views import views
from autotune.spaces import SketchSpace


def _fused(*outputs: Value, inputs: tuple[Value, ...]) -> Graph:
    named = {f"out{number}": value for number, value in enumerate(outputs)}
    return check_equal(Graph(inputs, named), views, fuse)


def _workloads(graph: Graph) -> list[Workload]:
    return [it.operation for it in graph.nodes if isinstance(it.operation, Workload)]


def _image(channels: int = 8, name: str = "x") -> Value:
    return input_value(name, (1, channels, 6, 6), "float32")


def _convolved(x: Value, channels: int = 8) -> Value:
    kernel = weights(channels, x.shape[1], 3, 3)
    y = ops.convolution(x, kernel, Window.of([3, 3], low=[1, 1]))
    return ops.binary("add", y, weights(channels, 1, 1, seed=1))


def test_a_residual_block_is_two_workloads() -> None:
    x = _image()
    first = ops.clamp(_convolved(x), 0)
    second = ops.clamp(ops.binary("add", _convolved(first), x), 0)
    graph = _fused(second, inputs=(x,))
    assert labels(graph) == ["convolution+add+clamp", "convolution+add+add+clamp"]
    assert [it.name for it in _workloads(graph)[1].stages] == ["p", "y", "y1", "y2", "y3"]


def _rounded(x: Value) -> Value:
    def number(it: Scalar) -> Scalar:
        return minimum(maximum((it / 0.05).call("round"), -128), 127).cast("int8")

    return ops.elementwise(number, x, dtype="int8", name="quantize")


def _numbers(x: Value) -> Value:
    it = ops.cast(x, "float32")
    return ops.binary("mul", it, 0.05)


def test_what_is_rounded_to_bytes_is_stored_as_bytes() -> None:
    x = input_value("x", (1, 8, 6, 6), "int8")
    start = _numbers(x)
    first = _numbers(_rounded(_convolved(start)))
    second = _numbers(_rounded(_convolved(ops.unary("abs", start))))
    added = _rounded(ops.clamp(ops.binary("add", first, second), 0))
    graph = _fused(ops.reduce("max", _numbers(added), [1], False), inputs=(x,))
    stored = [(it.label, it.results[0][1]) for it in graph.nodes]
    assert [kind for name, kind in stored if "convolution" in name] == ["int8", "int8"]
    assert stored[-1] == ("cast+mul+max", "float32")


def test_numbers_that_a_product_or_a_caller_reads_are_made_of_bytes_where_these_are() -> None:
    x = _image()
    rounded = _numbers(_rounded(_convolved(x)))
    assert labels(_fused(rounded, inputs=(x,))) == ["convolution+add+quantize+cast+1"]
    again = labels(_fused(_convolved(rounded), inputs=(x,)))
    assert again == ["convolution+add+quantize+cast+1", "convolution+add"]


def test_what_is_returned_as_well_is_kept() -> None:
    x = _image()
    y = _convolved(x)
    graph = _fused(y, ops.unary("tanh", y), inputs=(x,))
    assert labels(graph) == ["convolution+add", "tanh"]


def test_of_two_convolutions_one_gets_their_sum() -> None:
    x = _image()
    total = ops.binary("add", _convolved(x), _convolved(ops.unary("abs", x)))
    graph = _fused(total, inputs=(x,))
    assert sorted(labels(graph)) == ["abs", "convolution+add", "convolution+add+add"]


def test_an_activation_of_two_reads_is_one_stage_behind_a_product() -> None:
    x = input_value("x", (8, 6), "float32")
    y = ops.binary("add", ops.matmul(x, weights(6, 4)), weights(4))
    silu = ops.binary("mul", ops.unary("sigmoid", y), y)
    graph = _fused(ops.binary("mul", silu, 0.5), inputs=(x,))
    (workload,) = _workloads(graph)
    assert [it.reads for it in workload.stages] == [("x0", "x1"), ("y", "x2"), ("y1",)]


def test_normalised_rows_are_one_workload() -> None:
    x = input_value("x", (1, 4, 16), "float32")
    normal = ops.normalized(ops.binary("add", x, weights(16)), [-1], 1e-5)
    scaled = ops.binary("add", ops.binary("mul", normal, weights(16)), weights(16, seed=1))
    assert len(_workloads(_fused(scaled, inputs=(x,)))) == 1


def test_a_softmax_is_the_built_in_one_and_takes_its_mask() -> None:
    x, mask = input_value("x", (8, 16), "float32"), input_value("m", (16,), "float32")
    alone = _fused(ops.softmax(x, -1), inputs=(x,))
    assert _workloads(alone)[0].digest == softmax(m=8, n=16).digest
    masked = ops.softmax(ops.binary("add", ops.binary("mul", x, 0.5), mask), -1)
    assert labels(_fused(masked, inputs=(x, mask))) == ["mul+add+softmax"]


def test_a_mean_reads_what_is_computed_inside_of_it() -> None:
    x = input_value("x", (4, 16), "float32")
    graph = _fused(ops.mean(ops.unary("abs", x), [1], keepdims=False), inputs=(x,))
    assert labels(graph) == ["abs+add+div"]


def test_windows_that_overlap_do_not_compute_again_what_they_read() -> None:
    x = _image()
    pooled = ops.window_reduce("max", ops.unary("tanh", x), Window.of([3, 3]))
    assert labels(_fused(pooled, inputs=(x,))) == ["tanh", "window"]


def test_a_permutation_is_where_its_reader_reads() -> None:
    x = input_value("x", (4, 6), "float32")
    turned = ops.binary("add", ops.transpose(x), 1.0)
    (workload,) = _workloads(_fused(turned, inputs=(x,)))
    assert len(workload.stages) == 1 and workload.stages[0].reads == ("x0",)


def test_a_reshape_between_two_movements_is_one_of_theirs_where_rows_stay() -> None:
    x = input_value("x", (2, 3, 4, 8), "float32")
    joined = ops.reshape(ops.transpose(x, [0, 2, 1, 3]), (2, 12, 8))
    (workload,) = _workloads(_fused(ops.slice_axis(joined, 1, 1, 11), inputs=(x,)))
    assert len(workload.stages) == 1
    split = ops.reshape(ops.transpose(x), (8, 4, 6))
    assert len(_workloads(_fused(ops.slice_axis(split, 2, 1, 5), inputs=(x,)))) == 2
    last = ops.reshape(ops.transpose(x, [0, 2, 1, 3]), (8, 24))
    assert labels(_fused(ops.matmul(last, weights(24, 2)), inputs=(x,)))[1] == "reshape"


def test_what_is_expensive_is_not_computed_for_each_element_of_a_broadcast() -> None:
    x, row = input_value("x", (4, 6), "float32"), input_value("r", (6,), "float32")
    graph = _fused(ops.binary("mul", x, ops.unary("exp", row)), inputs=(x, row))
    assert labels(graph) == ["exp", "mul"]


def test_indices_that_are_checked_are_computed_before() -> None:
    table, at = input_value("t", (9, 4), "float32"), input_value("i", (3,), "int64")
    taken = ops.take(table, ops.binary("add", at, 1), 0)
    graph = _fused(ops.unary("abs", taken), inputs=(table, at))
    assert labels(graph) == ["add", "take+abs"]
    (requirement,) = graph.nodes[1].requirements
    assert graph.nodes[1].operands[requirement.operand].node is graph.nodes[0]


def test_bodies_of_loops_are_fused() -> None:
    x, start = input_value("x", (4, 2), "float32"), input_value("s", (2,), "float32")

    def step(
        states: Sequence[Value], slices: Sequence[Value], fixed: Sequence[Value]
    ) -> tuple[list[Value], list[Value]]:
        found = ops.unary("tanh", ops.binary("add", states[0], slices[0]))
        return [found], []

    states, _ = ops.loop(step, 4, [start], [x])
    graph = _fused(states[0], inputs=(x, start))
    assert labels(graph.nodes[0].operation.body) == ["add+tanh"]  # type: ignore[union-attr]


@pytest.mark.parametrize("activation", ["relu", "silu", "residual"])
def test_spaces_have_the_structures_of_the_reduction_alone(activation: str) -> None:
    x, other = _image(16), _image(16, "other")
    y = _convolved(x, 16)
    behind = {
        "relu": lambda: ops.clamp(y, 0),
        "silu": lambda: ops.binary("mul", y, ops.unary("sigmoid", y)),
        "residual": lambda: ops.clamp(ops.binary("add", y, other), 0),
    }
    (workload,) = _workloads(_fused(behind[activation](), inputs=(x, other)))
    convolution = y.node.operands[0].node.operation  # type: ignore[union-attr]
    assert isinstance(convolution, Workload)
    assert _structures(workload) == _structures(convolution)


def _structures(workload: Workload) -> list[str]:
    limits = NativeBackend().limits(MACHINE)
    return [it.name for it in SketchSpace(workload, MACHINE, limits).sketches()]


def test_constants_stay_marked() -> None:
    x = _image()
    (workload,) = _workloads(_fused(_convolved(x), inputs=(x,)))
    assert [it.constant for it in workload.inputs] == [False, True, True]


def test_equal_blocks_are_equal_workloads() -> None:
    x = _image()
    first = ops.clamp(_convolved(x), 0)
    second = ops.clamp(_convolved(first), 0)
    one, other = _workloads(_fused(second, inputs=(x,)))
    assert one.digest == other.digest and one.spelling == other.spelling


def test_numbers_are_read_once_from_where_two_operations_read_them() -> None:
    x, shared = input_value("x", (4, 6), "float32"), weights(6)
    y = ops.binary("mul", ops.binary("add", x, shared), shared)
    (node,) = _fused(y, inputs=(x,)).nodes
    assert len(node.operands) == 2
    given = {"x": np.ones((4, 6), np.float32)}
    expected = (1 + np.asarray(shared.constant)) * np.asarray(shared.constant)
    graph = Graph((x,), {"y": y})
    assert np.allclose(evaluate(fuse(graph, MACHINE)[0], given)["y"][0], expected)


def test_groups_that_are_alike_are_one_workload() -> None:
    """Reads may differ; which of them is constant makes a difference."""
    x, y = input_value("x", (8, 16), "float32"), input_value("y", (16, 16), "float32")

    def layer(value: Value, weight: Value) -> Value:
        return ops.unary("tanh", ops.binary("add", ops.matmul(value, weight), weights(16, seed=1)))

    out = layer(layer(layer(x, weights(16, 16)), weights(16, 16, seed=2)), y)
    first, second, third = _workloads(_fused(out, inputs=(x, y)))
    assert first is second and third is not second
    assert [it.constant for it in second.inputs] == [False, True, True]
    assert [it.constant for it in third.inputs] == [False, False, True]


def test_groups_with_zeros_of_other_signs_are_not_alike() -> None:
    x = input_value("x", (8, 16), "float32")
    one, other = (ops.unary("neg", ops.binary("mul", x, zero)) for zero in (0.0, -0.0))
    first, second = _workloads(_fused(one, other, inputs=(x,)))
    assert first != second


def test_branches_meet_where_they_are_joined() -> None:
    x = input_value("x", (4,), "float32")
    first = ops.unary("tanh", x)
    left, right = ops.unary("abs", first), ops.unary("neg", first)
    total = ops.binary("add", left, right)
    flow = Flow(Graph((x,), {"y": total}))
    assert [node.label for node in flow.nodes] == ["tanh", "abs", "neg", "add"]
    assert [flow.meeting(it) for it in range(4)] == [3, 3, 3, None]
    assert flow.between(0, 3) == [1, 2]
    returned = Flow(Graph((x,), {"y": total, "z": left}))
    assert returned.meeting(returned.place[id(left.node)]) is None
    assert returned.meeting(0) is None


@given(random_graphs())
@settings(max_examples=40)
def test_no_way_to_an_output_goes_past_the_meeting(graph: Graph) -> None:
    flow = Flow(graph)
    for number in range(len(flow.nodes)):
        meeting = flow.meeting(number)
        if meeting is not None:
            assert not any(flow.is_returned(it) for it in (number, *flow.between(number, meeting)))
            assert all(it <= meeting for it in flow.between(number, meeting))
            ends = (it for here in flow.between(number, meeting) for it in flow.readers[here])
            assert {*ends} <= {meeting, *flow.between(number, meeting)}
