"""Inputs of graphs: what indices and divisors may be, and small and large numbers."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload
from autotune.ir.workloads.builders import conv2d, gemm, softmax
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.networks import graph as ops
from autotune.networks.graph import (
    Graph,
    Value,
    Window,
    constant,
    convolution,
    evaluate,
    input_value,
    matmul,
)
from autotune.networks.graph_program import EDGES, draft_candidate, graph_examples, task_names
from autotune.sketches import CandidateBatch
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu


def test_indices_are_of_all_of_a_table() -> None:
    table = constant(np.arange(40, dtype=np.float32))
    given = input_value("at", (200,), "int64")
    y = ops.take(table, ops.cast(ops.reshape(given, (20, 10)), "int32"), 0)
    (drawn,) = graph_examples(graph := Graph((given,), {"y": y}))
    assert drawn.max() > 30 and drawn.min() < 10
    evaluate(graph, {"at": drawn})


def test_what_one_hot_vectors_are_made_of_is_of_all_of_their_length() -> None:
    given, compared = input_value("at", (200,), "int32"), input_value("to", (200, 1), "int64")
    off, on = (constant(np.array(it, np.float32)) for it in (0, 1))
    table = constant(np.arange(3, 40))
    y = ops.one_hot(given, 30, off, on)
    z = ops.cast(ops.binary("eq", compared, table), "float32")
    first, second = graph_examples(Graph((given, compared), {"y": y, "z": z}))
    assert first.min() == 0 and first.max() == 29
    assert second.min() == 3 and second.max() == 39


def test_indices_that_are_floats_or_computed_are_valid() -> None:
    table = constant(np.arange(4, dtype=np.float32))
    whole, computed = input_value("a", (50,), "float32"), input_value("b", (50,), "int64")
    y = ops.take(table, ops.cast(whole, "int64"), 0)
    z = ops.take(table, ops.binary("mul", computed, 2), 0)
    graph = Graph((whole, computed), {"y": y, "z": z})
    drawn = graph_examples(graph)
    evaluate(graph, dict(zip("ab", drawn, strict=True)))
    assert set(drawn[1].tolist()) == {0, 1} and drawn[0].dtype == np.float32


def test_divisors_are_not_zero_in_loops_either() -> None:
    x, by = input_value("x", (5, 30), "int32"), input_value("by", (5, 30), "int32")

    def step(
        states: list[Value], slices: list[Value], fixed: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        return [ops.binary("div", states[0], slices[0])], []

    (last,), _ = ops.loop(step, 5, [ops.slice_axis(x, 0, 0, 1)], [ops.unsqueeze(by, [1])])
    drawn = graph_examples(graph := Graph((x, by), {"y": last}))
    assert np.all(drawn[1]) and not np.all(drawn[0])
    evaluate(graph, dict(zip(("x", "by"), drawn, strict=True)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int64"])
def test_bytes_of_which_nothing_is_known_are_of_all_their_range(dtype: str) -> None:
    x = input_value("x", (500,), dtype)
    (drawn,) = graph_examples(Graph((x,), {"y": ops.cast(x, "float32")}))
    assert drawn.dtype == np.dtype(dtype)
    assert len(np.unique(drawn)) > 100 if "int8" in dtype else set(drawn.tolist()) == {0, 1}


def test_some_floats_are_small_and_large() -> None:
    x = input_value("x", (3000,), "float16")
    graph = Graph((x,), {"y": ops.unary("exp", x)})
    (plain,), (drawn,) = graph_examples(graph), graph_examples(graph, edges=True)
    edges = np.isin(drawn, np.array(EDGES, np.float16))
    assert 0.03 < edges.mean() < 0.1 and np.array_equal(plain[~edges], drawn[~edges])
    assert len(np.unique(drawn[edges])) == len(EDGES) - 1  # -0.0 is 0.0
    assert np.signbit(drawn[drawn == 0]).any() and not np.signbit(drawn[drawn == 0]).all()


def _of(value: Value, name: str = "") -> Workload:
    assert value.node is not None and isinstance(value.node.operation, Workload)
    return evolve(value.node.operation, name=name or value.node.operation.name)


def test_names_say_operators_and_windows_and_are_all_different() -> None:
    image = input_value("x", (1, 4, 8, 8), "float32")
    square = input_value("s", (4, 4), "float32")
    convolutions = [
        _of(
            convolution(
                image,
                input_value("w", (4, 4, *window), "float32"),
                Window(window, *[(1, 1), (0, 0), (0, 0), (1, 1)]),
            ),
            "convolution+add+max+min",
        )
        for window in ((3, 5), (1, 1), (3, 5))
    ]
    product = _of(matmul(square, square))
    long = evolve(product, name="+".join(["matmul", *["another"] * 9]))
    numbered = evolve(product, name="matmul+2")
    assert task_names([*convolutions, product, numbered, product, long]) == [
        "conv2d_3x5_add_clip",
        "conv2d_1x1_add_clip",
        "conv2d_3x5_add_clip_2",
        "matmul",
        "matmul_2",
        "matmul_3",
        "matmul_another_another_another_another",
    ]


MACHINE = detect_cpu().with_cores(2)
WORKLOADS = [
    gemm(m=128, n=96, k=64),
    conv2d(n=1, h=14, w=14, ci=32, co=64, kh=3, kw=3),
    softmax(m=64, n=128),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_a_draft_is_as_good_as_the_best_of_the_whole_space(workload: Workload) -> None:
    space = SketchSpace(workload, MACHINE, NativeBackend().limits(MACHINE))
    drafted = draft_candidate(workload, MACHINE)
    assert drafted is not None
    batch = CandidateBatch.of([drafted])
    assert space.contains(batch).all()
    model = PSA(ModelContext(target=MACHINE))
    others = model.score(space.sample(128, np.random.default_rng(0)))
    assert model.score(batch)[0] > 0.7 * np.nanmax(others)


def test_the_same_workload_gets_the_same_draft() -> None:
    first, second = (draft_candidate(gemm(m=64, n=64, k=64), MACHINE) for _ in range(2))
    assert first is not None and second is not None and first.digest == second.digest
