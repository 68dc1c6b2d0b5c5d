"""Which stages are fused into the tile of a reduction."""

from __future__ import annotations

from rule_sketches import (
    COLUMNS,
    ROWS,
    A,
    B,
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

from autotune.ir.expressions import Binary, Constant
from autotune.ir.workloads import Axis, Stage, Workload, dense
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
    turned = Stage(
        matrix("R", COLUMNS, ROWS),
        (Axis("j", COLUMNS), Axis("i", ROWS)),
        Binary("max", load("C", "i", "j"), Constant(0.0, "float32")),
    )
    assert fused_consumers(chain(product(), turned, inputs=(A, B))) == set()


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
