"""Random inputs: of every type, and in range where they are indices."""

from __future__ import annotations

import numpy as np
import pytest
from indexed_workloads import INDEXED_WORKLOADS
from written import written

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    draw_example,
    gemm,
    random_inputs,
)
from autotune.ir.workloads.inputs import index_inputs

X = Load("X", (var("i"),))
GIVEN = Load("I", (var("i"),))


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint8", "bool"])
def test_random_inputs(dtype: str) -> None:
    workload = written(f"X[400]: {dtype}", f"Y[i:400]: {dtype} = X[i]")
    array = random_inputs(workload, np.random.default_rng(3))["X"]
    again = random_inputs(workload, np.random.default_rng(3))["X"]
    assert str(array.dtype) == dtype and array.flags.c_contiguous
    np.testing.assert_array_equal(array, again)
    low = {"float32": -1, "int8": -128}.get(dtype, 0)
    high = {"float32": 1, "bool": 1, "int8": 127}.get(dtype, 255)
    assert array.min() >= low and array.max() <= high and len(np.unique(array)) > 1
    if dtype in ("int8", "uint8"):
        assert array.min() < low + 8 and array.max() > high - 8, "all bytes are there"


def number(value: int) -> Constant:
    return Constant(value, "int64")


def gathering(*indices: ScalarExpr, stages: tuple[Stage, ...] = ()) -> Workload:
    """Reads of ``T`` [40] at every one of ``indices``, which read ``I`` [300]."""
    body: ScalarExpr = Constant(0.0, "float32")
    for index in indices:
        body = Binary("add", body, Gather("T", (index,)))
    stage = Stage(Tensor("Y", (300,), "float32"), (Axis("i", 300),), body)
    inputs = (Tensor("T", (40,), "float32"), Tensor("I", (300,), "int64"))
    return Workload("gather", inputs, (*stages, stage), ("Y",))


def drawn(workload: Workload) -> tuple[int, int]:
    """The least and the largest index drawn."""
    found = index_inputs(workload, np.random.default_rng(0))
    assert set(found) == {"I"}
    everything = random_inputs(workload, np.random.default_rng(0))
    np.testing.assert_array_equal(everything["I"], found["I"])
    assert everything["T"].dtype == np.float32
    return int(found["I"].min()), int(found["I"].max())


def test_indices_are_drawn_from_all_that_are_in_range() -> None:
    assert drawn(gathering(GIVEN)) == (0, 39)
    wrapped = Select(Binary("lt", GIVEN, number(0)), Binary("add", GIVEN, number(40)), GIVEN)
    assert drawn(gathering(wrapped)) == (0, 39)
    assert drawn(gathering(GIVEN, Binary("add", GIVEN, number(15)))) == (0, 19)
    assert index_inputs(gemm(m=2, n=3, k=4), np.random.default_rng(0)) == {}


def test_indices_that_a_stage_computes_are_in_range_too() -> None:
    shifted = Stage(
        Tensor("J", (300,), "int32"),
        (Axis("i", 300),),
        Cast("int32", Binary("add", GIVEN, number(30))),
    )
    assert drawn(gathering(Load("J", (var("i"),)), stages=(shifted,))) == (0, 9)


def test_reads_that_are_not_executed_may_be_anywhere() -> None:
    first = Binary("lt", IndexValue(var("i")), IndexValue(const(1)))
    zero = Constant(0.0, "float32")
    beyond = Gather("T", (Binary("add", GIVEN, number(100)),))
    stage = Stage(
        Tensor("Y", (300,), "float32"),
        (Axis("i", 300),),
        Select(first, Gather("T", (GIVEN,)), Select(first, beyond, zero)),
    )
    inputs = (Tensor("T", (40,), "float32"), Tensor("I", (300,), "int64"))
    assert drawn(Workload("guarded", inputs, (stage,), ("Y",)))[1] <= 39


