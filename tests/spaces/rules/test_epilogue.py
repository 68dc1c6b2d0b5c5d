"""Which stages are fused into the tile of a reduction."""

from __future__ import annotations

from rule_sketches import (
    COLUMNS,
    DEPTH,
    ROWS,
    A,
    B,
    X,
    chain,
    exponential,
    load,
    matrix,
    pointwise,
    product,
    relu,
    sketches,
    steps_of,
)
from written import written

from autotune.ir.expressions import Binary
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, dense
from autotune.sketches import Accumulate, FuseConsumer, Inline


def test_the_last_stage_is_fused_into_the_tile_and_those_between_are_inlined() -> None:
    workload = dense(m=37, n=48, k=20)
    assert steps_of(workload, Inline) == {Inline("Z")}
    for sketch in sketches(workload):
        (fused,) = (step for step in sketch.steps if isinstance(step, FuseConsumer))
        assert (fused.stage, fused.producer) == ("R", "Y")
        assert not any(isinstance(step, Accumulate) for step in sketch.steps)


def fused_consumers(workload: Workload) -> set[tuple[str, str]]:
    pairs = [
        {(s.stage, s.producer) for s in sketch.steps if isinstance(s, FuseConsumer)}
        for sketch in sketches(workload)
    ]
    assert all(pair == pairs[0] for pair in pairs)
    return pairs[0]


def test_an_epilogue() -> None:
    workload = chain(product(), pointwise("R", exponential("C")), inputs=(A, B))
    assert fused_consumers(workload) == {("R", "C")}


def test_no_epilogue_when_the_reduction_is_returned() -> None:
    workload = chain(product(), pointwise("R", relu("C")), inputs=(A, B), outputs=("C", "R"))
    assert fused_consumers(workload) == set()


def test_no_epilogue_when_the_reduction_is_read_twice() -> None:
    workload = chain(
        product(),
        pointwise("R", relu("C")),
        pointwise("S", relu("C")),
        inputs=(A, B),
        outputs=("R", "S"),
    )
    assert fused_consumers(workload) == set()


def test_no_epilogue_across_a_transposition() -> None:
    texts = "C[i:32, j:48; k:20] += A[i, k] * B[k, j]", "R[j:48, i:32] = max(C[i, j], 0.0)"
    assert fused_consumers(written("A[32, 20], B[20, 48]", *texts)) == set()


def test_no_epilogue_through_an_expensive_stage() -> None:
    workload = chain(
        product(), pointwise("E", exponential("C")), pointwise("R", relu("E")), inputs=(A, B)
    )
    assert fused_consumers(workload) == set()
    assert steps_of(workload, Inline) == {Inline("E")}


def test_no_epilogue_over_two_reductions() -> None:
    body = Binary("add", load("C", "i", "j"), load("D", "i", "j"))
    workload = chain(product("C"), product("D"), pointwise("R", body), inputs=(A, B))
    assert fused_consumers(workload) == set()


def product_of(source: str) -> Stage:
    """The product of a stage's matrix with another one."""
    axes = (Axis("i", ROWS), Axis("n", DEPTH), Axis("j", COLUMNS, "reduce"))
    body = Binary("mul", load(source, "i", "j"), load("D", "j", "n"))
    return Stage(Tensor("Y", (ROWS, DEPTH), "float32"), axes, body, "add")


D = matrix("D", COLUMNS, DEPTH)


def test_what_is_expensive_is_computed_before_a_product_copies_it() -> None:
    stages = (product(), pointwise("Z", relu("C")), pointwise("E", exponential("Z")))
    workload = chain(*stages, product_of("E"), inputs=(A, B, D))
    assert fused_consumers(workload) == {("E", "C")}
    assert steps_of(workload, Inline) == {Inline("Z")}


def test_what_is_cheap_is_computed_where_a_product_copies_it() -> None:
    workload = chain(product(), pointwise("R", relu("C")), product_of("R"), inputs=(A, B, D))
    assert fused_consumers(workload) == set()


def test_what_reads_no_reduction_is_no_epilogue() -> None:
    workload = chain(pointwise("E", exponential("X")), product_of("E"), inputs=(X, D))
    assert fused_consumers(workload) == set()


def test_a_computed_bias_is_inlined_into_the_epilogue() -> None:
    body = Binary("add", load("C", "i", "j"), load("S", "i", "j"))
    stages = (product(), pointwise("S", relu("X")), pointwise("R", body))
    workload = chain(*stages, inputs=(A, B, X))
    assert fused_consumers(workload) == {("R", "C")}
    assert steps_of(workload, Inline) == {Inline("S")}
