"""Tests of which stages are computed where they are read, or fused into a reduction's tile."""

from __future__ import annotations

import pytest
from attrs import evolve
from rule_sketches import sketches, steps_of
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Workload, dense, elementwise
from autotune.nest import derive_nest
from autotune.sketches import Accumulate, FuseConsumer, FuseProducer, Inline, Parallel
from autotune.spaces.rules.inline import nodes_if_inlined

INPUTS = ("A[32, 20]", "B[20, 48]", "X[32, 48]", "D[48, 20]")
C = "C[i:32, j:48; k:20] += A[i, k] * B[k, j]"


def made(*stages: str, outputs: str = "") -> Workload:
    """A workload of these stages, with those inputs that they read."""
    inputs = (it for it in INPUTS if any(f"{it[:2]}" in text.split("=", 1)[1] for text in stages))
    return written(", ".join(inputs), *stages, outputs=outputs)


def point(name: str, body: str, columns: int = 48) -> str:
    return f"{name}[i:32, j:{columns}] = {body}"


def relu(name: str, tensor: str) -> str:
    return point(name, f"max({tensor}[i, j], 0.0)")


def exponential(name: str, tensor: str) -> str:
    return point(name, f"exp({tensor}[i, j])")


def product_of(source: str) -> str:
    """The product of a stage's matrix with another one."""
    return f"Y[i:32, n:20; j:48] += {source}[i, j] * D[j, n]"


def inlined(workload: Workload) -> set[str]:
    return {step.stage for step in steps_of(workload, Inline) if isinstance(step, Inline)}


def test_cheap_pointwise_stages_are_inlined() -> None:
    assert inlined(elementwise(m=32, n=48)) == {"T", "R"}


def test_an_output_is_not_inlined() -> None:
    both = made(relu("T", "X"), relu("Y", "T"), outputs="T Y")
    assert inlined(both) == set()
    own = {step.stage for step in sketches(both)[0].steps if isinstance(step, Parallel)}
    assert own == {"T", "Y"}


@pytest.mark.parametrize(
    ("stages", "outputs", "kept"),
    [
        ((relu("T", "X"), relu("U", "T"), relu("V", "T")), "U V", False),
        # What is dear is not computed twice, but in its only consumer.
        ((exponential("T", "X"), relu("U", "T"), relu("V", "T")), "U V", True),
        ((exponential("T", "X"), relu("U", "T")), "", False),
        ((exponential("T", "X"), point("U", "T[i, j] * T[i, j]")), "", False),
        ((exponential("T", "X"), point("U", "T[i, j] * T[i, j + 1]", 47)), "", True),
        # One of the two is read, like a row of which halves are exchanged.
        ((exponential("T", "X"), point("U", "T[i, j] if j < 4 else T[i, j - 4]")), "", False),
    ],
)
def test_what_is_dear_is_computed_once(stages: tuple[str, ...], outputs: str, kept: bool) -> None:
    assert inlined(made(*stages, outputs=outputs)) == (set() if kept else {"T"})


@pytest.mark.parametrize("before", [relu("T0", "X"), C.replace("C[", "T0[")])
def test_stages_that_read_one_another_often_are_kept_now_and_then(before: str) -> None:
    """Fourteen that read the one before twice would be sixteen thousand copies of the first."""
    squares = (point(f"T{it + 1}", f"T{it}[i, j] * T{it}[i, j]") for it in range(14))
    workload = made(before, *squares)
    assert 6 <= len(inlined(workload)) < 14
    statements = [
        it for it in derive_nest(sketches(workload)[0]).statements if it.body is not None
    ]
    largest = max(sum(1 for _ in walk(it.body)) for it in statements)
    assert largest < 2_000
    assert nodes_if_inlined(workload) > 16_000


def test_what_is_read_where_data_says_is_computed_before() -> None:
    texts = "U[i:9, j:16] = -T[i, j]", "Y[i:5, j:16] = U[I[i], j]"
    workload = written("T[9, 16], I[5]: int64", *texts, name="table")
    (sketch,) = sketches(workload)
    assert not any(isinstance(step, (Inline, FuseProducer)) for step in sketch.steps)
    changed = evolve(sketch, steps=(Inline("U"), *sketch.steps))
    with pytest.raises(InvalidValueError, match="'Y' reads it at indices that are computed"):
        derive_nest(changed)


def test_what_is_read_at_quotients_is_inlined_but_not_computed_row_by_row() -> None:
    texts = "U[i:8, j:64] = -X[i, j]", "Y[i:8, j:64] = U[j // 8, i * 8 + j % 8]"
    (sketch,) = sketches(written("X[8, 64]", *texts))
    assert Inline("U") in sketch.steps
    for index, fused in (("i", True), ("i // 2", False)):
        ratio = f"Y[i:8, j:64] = X[i, j] / S[{index}]"
        found = sketches(written("X[8, 64]", "S[i:8; j:64] += X[i, j]", ratio))
        steps = [step for sketch in found for step in sketch.steps]
        fusions = {step.consumer for step in steps if isinstance(step, FuseProducer)}
        assert ("Y" in fusions) == fused


def test_the_last_stage_is_fused_into_the_tile_and_those_between_are_inlined() -> None:
    workload = dense(m=37, n=48, k=20)
    assert inlined(workload) == {"Z"}
    for sketch in sketches(workload):
        (fused,) = (step for step in sketch.steps if isinstance(step, FuseConsumer))
        assert (fused.stage, fused.producer) == ("R", "Y")
        assert not any(isinstance(step, Accumulate) for step in sketch.steps)


@pytest.mark.parametrize(
    ("stages", "outputs", "fused", "between"),
    [
        ((C, exponential("R", "C")), "", {("R", "C")}, set()),
        # The reduction is returned, read twice, or read elsewhere.
        ((C, relu("R", "C")), "C R", set(), set()),
        ((C, relu("R", "C"), relu("S", "C")), "R S", set(), set()),
        ((C, "R[j:48, i:32] = max(C[i, j], 0.0)"), "", set(), set()),
        # What is between is dear; there are two reductions, or none.
        ((C, exponential("E", "C"), relu("R", "E")), "", set(), {"E"}),
        ((C, C.replace("C[", "F["), point("R", "C[i, j] + F[i, j]")), "", set(), set()),
        ((exponential("E", "X"), product_of("E")), "", set(), None),
        # What is dear is computed before a product copies it, what is cheap where it is copied.
        ((C, relu("Z", "C"), exponential("E", "Z"), product_of("E")), "", {("E", "C")}, {"Z"}),
        ((C, relu("R", "C"), product_of("R")), "", set(), None),
        # A computed bias is inlined into the epilogue.
        ((C, relu("S", "X"), point("R", "C[i, j] + S[i, j]")), "", {("R", "C")}, {"S"}),
    ],
)
def test_an_epilogue_follows_one_reduction_point_by_point(
    stages: tuple[str, ...],
    outputs: str,
    fused: set[tuple[str, str]],
    between: set[str] | None,
) -> None:
    workload = made(*stages, outputs=outputs)
    for sketch in sketches(workload):
        steps = (step for step in sketch.steps if isinstance(step, FuseConsumer))
        assert {(step.stage, step.producer) for step in steps} == fused
    assert between is None or inlined(workload) == between
