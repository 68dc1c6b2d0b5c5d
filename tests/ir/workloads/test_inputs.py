"""Random inputs: of every type, and in range where they are indices."""

from __future__ import annotations

import numpy as np
import pytest
from indexed_workloads import INDEXED_WORKLOADS
from written import written

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload, draw_example, gemm, random_inputs
from autotune.ir.workloads.inputs import index_inputs


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


def gathering(*indices: str, before: tuple[str, ...] = ()) -> Workload:
    """Reads of ``T`` [40] at every one of ``indices``, which read ``I`` [300]."""
    body = " + ".join(["0.0", *(f"T[{index}]" for index in indices)])
    return written("T[40], I[300]: int64", *before, f"Y[i:300] = {body}")


def drawn(workload: Workload) -> tuple[int, int]:
    """The least and the largest index drawn."""
    found = index_inputs(workload, np.random.default_rng(0))
    assert set(found) == {"I"}
    everything = random_inputs(workload, np.random.default_rng(0))
    np.testing.assert_array_equal(everything["I"], found["I"])
    assert everything["T"].dtype == np.float32
    return int(found["I"].min()), int(found["I"].max())


def test_indices_are_drawn_from_all_that_are_in_range() -> None:
    assert drawn(gathering("I[i]")) == (0, 39)
    assert drawn(gathering("I[i] + int64(40) if I[i] < int64(0) else I[i]")) == (0, 39)
    assert drawn(gathering("I[i]", "I[i] + int64(15)")) == (0, 19)
    assert index_inputs(gemm(m=2, n=3, k=4), np.random.default_rng(0)) == {}


def test_indices_that_a_stage_computes_are_in_range_too() -> None:
    shifted = "J[i:300]: int32 = int32(I[i] + int64(30))"
    assert drawn(gathering("J[i]", before=(shifted,))) == (0, 9)


def test_reads_that_are_not_executed_may_be_anywhere() -> None:
    body = "T[I[i]] if i < 1 else (T[I[i] + int64(100)] if i < 1 else 0.0)"
    workload = written("T[40], I[300]: int64", f"Y[i:300] = {body}")
    assert drawn(workload)[1] <= 39


@pytest.mark.parametrize(
    "index",
    ["T[i]", "1.0", "sqrt(I[i])", "I[i] * 0.5", "I[i] if I[i] < int64(3) else float64(I[i])"],
)
def test_indices_are_whole_numbers(index: str) -> None:
    with pytest.raises(InvalidValueError, match="index 0 by which stage 'Y' reads 'T'"):
        gathering(index)
    assert gathering(f"int64({index})").stages[0].gathers


def test_reads_beside_a_tensor_are_refused() -> None:
    beyond = gathering("I[i] + int64(40)")
    with pytest.raises(UnsupportedWorkload, match="stage 'Y' reads beside 'T', also where all"):
        random_inputs(beyond, np.random.default_rng(0))


@pytest.mark.parametrize("workload", INDEXED_WORKLOADS, ids=lambda workload: workload.name)
def test_names_do_not_matter_where_data_says_where_to_read(workload: Workload) -> None:
    assert workload.canonical.digest == workload.digest
    renamed = workload.renamed(workload.names)
    assert renamed.digest == workload.digest and renamed.spelling != workload.spelling
    assert Workload.from_json(workload.to_json()) == workload


def rows(body: str, dtype: str = "float32", stage: str = "Y[j:40; i:10]: {} += {}") -> Workload:
    """Rows of 40 elements of X, which are summed."""
    return written(f"X[40, 10]: {dtype}, D[10]: int32", stage.format(dtype, body))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "body",
    [
        "sqrt(X[j, i])",
        "log(X[j, i])",
        "X[j, i] ** 0.5",
        # The NaN is gone in the end.
        "max(0.0, rsqrt(X[j, i]) if rsqrt(X[j, i]) > 0.0 else 0.0)",
    ],
)
def test_examples_are_numbers_where_they_can_be(body: str, dtype: str) -> None:
    """Sums of hundreds of roots would be NaN all of them, whatever a program computes."""
    workload = rows(body, dtype)
    inputs, outputs = draw_example(workload, np.random.default_rng(0))
    element = workload.tensors["Y"].element
    assert not np.isnan(element.numbers(outputs["Y"])).any()
    assert (element.numbers(inputs["X"]) >= 0).all()


def test_examples_have_both_signs_where_that_is_right() -> None:
    inputs, _ = draw_example(rows("exp(X[j, i])"), np.random.default_rng(0))
    plain = random_inputs(rows("exp(X[j, i])"), np.random.default_rng(0))
    np.testing.assert_array_equal(inputs["X"], plain["X"])
    never = rows("sqrt(X[j, i] - 2.0)")
    assert (draw_example(never, np.random.default_rng(0))[0]["X"] < 0).any()


@pytest.mark.parametrize("op", ["/", "%"])
def test_nothing_is_divided_by_zero(op: str) -> None:
    """A processor ends the program that does."""
    for divisor in ("D[i]", "int64(D[i])"):
        workload = rows(f"X[j, i] {op} {divisor}", "int32", "Y[j:40, i:10]: {} = {}")
        for seed in range(20):
            assert random_inputs(workload, np.random.default_rng(seed))["D"].all()
