"""Attention in what exporters and people write: it becomes one workload, or stays as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from network_graphs import drawn

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


@frozen
class Attention:
    """Form in which an attention is written.

    Attributes:
        batch, groups, copies: Sequences, heads of keys, and heads of queries for each of these.
        rows, keys, width, columns: Queries, keys, and widths of keys and of values.
        dtype: Type of all tensors.
        scale: One of :data:`SCALES`.
        mask: One of :data:`MASKS`.
        softmax: One of :data:`SOFTMAXES`.
        layout: One of :data:`LAYOUTS`.
    """

    batch: int = 2
    groups: int = 2
    copies: int = 1
    rows: int = 16
    keys: int = 16
    width: int = 8
    columns: int = 8
    dtype: str = "float32"
    scale: str = "divided"
    mask: str = "none"
    softmax: str = "one"
    layout: str = "heads"

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return self.groups * self.copies

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the scores."""
        return self.batch, self.heads, self.rows, self.keys


Scores = Callable[[Value], Value]


def attention_graph(it: Attention) -> Graph:
    """The graph, with queries, keys, values, and what masks read as inputs."""
    if it.layout in ("tokens", "einsum"):
        shapes = [
            (it.batch, it.rows, it.heads, it.width),
            (it.batch, it.keys, it.groups, it.width),
            (it.batch, it.keys, it.groups, it.columns),
        ]
    else:
        shapes = [
            (it.batch, it.heads, it.rows, it.width),
            (it.batch, it.groups, it.keys, it.width),
            (it.batch, it.groups, it.keys, it.columns),
        ]
    q, k, v = inputs = [
        input_value(n, shape, it.dtype) for n, shape in zip("qkv", shapes, strict=True)
    ]
    given = _mask_input(it)
    q, k, after = SCALES[it.scale](q, k, it)
    scores, weighted = LAYOUTS[it.layout](q, k, v, it)
    hidden = MASKS[it.mask](after(scores), it, *given)
    y = weighted(SOFTMAXES[it.softmax](hidden))
    return Graph((*inputs, *given), {"y": y})


def _scaled_scores(how: str) -> Callable[..., Any]:
    def scaled(q: Value, k: Value, it: Attention) -> tuple[Value, Value, Scores]:
        number = it.width**-0.5
        if how == "queries":
            return ops.binary("mul", q, number), k, lambda scores: scores
        if how == "both":
            root = math.sqrt(number)
            return ops.binary("mul", q, root), ops.binary("mul", k, root), lambda scores: scores
        if how == "keys":
            return q, ops.binary("div", k, math.sqrt(it.width)), lambda scores: scores
        if how == "divided":
            return q, k, lambda scores: ops.binary("div", scores, math.sqrt(it.width))
        return q, k, lambda scores: ops.binary("mul", constant(0.25, it.dtype), scores)

    return scaled


SCALES = {it: _scaled_scores(it) for it in ("queries", "both", "keys", "divided", "multiplied")}


def _copied(held: Value, it: Attention, axis: int) -> Value:
    """Heads of keys or values, each for all heads of queries of its group."""
    if it.copies == 1:
        return held
    apart = ops.unsqueeze(held, [axis + 1])
    spread = [*apart.shape]
    spread[axis + 1] = it.copies
    shape = [*held.shape]
    shape[axis] *= it.copies
    return ops.reshape(ops.broadcast(apart, spread), shape)


