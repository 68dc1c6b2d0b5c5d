"""Sums of products with zero points are split without a change of any number."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import asdict, evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from written import written

from autotune.ir.rewrites.zero_points import split_zero_points
from autotune.ir.workloads import Tensor, Workload, random_inputs, reference_outputs


@frozen
class Shape:
    """Of a product: batches, rows, columns, terms, and distances between rows that are read."""

    b: int
    i: int
    j: int
    k: int
    step: int


def product(
    shape: Shape,
    left: str,
    right: str,
    dtype: str = "int8",
    combiner: str = "+",
    body: str = "({}) * ({})",
) -> Workload:
    """``sum(k, (a[b, step * i + k, k] - left) * (w[k, j] - right))`` of bytes."""
    inputs = f"a[b, step * (i - 1) + k, k]: {dtype}, w[k, j]: int8, y[]: int32, z[]: int32"
    reads = {"int32(a[b, step * i + k, k])": left, "int32(w[k, j])": right}
    factors = (f"{read} - {zero}" if zero else read for read, zero in reads.items())
    stage = f"O[b, i, j; k]: int32 {combiner}= {body.format(*factors)}"
    workload = written(inputs, stage, **asdict(shape))
    read_too = {read for it in workload.stages for read in it.reads}
    return evolve(workload, inputs=tuple(it for it in workload.inputs if it.name in read_too))


SHAPES = st.builds(Shape, *[st.integers(1, 4)] * 4, st.integers(1, 2))


@given(SHAPES, st.sampled_from(("", "y[()]", "-7")), st.sampled_from(("", "z[()]", "100")))
@settings(max_examples=40)
def test_no_number_changes(shape: Shape, left: str, right: str) -> None:
    workload = product(shape, left, right, "uint8")
    split = split_zero_points(workload)
    assert len(split.stages) == 1 + bool(left or right) + bool(left) + bool(right)
    arrays = random_inputs(workload, np.random.default_rng(0))
    before, after = reference_outputs(workload, arrays), reference_outputs(split, arrays)
    np.testing.assert_array_equal(after["O"], before["O"])


def test_what_is_summed_first_is_bytes() -> None:
    summed, left, right, result = split_zero_points(
        product(Shape(2, 3, 4, 5, 1), "y[()]", "z[()]")
    ).stages
    assert (summed.name, left.name, right.name) == ("O_product", "O_left_sums", "O_right_sums")
    assert (left.reads, right.reads) == (("a",), ("w",))
    assert [axis.name for axis in right.axes] == ["j", "k"]
    assert result.combiner is None and result.name == "O"


def test_names_stay_distinct() -> None:
    workload = product(Shape(1, 2, 2, 2, 1), "y[()]", "")
    taken = evolve(workload, inputs=(*workload.inputs, Tensor("O_product", (1,), "int32")))
    assert split_zero_points(taken).stages[0].name == "O_product_1"


@pytest.mark.parametrize(
    "change",
    [
        {"combiner": "max"},
        {"dtype": "int32"},
        {"body": "({0}) * ({0})"},
        {"body": "({}) * (int32(w[k, j]) - w[j, k])"},
    ],
    ids=["combiner", "type", "same operand", "an element that moves"],
)
def test_other_sums_are_left_as_they_are(change: dict[str, str]) -> None:
    changed = product(Shape(1, 3, 3, 3, 1), "y[()]", "z[()]", **change)
    assert split_zero_points(changed) == changed
