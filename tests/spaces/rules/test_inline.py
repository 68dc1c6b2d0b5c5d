"""Which stages are computed where they are read."""

from __future__ import annotations

import pytest
from attrs import evolve
from rule_sketches import COLUMNS, ROWS, X, chain, exponential, pointwise, relu, sketches, steps_of

from autotune.errors import InvalidValueError
from autotune.ir.expressions import Binary, Gather, IndexValue, Load, ScalarExpr, Unary, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, elementwise
from autotune.nest import derive_nest
from autotune.sketches import FuseProducer, Inline, Parallel


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