@pytest.mark.parametrize(
    "index",
    [
        Load("T", (var("i"),)),
        Constant(1.0, "float32"),
        Unary("sqrt", GIVEN),
        Binary("mul", GIVEN, Constant(0.5, "float32")),
        Select(Binary("lt", GIVEN, number(3)), GIVEN, Cast("float64", GIVEN)),
    ],
)
def test_indices_are_whole_numbers(index: ScalarExpr) -> None:
    with pytest.raises(InvalidValueError, match="index 0 by which stage 'Y' reads 'T'"):
        gathering(index)
    assert gathering(Cast("int64", index)).stages[0].gathers


def test_reads_beside_a_tensor_are_refused() -> None:
    beyond = gathering(Binary("add", GIVEN, number(40)))
    with pytest.raises(UnsupportedWorkload, match="stage 'Y' reads beside 'T', also where all"):
        random_inputs(beyond, np.random.default_rng(0))


@pytest.mark.parametrize("workload", INDEXED_WORKLOADS, ids=lambda workload: workload.name)
def test_names_do_not_matter_where_data_says_where_to_read(workload: Workload) -> None:
    assert workload.canonical.digest == workload.digest
    renamed = workload.renamed(workload.names)
    assert renamed.digest == workload.digest and renamed.spelling != workload.spelling
    assert Workload.from_json(workload.to_json()) == workload


def rows(body: ScalarExpr, dtype: str = "float32", combiner: str | None = "add") -> Workload:
    """Rows of 40 elements of X; a reduction where there is a combiner."""
    kind = "spatial" if combiner is None else "reduce"
    axes = (Axis("j", 40), Axis("i", 10, kind))
    shape = (40, 10) if combiner is None else (40,)
    stage = Stage(Tensor("Y", shape, dtype), axes, body, combiner)
    inputs = (Tensor("X", (40, 10), dtype), Tensor("D", (10,), "int32"))
    return Workload("rows", inputs, (stage,), ("Y",))


ROW = Load("X", (var("j"), var("i")))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "body",
    [
        Unary("sqrt", ROW),
        Unary("log", ROW),
        Binary("pow", ROW, Constant(0.5, "float32")),
        # The NaN is gone in the end.
        Binary(
            "max",
            Constant(0.0, "float32"),
            Select(
                Binary("gt", Unary("rsqrt", ROW), Constant(0.0, "float32")),
                Unary("rsqrt", ROW),
                Constant(0.0, "float32"),
            ),
        ),
    ],
)
def test_examples_are_numbers_where_they_can_be(body: ScalarExpr, dtype: str) -> None:
    """Sums of hundreds of roots would be NaN all of them, whatever a program computes."""
    workload = rows(body, dtype)
    inputs, outputs = draw_example(workload, np.random.default_rng(0))
    element = workload.tensors["Y"].element
    assert not np.isnan(element.numbers(outputs["Y"])).any()
    assert (element.numbers(inputs["X"]) >= 0).all()


def test_examples_have_both_signs_where_that_is_right() -> None:
    inputs, _ = draw_example(rows(Unary("exp", ROW)), np.random.default_rng(0))
    plain = random_inputs(rows(Unary("exp", ROW)), np.random.default_rng(0))
    np.testing.assert_array_equal(inputs["X"], plain["X"])
    never = rows(Unary("sqrt", Binary("sub", ROW, Constant(2.0, "float32"))))
    assert (draw_example(never, np.random.default_rng(0))[0]["X"] < 0).any()


@pytest.mark.parametrize("op", ["div", "mod"])
def test_nothing_is_divided_by_zero(op: str) -> None:
    """A processor ends the program that does."""
    divisor = Load("D", (var("i"),))
    for right in (divisor, Cast("int64", divisor)):
        workload = rows(Binary(op, ROW, right), "int32", None)
        for seed in range(20):
            assert random_inputs(workload, np.random.default_rng(seed))["D"].all()
