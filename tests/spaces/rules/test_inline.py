"""Which stages are computed where they are read."""

from __future__ import annotations

import pytest
from attrs import evolve
from rule_sketches import (
    COLUMNS,
    ROWS,
    A,
    B,
    X,
    chain,
    exponential,
    load,
    pointwise,
    product,
    relu,
    sketches,
    steps_of,
)
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    transform,
    var,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage, elementwise
from autotune.nest import derive_nest
from autotune.sketches import FuseProducer, Inline, Parallel
from autotune.spaces.rules.inline import nodes_if_inlined


def test_cheap_pointwise_stages_are_inlined() -> None:
    assert steps_of(elementwise(m=ROWS, n=COLUMNS), Inline) == {Inline("T"), Inline("R")}


def test_an_output_is_not_inlined() -> None:
    both = chain(
        pointwise("T", relu("X")), pointwise("Y", relu("T")), inputs=(X,), outputs=("T", "Y")
    )
    assert steps_of(both, Inline) == set()
    assert {step.stage for step in sketches(both)[0].steps if isinstance(step, Parallel)} == {
        "T",
        "Y",
    }


@pytest.mark.parametrize(("body", "inlined"), [(relu("X"), True), (exponential("X"), False)])
def test_what_is_dear_is_not_computed_twice(body: ScalarExpr, inlined: bool) -> None:
    twice = chain(
        pointwise("T", body),
        pointwise("U", relu("T")),
        pointwise("V", relu("T")),
        inputs=(X,),
        outputs=("U", "V"),
    )
    assert (Inline("T") in steps_of(twice, Inline)) == inlined


def test_what_is_dear_is_inlined_into_its_only_consumer() -> None:
    once = chain(pointwise("T", exponential("X")), pointwise("U", relu("T")), inputs=(X,))
    assert steps_of(once, Inline) == {Inline("T")}


def _moved(body: ScalarExpr, by: int) -> ScalarExpr:
    i, j = var("i"), var("j")
    return transform(
        body, lambda it: Load(it.tensor, (i, j + by)) if isinstance(it, Load) else None
    )


def _first_columns_or(on_true: ScalarExpr, on_false: ScalarExpr) -> ScalarExpr:
    return Select(Binary("lt", IndexValue(var("j")), Constant(4, "int64")), on_true, on_false)


@pytest.mark.parametrize(
    ("reads", "inlined"),
    [
        (Binary("mul", load("T", "i", "j"), load("T", "i", "j")), True),
        (Binary("mul", load("T", "i", "j"), _moved(load("T", "i", "j"), 1)), False),
        # One of the two is read, like a row of which halves are exchanged.
        (_first_columns_or(load("T", "i", "j"), _moved(load("T", "i", "j"), -4)), True),
    ],
)
def test_what_is_dear_is_not_computed_at_two_places(reads: ScalarExpr, inlined: bool) -> None:
    once = chain(pointwise("T", exponential("X"), columns=49), pointwise("U", reads), inputs=(X,))
    assert steps_of(once, Inline) == ({Inline("T")} if inlined else set())


@pytest.mark.parametrize("before", [pointwise("T0", relu("X")), product("T0")])
def test_stages_that_read_one_another_often_are_kept_now_and_then(before: Stage) -> None:
    """Fourteen that read the one before twice would be sixteen thousand copies of the first."""
    stages = [before]
    for number in range(14):
        read = load(f"T{number}", "i", "j")
        stages.append(pointwise(f"T{number + 1}", Binary("mul", read, read)))
    workload = chain(*stages, inputs=(X, A, B))
    inlined = {step.stage for step in steps_of(workload, Inline) if isinstance(step, Inline)}
    assert 6 <= len(inlined) < 14
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
    inlined = evolve(sketch, steps=(Inline("U"), *sketch.steps))
    with pytest.raises(InvalidValueError, match="'Y' reads it at indices that are computed"):
        derive_nest(inlined)


def test_what_is_read_at_quotients_is_inlined_but_not_computed_row_by_row() -> None:
    texts = "U[i:8, j:64] = -X[i, j]", "Y[i:8, j:64] = U[j // 8, i * 8 + j % 8]"
    (sketch,) = sketches(written("X[8, 64]", *texts))
    assert Inline("U") in sketch.steps
    for index, fused in (("i", True), ("i // 2", False)):
        ratio = f"Y[i:8, j:64] = X[i, j] / S[{index}]"
        made = sketches(written("X[8, 64]", "S[i:8; j:64] += X[i, j]", ratio))
        steps = [step for sketch in made for step in sketch.steps]
        fusions = {step.consumer for step in steps if isinstance(step, FuseProducer)}
        assert ("Y" in fusions) == fused