def _heads(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    keys = ops.transpose(_copied(k, it, 1), [0, 1, 3, 2])
    return ops.matmul(q, keys), lambda weights: ops.matmul(weights, _copied(v, it, 1))


def _flat(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    """Join heads in one axis for products, as torch exports them."""
    flat = it.batch * it.heads
    rows = ops.reshape(q, (flat, it.rows, it.width))
    columns = ops.reshape(
        ops.transpose(_copied(k, it, 1), [0, 1, 3, 2]), (flat, it.width, it.keys)
    )
    values = ops.reshape(_copied(v, it, 1), (flat, it.keys, it.columns))

    def weighted(weights: Value) -> Value:
        mixed = ops.matmul(ops.reshape(weights, (flat, it.rows, it.keys)), values)
        return ops.reshape(mixed, (it.batch, it.heads, it.rows, it.columns))

    return ops.reshape(ops.matmul(rows, columns), it.shape), weighted


def _tokens(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    """Heads beside tokens, and keys that change places once."""
    rows = ops.transpose(q, [0, 2, 1, 3])
    keys = ops.transpose(_copied(k, it, 2), [0, 2, 3, 1])
    values = ops.transpose(_copied(v, it, 2), [0, 2, 1, 3])

    def weighted(weights: Value) -> Value:
        return ops.transpose(ops.matmul(weights, values), [0, 2, 1, 3])

    return ops.matmul(rows, keys), weighted


def _einsum(q: Value, k: Value, v: Value, it: Attention) -> tuple[Value, Scores]:
    scores = ops.einsum("bqhd,bkhd->bhqk", q, _copied(k, it, 2))
    return scores, lambda weights: ops.einsum("bhqk,bkhd->bqhd", weights, _copied(v, it, 2))


LAYOUTS = {"heads": _heads, "flat": _flat, "tokens": _tokens, "einsum": _einsum}


def _mask_input(it: Attention) -> list[Value]:
    if it.mask in ("padded", "causal and padded"):
        return [input_value("shown", (it.batch, it.keys), "bool")]
    if it.mask in ("added", "added to each head"):
        heads = 1 if it.mask == "added" else it.heads
        return [input_value("bias", (it.batch, heads, it.rows, it.keys), it.dtype)]
    return []


def _distance(it: Attention) -> Any:
    """Distance of each key behind each query; the last key is beside the last query."""
    return np.arange(it.keys) - np.arange(it.rows)[:, None] - max(0, it.keys - it.rows)


def _added(low: float) -> Callable[..., Value]:
    def masked(scores: Value, it: Attention) -> Value:
        number = low
        if not math.isinf(low) and it.dtype == "float16":
            number = -65504.0
        return ops.binary(
            "add", scores, constant(np.where(_distance(it) <= 0, 0.0, number), it.dtype)
        )

    return masked


def _selected(scores: Value, it: Attention) -> Value:
    return ops.select(constant(_distance(it) > 0), -math.inf, scores)


def _window(scores: Value, it: Attention) -> Value:
    near = np.abs(_distance(it) + 1) <= 1
    return ops.select(constant(near), scores, -math.inf)


def _padded(scores: Value, it: Attention, shown: Value) -> Value:
    kept = ops.reshape(shown, (it.batch, 1, 1, it.keys))
    return ops.select(kept, scores, -1e9 if it.dtype == "float32" else -1e4)


def _both(scores: Value, it: Attention, shown: Value) -> Value:
    causal = constant(_distance(it)[None, None] <= 0)
    kept = ops.binary("and", causal, ops.reshape(shown, (it.batch, 1, 1, it.keys)))
    zeros = ops.select(kept, constant(0.0, it.dtype), -math.inf)
    return ops.binary("add", scores, ops.broadcast(zeros, it.shape))


def _bias(scores: Value, it: Attention, bias: Value) -> Value:
    return ops.binary("add", bias, scores)


MASKS: dict[str, Callable[..., Value]] = {
    "none": lambda scores, it: scores,
    "causal": _added(-math.inf),
    "lowest": _added(-3.3e38),
    "selected": _selected,
    "window": _window,
    "padded": _padded,
    "causal and padded": _both,
    "added": _bias,
    "added to each head": _bias,
}


def _decomposed(scores: Value) -> Value:
    largest = ops.reduce("max", scores, [-1])
    powers = ops.unary("exp", ops.binary("sub", scores, largest))
    return ops.binary("div", powers, ops.reduce("add", powers, [-1]))


def _of_rows(scores: Value) -> Value:
    """Build the softmax of ONNX before 13: of a matrix."""
    flat = ops.reshape(scores, (-1, scores.shape[-1]))
    return ops.reshape(ops.softmax(flat, -1), scores.shape)


def _without_nan(scores: Value) -> Value:
    found = ops.softmax(scores, -1)
    return ops.select(ops.elementwise(lambda w: w.differs(w), found), 0.0, found)


def _with_zeros(scores: Value) -> Value:
    """Zeros for queries that are shown nothing, as torch decomposes it."""
    shown = ops.elementwise(lambda s: ~s.equals(-math.inf), scores)
    some = ops.reduce("max", ops.cast(shown, "int8"), [-1])
    nothing = ops.elementwise(lambda s: ~s.cast("bool"), some)
    return ops.select(nothing, 0.0, ops.softmax(scores, -1))


SOFTMAXES: dict[str, Scores] = {
    "one": lambda scores: ops.softmax(scores, -1),
    "decomposed": _decomposed,
    "of rows": _of_rows,
    "without NaN": _without_nan,
    "with zeros": _with_zeros,
}


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
    """Graphs that are no attention, or no whole one."""
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
