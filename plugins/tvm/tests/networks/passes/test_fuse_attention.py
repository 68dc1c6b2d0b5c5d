"""Attention in what exporters write: it becomes one program, or stays as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module
from autotune_tvm.networks.passes.attention_masks import triangle
from autotune_tvm.networks.passes.attention_program import Triangle
from autotune_tvm.networks.passes.fuse_attention import fuse_attention
from relax_networks import Array, const, network, op, operators, run, weights
from tvm import relax

from autotune.ir.workloads import Workload
from autotune.ir.workloads.inputs import random_inputs
from autotune.sketches import BoundLoop, Candidate
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu, preset
from autotune.testing.programs import check_candidate

BACKEND = TVMBackend()
CPU = preset("skylake-avx512-4core")
N, D = 16, 16
HEADS = (2, 3)
SHAPES = [((*HEADS, N, D), "float32")] * 3
CAUSAL = np.tri(N, dtype=bool)
HIDDEN, LOWEST = -math.inf, float(np.finfo(np.float32).min)

Emit = Callable[[Any], Any]
Body = Callable[..., Any]


def number(value: float) -> Any:
    return const(np.array(value, np.float32))


def added(low: float) -> Array:
    """A causal mask that is added."""
    return np.where(CAUSAL, 0, low).astype(np.float32)


def turned(emit: Emit, keys: Any) -> Any:
    return emit(op.permute_dims(keys, [0, 1, 3, 2]))


def as_onnx(masked: Callable[[Emit, Any], Any] = lambda emit, scores: scores) -> Body:
    """Scores that are divided, in the shape of the heads."""

    def body(emit: Emit, q: Any, k: Any, v: Any, *others: Any) -> Any:
        scores = emit(op.divide(emit(op.matmul(q, turned(emit, k))), number(4.0)))
        found = emit(op.nn.softmax(masked(emit, scores, *others), axis=-1))
        return emit(op.matmul(found, v))

    return body


def as_torch(mask: Callable[[Emit, Any], Any] | None, *, axis: int = -1) -> Body:
    """Both factors scaled, one axis of heads for products, zeros where nothing is shown."""

    def body(emit: Emit, q: Any, k: Any, v: Any, *others: Any) -> Any:
        flat = [emit(op.multiply(q, number(0.5))), emit(op.multiply(turned(emit, k), number(0.5)))]
        flat = [emit(op.broadcast_to(it, it.ty.shape)) for it in (*flat, v)]
        shapes = [(6, N, D), (6, D, N), (6, N, D)]
        q, k, v = (emit(op.reshape(it, shape)) for it, shape in zip(flat, shapes, strict=True))
        scores = emit(op.reshape(emit(op.matmul(q, k)), (*HEADS, N, N)))
        if mask is not None:
            scores = emit(op.add(scores, mask(emit, *others)))
        found = emit(op.nn.softmax(scores, axis=axis))
        shown = emit(op.logical_not(emit(op.equal(scores, number(HIDDEN)))))
        most = emit(op.max(emit(op.astype(shown, "int8")), axis=[-1], keepdims=True))
        nothing = emit(op.logical_not(emit(op.astype(most, "bool"))))
        found = emit(op.where(nothing, number(0.0), found))
        found = emit(op.matmul(emit(op.reshape(found, (6, N, N))), v))
        return emit(op.reshape(found, (*HEADS, N, D)))

    return body


def compared(emit: Emit) -> Any:
    """A causal mask that is computed, and was too large to be folded."""
    keys, queries = (
        emit(op.expand_dims(emit(op.arange(0, N, 1, "int64")), axis)) for axis in (0, 1)
    )
    return emit(op.less_equal(emit(op.subtract(keys, queries)), relax.const(0, "int64")))


def padded(emit: Emit, padding: Any) -> Any:
    """A causal mask that also hides what ``padding`` [batch, keys] says."""
    kept = emit(op.reshape(emit(op.greater(padding, number(0.0))), (2, 1, 1, N)))
    both = emit(op.logical_and(compared(emit), kept))
    return emit(op.where(both, number(0.0), number(HIDDEN)))


def selected(emit: Emit, scores: Any) -> Any:
    """``masked_fill`` of what is above the diagonal, and a bias of each head."""
    biased = emit(op.add(const(weights(3, 1, N)), scores))
    return emit(op.where(const(~CAUSAL), number(HIDDEN), biased))


PADDING = [*SHAPES, ((2, N), "float32")]
BIAS = [*SHAPES, ((2, 1, N, N), "float32")]
WHOLE_BIAS = [*SHAPES, ((2, 3, N, N), "float32")]


def fused(module: Any, tolerance: float = 1e-5) -> Any:
    """The module with one program, which computes the same."""
    after, note = fuse_attention(module, CPU, least_keys=1)
    assert note == "1 attentions"
    assert set(operators(after)) <= {"reshape", "call_tir", "permute_dims", "greater"}
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, it.ty.shape)) for it in module["main"].params]
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    (want,), (got,) = run(module, *inputs), run(after, *inputs)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return after


def workload_of(module: Any) -> Workload:
    return import_module(module["attention"])[0]


def bounded_loops(workload: Workload) -> int:
    """Loops that end where a causal mask hides the rest, in tiles of queries."""
    space = SketchSpace(workload, CPU, BACKEND.limits(CPU))
    (sketch,) = (it for it in space.sketches() if it.name == "attention-tiles")
    return sum(isinstance(step, BoundLoop) for step in sketch.steps)


@pytest.mark.parametrize(
    ("shapes", "body", "is_causal"),
    [
        (SHAPES, as_onnx(), False),
        (SHAPES, as_torch(None), False),
        (SHAPES, as_torch(lambda emit: const(added(HIDDEN))), True),
        (SHAPES, as_onnx(lambda emit, it: emit(op.add(it, const(added(LOWEST))))), True),
        (SHAPES, as_onnx(lambda emit, it: emit(op.add(it, const(added(-1e9))))), False),
        (SHAPES, as_onnx(selected), True),
        (PADDING, as_torch(padded), True),
        (
            SHAPES,
            as_torch(lambda emit: emit(op.where(compared(emit), number(0.0), number(HIDDEN)))),
            True,
        ),
        (BIAS, as_torch(lambda emit, bias: bias), False),
        (WHOLE_BIAS, as_onnx(lambda emit, it, bias: emit(op.add(bias, it))), False),
    ],
    ids=[
        *("onnx", "torch", "causal", "lowest", "low", "selected", "padded", "compared", "biased"),
        "biased by an input of each score",
    ],
)
def test_an_attention_becomes_one_program(shapes: Any, body: Body, is_causal: bool) -> None:
    after = fused(network(shapes, body))
    assert (bounded_loops(workload_of(after)) > 0) == is_causal


@pytest.mark.parametrize(
    ("shapes", "body"),
    [(SHAPES, as_torch(lambda emit: const(added(HIDDEN)))), (PADDING, as_torch(padded))],
    ids=["causal", "padded"],
)
def test_tiles_of_queries_compute_the_same(shapes: Any, body: Body) -> None:
    """Also where all keys that a query is shown are hidden by padding."""
    machine = detect_cpu()
    after, _ = fuse_attention(network(shapes, body), machine)
    imported = BACKEND.import_program(after["attention"])
    space = SketchSpace(imported.workload, machine, BACKEND.limits(machine))
    (sketch,) = (it for it in space.sketches() if it.name == "attention-tiles")
    (row,) = space.feasible_set(sketch).uniform(1, 0).tolist()
    inputs = random_inputs(imported.workload, np.random.default_rng(0))
    for padding in (it for it in inputs.values() if it.dtype == np.bool_):
        padding[0, ..., :3] = False
    candidate = Candidate(sketch, tuple(row))
    check_candidate(BACKEND, candidate, machine, inputs, program=imported.program)


def test_keys_that_are_transposed_already_are_read_so() -> None:
    def body(emit: Emit, q: Any, k: Any, v: Any, *bias: Any) -> Any:
        scores = emit(op.add(emit(op.matmul(q, k)), bias[0] if bias else const(added(HIDDEN))))
        return emit(op.matmul(emit(op.nn.softmax(scores, axis=-1)), v))

    shapes = [((2, N, 32), "float32"), ((2, 32, N), "float32"), ((2, N, 48), "float32")]
    scores = workload_of(fused(network(shapes, body))).stages[0]
    (keys,) = (it for it in scores.loads if it.tensor == scores.reads[1])
    assert [str(index) for index in keys.indices] == ["h", "d", "j"]
    # Without a causal mask it would not pay.
    without = network([*shapes, ((N, N), "float32")], body)
    assert fuse_attention(without, CPU, least_keys=1)[1] == ""


QUERIES, HELD = (2, 6, N, D), (2, 3, N, D)
GROUPED = [(QUERIES, "float32"), (HELD, "float32"), (HELD, "float32")]


def copied(emit: Emit, held: Any, copies: int = 2) -> Any:
    """Heads of keys or values, each for so many heads of queries that are next to one another."""
    batch, groups, keys, width = (int(n) for n in held.ty.shape)
    apart = emit(op.expand_dims(held, 2))
    spread = emit(op.broadcast_to(apart, (batch, groups, copies, keys, width)))
    return emit(op.reshape(spread, (batch, groups * copies, keys, width)))


def repeated(emit: Emit, held: Any) -> Any:
    return emit(op.repeat(held, 2, 1))


def grouped(
    copy: Callable[[Emit, Any], Any],
    copy_values: Callable[[Emit, Any], Any],
    mask: Callable[..., Any],
) -> Body:
    def body(emit: Emit, q: Any, k: Any, v: Any, *others: Any) -> Any:
        keys = turned(emit, emit(op.multiply(copy(emit, k), number(0.5))))
        scores = emit(op.add(emit(op.matmul(q, keys)), mask(emit, *others)))
        found = emit(op.nn.softmax(scores, axis=-1))
        return emit(op.matmul(found, copy_values(emit, v)))

    return body


def causal(_emit: Emit) -> Any:
    return const(added(HIDDEN))


def bias_of_heads(_emit: Emit, bias: Any) -> Any:
    return bias


@pytest.mark.parametrize(
    ("shapes", "copy", "mask"),
    [
        (GROUPED, copied, causal),
        (GROUPED, repeated, causal),
        ([*GROUPED, ((2, N), "float32")], copied, padded),
        ([*GROUPED, ((6, N, N), "float32")], copied, bias_of_heads),
        ([*GROUPED, ((2, 6, N, N), "float32")], copied, bias_of_heads),
    ],
    ids=["expanded", "repeated", "padded", "heads", "batch"],
)
def test_heads_that_share_keys_read_them_where_they_are(
    shapes: Any, copy: Callable[[Emit, Any], Any], mask: Callable[..., Any]
) -> None:
    after = fused(network(shapes, grouped(copy, copy, mask)))
    workload = workload_of(after)
    scores, mixed = workload.stages[0], workload.stages[-1]
    arguments = {it.name: it.shape for it in workload.inputs}
    assert mixed.output.shape == (6, 2, N, D)
    for stage in (scores, mixed):
        (held,) = (it for it in stage.loads if it.tensor == stage.reads[1])
        assert arguments[held.tensor] == (6, N, D)
        assert str(held.indices[0]) == "g"
    assert (bounded_loops(workload) > 0) == (mask is not bias_of_heads)


def test_heads_that_share_transposed_keys_read_them_so() -> None:
    def body(emit: Emit, q: Any, k: Any, v: Any) -> Any:
        scores = emit(op.add(emit(op.matmul(q, copied(emit, k))), causal(emit)))
        return emit(op.matmul(emit(op.nn.softmax(scores, axis=-1)), copied(emit, v)))

    shapes = [((2, 6, N, 32), "float32"), ((2, 3, 32, N), "float32"), (HELD, "float32")]
    scores = workload_of(fused(network(shapes, body))).stages[0]
    (keys,) = (it for it in scores.loads if it.tensor == scores.reads[1])
    assert [str(index) for index in keys.indices] == ["g", "d", "j"]


def copied_beside_tokens(emit: Emit, held: Any) -> Any:
    """Copied where heads are the axis after that of keys, which they change places with then."""
    batch, groups, keys, width = (int(n) for n in held.ty.shape)
    rows = emit(op.permute_dims(held, [0, 2, 1, 3]))
    apart = emit(op.reshape(rows, (batch, keys, groups, 1, width)))
    spread = emit(op.broadcast_to(apart, (batch, keys, groups, 2, width)))
    beside = emit(op.reshape(spread, (batch, keys, groups * 2, width)))
    return emit(op.permute_dims(beside, [0, 2, 1, 3]))


def copied_by_products(emit: Emit, q: Any, k: Any, v: Any) -> Any:
    """Queries have an axis of heads that share keys; products broadcast these."""
    q = emit(op.reshape(q, (2, 3, 2, N, D)))
    k, v = (emit(op.reshape(it, (2, 3, 1, N, D))) for it in (k, v))
    scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 2, 4, 3]))))
    found = emit(op.nn.softmax(emit(op.add(scores, causal(emit))), axis=-1))
    return emit(op.reshape(emit(op.matmul(found, v)), (2, 6, N, D)))


def copied_when_transposed(emit: Emit, q: Any, k: Any, v: Any) -> Any:
    """Keys are transposed before they are copied, as torch broadcasts them for a product."""
    k, v = (emit(op.reshape(it, (2, 3, 1, N, D))) for it in (k, v))
    k = emit(op.permute_dims(k, [0, 1, 2, 4, 3]))
    shapes = (2, 3, 2, D, N), (2, 3, 2, N, D)
    k, v = (emit(op.broadcast_to(it, to)) for it, to in zip((k, v), shapes, strict=True))
    k, v = emit(op.reshape(k, (12, D, N))), emit(op.reshape(v, (12, N, D)))
    scores = emit(op.matmul(emit(op.reshape(q, (12, N, D))), k))
    found = emit(op.nn.softmax(emit(op.add(scores, causal(emit))), axis=-1))
    return emit(op.reshape(emit(op.matmul(found, v)), (2, 6, N, D)))


@pytest.mark.parametrize(
    "body",
    [
        grouped(copied_beside_tokens, copied_beside_tokens, causal),
        copied_by_products,
        copied_when_transposed,
    ],
    ids=["beside tokens", "by products", "transposed"],
)
def test_other_ways_to_share_keys(body: Body) -> None:
    workload = workload_of(fused(network(GROUPED, body)))
    assert [it.shape for it in workload.inputs] == [(6, 2, N, D), (6, N, D), (6, N, D)]
    (keys,) = (it for it in workload.stages[0].loads if it.tensor == workload.inputs[1].name)
    assert [str(index) for index in keys.indices] == ["g", "j", "d"]


def test_products_that_broadcast_keys_and_values_differently_stay() -> None:
    def body(emit: Emit, q: Any, k: Any, v: Any) -> Any:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        found = emit(op.nn.softmax(emit(op.add(scores, causal(emit))), axis=-1))
        return emit(op.matmul(found, v))

    shapes = [((2, 6, N, D), "float32"), ((2, 1, N, D), "float32"), ((1, 1, N, D), "float32")]
    assert fuse_attention(network(shapes, body), CPU, least_keys=1)[1] == ""


@pytest.mark.parametrize(
    ("copy", "copy_values"),
    [
        (copied, lambda emit, it: emit(op.tile(it, (1, 2, 1, 1)))),
        (lambda emit, it: emit(op.concat([it, it], 1)), copied),
    ],
    ids=["tiled", "concatenated"],
)
def test_heads_that_are_copied_in_another_order_stay_copied(
    copy: Callable[[Emit, Any], Any], copy_values: Callable[[Emit, Any], Any]
) -> None:
    module = network(GROUPED, grouped(copy, copy_values, causal))
    after, note = fuse_attention(module, CPU, least_keys=1)
    assert note == "1 attentions"
    assert workload_of(after).stages[-1].output.shape == (12, N, D)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape, _ in GROUPED]
    (want,), (got,) = run(module, *inputs), run(after, *inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_tiles_of_queries_of_heads_that_share_keys_compute_the_same() -> None:
    machine = detect_cpu()
    shapes = [*GROUPED, ((2, N), "float32")]
    after, _ = fuse_attention(network(shapes, grouped(copied, copied, padded)), machine)
    imported = BACKEND.import_program(after["attention"])
    space = SketchSpace(imported.workload, machine, BACKEND.limits(machine))
    (sketch,) = (it for it in space.sketches() if it.name == "attention-tiles")
    (row,) = space.feasible_set(sketch).uniform(1, 0).tolist()
    inputs = random_inputs(imported.workload, np.random.default_rng(0))
    candidate = Candidate(sketch, tuple(row))
    check_candidate(BACKEND, candidate, machine, inputs, program=imported.program)


@pytest.mark.parametrize(("keys", "is_fused"), [(128, False), (256, True)])
def test_scores_of_few_keys_are_in_the_caches_anyway(keys: int, is_fused: bool) -> None:
    heads = ((1, 1, keys, D), "float32")
    _, note = fuse_attention(network([heads] * 3, as_onnx()), CPU)
    assert bool(note) == is_fused


def test_casts_are_where_they_were() -> None:
    def body(emit: Emit, q: Any, k: Any, v: Any) -> Any:
        scores = emit(op.astype(emit(op.matmul(q, turned(emit, k))), "float16"))
        scores = emit(op.divide(scores, const(np.array(4.0, np.float16))))
        found = emit(op.nn.softmax(emit(op.astype(scores, "float32")), axis=-1))
        found = emit(op.astype(emit(op.astype(found, "float16")), "float32"))
        return emit(op.matmul(found, v))

    _, masked, *_, weight, _ = workload_of(fused(network(SHAPES, body), 1e-3)).stages
    for stage in (masked, weight):
        assert "float16" in str(stage.body) and stage.output.dtype == "float32"


def _halves(emit: Emit, *heads: Any) -> Any:
    q, k, v = (emit(op.astype(it, "float16")) for it in heads)
    scores = emit(op.matmul(q, turned(emit, k), out_dtype="float32"))
    found = emit(op.astype(emit(op.nn.softmax(scores, axis=-1)), "float16"))
    return emit(op.matmul(found, v, out_dtype="float32"))


def _scores_elsewhere(emit: Emit, q: Any, k: Any, v: Any) -> Any:
    scores = emit(op.matmul(q, turned(emit, k)))
    found = emit(op.matmul(emit(op.nn.softmax(scores, axis=-1)), v))
    return emit(op.add(found, emit(op.sum(scores, axis=[-1], keepdims=True))))


def _weights_elsewhere(emit: Emit, q: Any, k: Any, v: Any) -> Any:
    found = emit(op.nn.softmax(emit(op.matmul(q, turned(emit, k))), axis=-1))
    return emit(op.add(emit(op.matmul(found, v)), emit(op.sum(found, axis=[-1], keepdims=True))))


def _values_of_all_heads(emit: Emit, q: Any, k: Any, v: Any) -> Any:
    found = emit(op.nn.softmax(emit(op.matmul(q, turned(emit, k))), axis=-1))
    pairs = [emit(op.reshape(found, (6, 1, N, N))), emit(op.reshape(v, (1, 6, N, D)))]
    return emit(op.matmul(*pairs))


def _other_operator(emit: Emit, scores: Any) -> Any:
    return emit(op.tanh(scores))


def _along_keys(emit: Emit, scores: Any) -> Any:
    return emit(op.permute_dims(scores, [0, 1, 3, 2]))


ODD = [((*HEADS, 17, D), "float32")] * 3


@pytest.mark.parametrize(
    ("shapes", "body"),
    [
        (SHAPES, _scores_elsewhere),
        (SHAPES, _weights_elsewhere),
        (SHAPES, _values_of_all_heads),
        (SHAPES, _halves),
        (SHAPES, as_torch(None, axis=-2)),
        (SHAPES, as_onnx(_other_operator)),
        (SHAPES, as_onnx(_along_keys)),
        (ODD, as_onnx()),
    ],
    ids=["scores", "weights", "values", "halves", "axis", "operator", "turned", "no tiles"],
)
def test_what_is_something_else_stays(shapes: Any, body: Body) -> None:
    module = network(shapes, body)
    after, note = fuse_attention(module, CPU, least_keys=1)
    assert note == "" and operators(after) == operators(module)


def test_a_gpu_gets_no_tiles_of_queries() -> None:
    module = network(SHAPES, as_torch(lambda emit: const(added(HIDDEN))))
    assert fuse_attention(module, preset("a100")) == (module, "")


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (CAUSAL, Triangle(0, True, False)),
        (~np.tri(N, k=2, dtype=bool)[None], Triangle(2, False, True)),
        (np.tri(4, N, k=N - 4, dtype=np.float32), Triangle(N - 4, 1.0, 0.0)),
        (np.tri(N, k=-1, dtype=bool), None),  # the first query sees nothing
        (np.ones((N, N), np.bool_), None),
        (np.tri(N, dtype=bool).T, None),
        (np.tri(N)[:, None], None),
        (np.stack([CAUSAL, CAUSAL]), None),
        (np.where(CAUSAL, np.arange(N), -1), None),
    ],
)
def test_constants_that_are_causal_masks(array: Array, wanted: Triangle | None) -> None:
    assert triangle(array, (*HEADS, *array.shape[-2:])) == wanted
