"""Attention in what exporters and people write: it becomes one workload, or stays as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import workloads
from autotune.backends.native import NativeBackend
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.networks import graph as ops
from autotune.networks.graph import Graph, Value, constant, evaluate, input_value
from autotune.networks.passes.attention_weights import Band, band_of
from autotune.networks.passes.fuse_attention import fuse_attention, fused
from autotune.networks.plan.cpu_network import compile_network
from autotune.sketches import BoundLoop, Candidate
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu, preset
from tests.support.attention_graphs import (
    LAYOUTS,
    MASKS,
    SCALES,
    SOFTMAXES,
    Attention,
    attention_graph,
)
from tests.support.network_graphs import drawn

CPU = preset("skylake-avx512-4core")
TOLERANCES = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 0.15}


def _small(value: Value, seed: int) -> Any:
    """Elements whose products have an absolute error that is small in halves, too."""
    found = drawn(value.shape, value.dtype, seed)
    element = element_type(value.dtype)
    return element.stored(element.numbers(found) / 6) if element.is_float else found


def _whole(graph: Graph) -> tuple[Graph, Workload]:
    """The graph with one attention, which computes the same, and its workload."""
    after, count = fused(graph, lambda attention: True)
    assert count == 1
    (found,) = (
        it.operation
        for it in after.nodes
        if isinstance(it.operation, Workload) and it.operation.name == "attention"
    )
    others = {it.label for it in after.nodes} - {"attention", "reshape", "transpose"}
    assert others <= {"mul", "div"}  # queries and keys that are scaled in halves
    inputs = {it.name: _small(it, number) for number, it in enumerate(graph.inputs)}
    want, got = (
        element_type(it.outputs["y"].dtype).numbers(evaluate(it, inputs)["y"])
        for it in (graph, after)
    )
    tolerance = TOLERANCES[graph.outputs["y"].dtype]
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )
    return after, found


def _bounded(workload: Workload) -> int:
    """Loops that end where a causal mask hides the rest, in tiles of queries."""
    space = SketchSpace(workload, CPU, NativeBackend().limits(CPU))
    (sketch,) = (it for it in space.sketches() if it.name == "attention-tiles")
    return sum(isinstance(step, BoundLoop) for step in sketch.steps)


@st.composite
def _attentions(draw: st.DrawFn) -> Attention:
    def size(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    return Attention(
        batch=size(1, 3),
        groups=size(1, 3),
        copies=draw(st.sampled_from((1, 1, 2, 3))),
        rows=(rows := size(1, 6)),
        keys=draw(st.sampled_from((rows, rows + 3, 7))) + 1,
        width=size(1, 5),
        columns=size(1, 5),
        dtype=draw(st.sampled_from([*TOLERANCES])),
        scale=draw(st.sampled_from([*SCALES])),
        mask=draw(st.sampled_from([*MASKS])),
        softmax=draw(st.sampled_from([*SOFTMAXES])),
        layout=draw(st.sampled_from([*LAYOUTS])),
    )


@settings(max_examples=60)
@given(_attentions())
def test_an_attention_becomes_one_workload(written: Attention) -> None:
    _whole(attention_graph(written))


@pytest.mark.parametrize("scale", [*SCALES][:4])
@pytest.mark.parametrize("layout", [*LAYOUTS])
def test_it_is_the_workload_of_the_builder(scale: str, layout: str) -> None:
    graph = attention_graph(Attention(scale=scale, layout=layout))
    assert _whole(graph)[1].digest == workloads.attention(h=4, n=16, d=8).digest


@pytest.mark.parametrize("mask", ["causal", "lowest", "selected", "window", "causal and padded"])
@pytest.mark.parametrize("copies", [1, 2])
def test_loops_end_where_a_causal_mask_hides_the_rest(mask: str, copies: int) -> None:
    written = Attention(mask=mask, copies=copies, width=16, columns=16)
    assert _bounded(_whole(attention_graph(written))[1]) > 0


@pytest.mark.parametrize("mask", ["none", "padded", "added", "added to each head"])
def test_other_masks_hide_nothing_for_sure(mask: str) -> None:
    written = Attention(mask=mask, width=16, columns=16)
    assert _bounded(_whole(attention_graph(written))[1]) == 0


@pytest.mark.parametrize("layout", [*LAYOUTS])
def test_heads_that_share_keys_read_them_where_they_are(layout: str) -> None:
    written = Attention(groups=3, copies=2, layout=layout, columns=6)
    _, workload = _whole(attention_graph(written))
    assert [it.shape for it in workload.inputs] == [(6, 2, 16, 8), (6, 16, 8), (6, 16, 6)]


def test_keys_that_are_given_transposed_are_read_so() -> None:
    q, k, v = (
        input_value(name, shape, "float32")
        for name, shape in (("q", (2, 16, 32)), ("k", (2, 32, 16)), ("v", (2, 16, 48)))
    )
    weights = ops.softmax(ops.matmul(q, k), -1)
    after, workload = _whole(Graph((q, k, v), {"y": ops.matmul(weights, v)}))
    assert len(after.nodes) == 1
    (keys,) = (it for it in workload.stages[0].loads if it.tensor == workload.inputs[1].name)
    assert [str(index) for index in keys.indices] == ["h", "k", "j"]


def test_what_moved_the_operands_is_not_done_again() -> None:
    graph = attention_graph(Attention(layout="tokens"))
    after, _ = _whole(graph)
    assert sum(it.label == "transpose" for it in after.nodes) == 4


def _weights(scores: Value) -> Value:
    return ops.softmax(scores, -1)


def _other(name: str) -> Graph:
    """What is no attention, or no whole one."""
    q, k, v = (input_value(it, (2, 16, 16), "float32") for it in "qkv")
    scores = ops.matmul(q, ops.transpose(k, [0, 2, 1]))
    weights = ops.softmax(scores, 1 if name == "along queries" else 2)
    if name == "turned":
        weights = ops.transpose(_weights(scores), [0, 2, 1])
    if name == "mixed rows":
        weights = ops.softmax(ops.binary("add", scores, ops.flip(scores, [1])), -1)
    if name == "gathered":
        weights = ops.softmax(ops.take(scores, input_value("at", (16,), "int64"), 2), -1)
    if name == "values of scores":
        v = scores
    if name == "no exponentials":
        weights = ops.binary("div", scores, ops.reduce("add", scores, [-1]))
    if name == "without rows":
        weights = ops.unary("exp", scores)
    outputs = {"y": ops.matmul(weights, v)}
    if name == "scores elsewhere":
        outputs["z"] = ops.reduce("add", scores, [-1])
    if name == "weights elsewhere":
        outputs["z"] = weights
    inputs = [it for it in (q, k, v) if it.is_input]
    extra = [input_value("at", (16,), "int64")] if name == "gathered" else []
    return Graph((*inputs, *extra), outputs)


@pytest.mark.parametrize(
    "name",
    [
        *("along queries", "turned", "mixed rows", "gathered", "values of scores"),
        *("no exponentials", "without rows", "scores elsewhere", "weights elsewhere"),
    ],
)
def test_what_is_something_else_stays(name: str) -> None:
    graph = _other(name)
    assert fused(graph, lambda attention: True) == (graph, 0)


def test_products_that_broadcast_keys_and_values_differently_stay() -> None:
    q, k, v = (
        input_value(name, shape, "float32")
        for name, shape in (("q", (2, 6, 8, 4)), ("k", (2, 1, 8, 4)), ("v", (1, 1, 8, 4)))
    )
    scores = ops.matmul(q, ops.transpose(k, [0, 1, 3, 2]))
    graph = Graph((q, k, v), {"y": ops.matmul(_weights(scores), v)})
    assert fused(graph, lambda attention: True) == (graph, 0)


def test_heads_that_are_copied_in_another_order_stay_copied() -> None:
    q, k, v = (
        input_value(name, (2, heads, 8, 4), "float32")
        for name, heads in (("q", 6), ("k", 3), ("v", 3))
    )
    keys, values = ops.tile(k, (1, 2, 1, 1)), ops.tile(v, (1, 2, 1, 1))
    scores = ops.matmul(q, ops.transpose(keys, [0, 1, 3, 2]))
    graph = Graph((q, k, v), {"y": ops.matmul(_weights(scores), values)})
    after, count = fused(graph, lambda attention: True)
    assert count == 1
    inputs = {it.name: drawn(it.shape, it.dtype) for it in graph.inputs}
    np.testing.assert_allclose(
        evaluate(after, inputs)["y"], evaluate(graph, inputs)["y"], rtol=1e-5, atol=1e-5
    )


def test_attentions_of_layers_and_of_loops_are_all_found() -> None:
    x, w = input_value("x", (3, 4, 8), "float32"), input_value("w", (4, 8), "float32")

    def attended(rows: Value) -> Value:
        return ops.matmul(_weights(ops.matmul(rows, ops.transpose(rows))), rows)

    def step(
        states: list[Value], slices: list[Value], fixed: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        return [attended(ops.binary("add", attended(states[0]), slices[0]))], []

    (last,), _ = ops.loop(step, 3, [w], [x])
    graph = Graph((x, w), {"y": attended(last)})
    after, count = fused(graph, lambda attention: True)
    assert count == 3
    inputs = {it.name: drawn(it.shape, it.dtype) for it in graph.inputs}
    np.testing.assert_allclose(
        evaluate(after, inputs)["y"], evaluate(graph, inputs)["y"], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("written", "is_chosen"),
    [
        (Attention(keys=256, rows=256, width=16), True),
        (Attention(keys=128, rows=128, width=16), False),
        (Attention(mask="causal", width=16, columns=16), True),
        (Attention(mask="causal", width=16, columns=16, dtype="float16"), False),
        (Attention(mask="causal", rows=17, keys=17), False),
    ],
    ids=["many keys", "few keys", "causal", "halves", "no tiles"],
)
def test_only_what_is_faster_so_is_chosen(written: Attention, is_chosen: bool) -> None:
    graph = attention_graph(written)
    after, note = fuse_attention(graph, CPU)
    assert (note, after is graph) == (("1 attentions", False) if is_chosen else ("", True))


def test_a_gpu_gets_no_tiles_of_queries() -> None:
    graph = attention_graph(Attention(mask="causal", width=16, columns=16))
    assert fuse_attention(graph, preset("a100")) == (graph, "")


NEAR = np.abs(np.arange(8) - np.arange(8)[:, None]) <= 2


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.tri(8, dtype=bool), Band(None, 0, True, False)),
        (~np.tri(8, k=2, dtype=bool), Band(None, 2, False, True)),
        (np.tri(4, 8, k=4, dtype=np.float32), Band(None, 4, 1.0, 0.0)),
        (np.where(np.tri(8), 0, -math.inf), Band(None, 0, 0.0, -math.inf)),
        (NEAR, Band(-2, 2, True, False)),
        (NEAR & np.tri(8, dtype=bool), Band(-2, 0, True, False)),
        (np.tri(8, k=-1, dtype=bool), None),  # the first query sees nothing
        (np.ones((8, 8), np.bool_), None),
        (np.tri(8, dtype=bool).T, None),
        (np.where(np.tri(8), np.arange(8), -1), None),
        (np.where(NEAR & (np.arange(8) != 3), 1, 0), None),
    ],
)
def test_constants_that_are_bounds(array: Any, wanted: Band | None) -> None:
    assert band_of(constant(array), 0, 1) == wanted
    assert band_of(constant(np.stack([array, array])), 1, 2) == wanted
    assert band_of(constant(np.stack([array, array[::-1]])), 1, 2) is None


def test_scales_of_width_are_one_task() -> None:
    digests = {
        _whole(attention_graph(evolve(Attention(width=12), scale=scale)))[1].digest
        for scale in ("queries", "both", "keys", "divided")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("softmax", ["without NaN", "with zeros"])
@pytest.mark.parametrize("copies", [1, 2])
def test_tiles_of_queries_compute_the_same(softmax: str, copies: int) -> None:
    """Also where all keys that a query is shown are hidden by padding."""
    machine = detect_cpu()
    written = Attention(
        mask="causal and padded", softmax=softmax, copies=copies, width=16, columns=16
    )
    graph = attention_graph(written)
    after, _ = _whole(graph)
    inputs = {it.name: drawn(it.shape, it.dtype, number) for number, it in enumerate(graph.inputs)}
    inputs["shown"][0, :3] = False

    (workload,) = (it for it in after.workloads if it.name == "attention")
    space = SketchSpace(workload, machine, NativeBackend().limits(machine))
    (sketch,) = (it for it in space.sketches() if it.name == "attention-tiles")
    (row,) = space.feasible_set(sketch).uniform(1, 0).tolist()
    tiles = {workload.digest: Candidate(sketch, tuple(row))}
    want = evaluate(graph, inputs)["y"]
    assert not np.isnan(want).any()
    for found in (evaluate(after, inputs), compile_network(after, tiles, machine, 1).run(inputs)):
        np.testing.assert_allclose(found["y"], want, rtol=1e-4, atol=1e-5)
