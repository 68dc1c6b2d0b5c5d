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

from autotune.errors import InvalidValueError
from autotune.ir.expressions import (
    Binary,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    transform,
    var,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, elementwise
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


def _network_stage(name: str, shape: tuple[int, ...], body: ScalarExpr) -> Stage:
    axes = tuple(map(Axis, "ij", shape))
    return Stage(Tensor(name, shape, "float32"), axes, body)


def test_what_is_read_where_data_says_is_computed_before() -> None:
    i, j = var("i"), var("j")
    table = _network_stage("U", (9, 16), Unary("neg", Load("T", (i, j))))
    rows = _network_stage("Y", (5, 16), Gather("U", (Load("I", (i,)), IndexValue(j))))
    inputs = (Tensor("T", (9, 16), "float32"), Tensor("I", (5,), "int64"))
    workload = Workload("table", inputs, (table, rows), ("Y",))
    (sketch,) = sketches(workload)
    assert not any(isinstance(step, (Inline, FuseProducer)) for step in sketch.steps)
    inlined = evolve(sketch, steps=(Inline("U"), *sketch.steps))
    with pytest.raises(InvalidValueError, match="'Y' reads it at indices that are computed"):
        derive_nest(inlined)


def test_what_is_read_at_quotients_is_inlined_but_not_computed_row_by_row() -> None:
    i, j = var("i"), var("j")
    product = _network_stage("U", (8, 64), Unary("neg", Load("X", (i, j))))
    heads = _network_stage("Y", (8, 64), Load("U", (j // 8, i * 8 + j % 8)))
    inputs = (Tensor("X", (8, 64), "float32"),)
    (sketch,) = sketches(Workload("heads", inputs, (product, heads), ("Y",)))
    assert Inline("U") in sketch.steps
    total = Stage(
        Tensor("S", (8,), "float32"),
        (Axis("i", 8), Axis("j", 64, "reduce")),
        Load("X", (i, j)),
        "add",
    )
    for index, fused in ((i, True), (i // 2, False)):
        ratio = _network_stage("Y", (8, 64), Binary("div", Load("X", (i, j)), Load("S", (index,))))
        made = sketches(Workload("rows", inputs, (total, ratio), ("Y",)))
        steps = [step for sketch in made for step in sketch.steps]
        fusions = {step.consumer for step in steps if isinstance(step, FuseProducer)}
        assert ("Y" in fusions) == fused
