"""Sums of products with zero points are split without a change of any number."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.ir.expressions import Binary, Cast, Constant, Load, ScalarExpr, var
from autotune.ir.rewrites.zero_points import split_zero_points
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, random_inputs, reference_outputs

ZEROS = (None, "y", Constant(-7, "int32"))


@frozen
class Shape:
    """Of a product: batches, rows, columns, terms, and distances between rows that are read."""

    b: int
    i: int
    j: int
    k: int
    step: int


def product(
    shape: Shape, left: str | Constant | None, right: str | Constant | None, dtype: str = "int8"
) -> Workload:
    """``sum(k, (a[b, step * i + k, k] - left) * (w[k, j] - right))`` of bytes."""
    rows = shape.step * (shape.i - 1) + shape.k
    inputs = [
        Tensor("a", (shape.b, rows, shape.k), dtype),
        Tensor("w", (shape.k, shape.j), "int8"),
    ]
    inputs += [Tensor(it, (), "int32") for it in (left, right) if isinstance(it, str)]
    axes = tuple(Axis(name, getattr(shape, name)) for name in "bij")
    b, i, j, k = (var(name) for name in "bijk")
    body = Binary(
        "mul",
        shifted(Load("a", (b, i * shape.step + k, k)), left),
        shifted(Load("w", (k, j)), right),
    )
    output = Tensor("O", (shape.b, shape.i, shape.j), "int32")
    stage = Stage(output, (*axes, Axis("k", shape.k, "reduce")), body, "add")
    return Workload("product", tuple(inputs), (stage,), ("O",))


def shifted(load: Load, zero: str | Constant | None) -> ScalarExpr:
    wide = Cast("int32", load)
    if zero is None:
        return wide
    return Binary("sub", wide, Load(zero, ()) if isinstance(zero, str) else zero)


SHAPES = st.builds(Shape, *[st.integers(1, 4)] * 4, st.integers(1, 2))


@given(SHAPES, st.sampled_from(ZEROS), st.sampled_from((None, "z", Constant(100, "int32"))))
@settings(max_examples=40)
def test_no_number_changes(
    shape: Shape, left: str | Constant | None, right: str | Constant | None
) -> None:
    workload = product(shape, left, right, "uint8")
    split = split_zero_points(workload)
    assert len(split.stages) == 1 + (left is not None or right is not None) + sum(
        zero is not None for zero in (left, right)
    )
    arrays = random_inputs(workload, np.random.default_rng(0))
    before, after = reference_outputs(workload, arrays), reference_outputs(split, arrays)
    np.testing.assert_array_equal(after["O"], before["O"])


def test_what_is_summed_first_is_bytes() -> None:
    summed, left, right, result = split_zero_points(product(Shape(2, 3, 4, 5, 1), "y", "z")).stages
    assert (summed.name, left.name, right.name) == ("O_product", "O_left_sums", "O_right_sums")
    assert (left.reads, right.reads) == (("a",), ("w",))
    assert [axis.name for axis in right.axes] == ["j", "k"]
    assert result.combiner is None and result.name == "O"


def test_names_stay_distinct() -> None:
    workload = product(Shape(1, 2, 2, 2, 1), "y", None)
    taken = evolve(workload, inputs=(*workload.inputs, Tensor("O_product", (1,), "int32")))
    assert split_zero_points(taken).stages[0].name == "O_product_1"


@pytest.mark.parametrize("change", ["combiner", "type", "same operand", "an element that moves"])
def test_other_sums_are_left_as_they_are(change: str) -> None:
    workload = product(Shape(1, 3, 3, 3, 1), "y", "z")
    (stage,) = workload.stages
    body = stage.body
    assert isinstance(body, Binary)
    if change == "combiner":
        stage = evolve(stage, combiner="max")
    elif change == "type":
        workload = product(Shape(1, 3, 3, 3, 1), "y", "z", "int32")
        (stage,) = workload.stages
    elif change == "same operand":
        stage = evolve(stage, body=Binary("mul", body.left, body.left))
    else:
        moving = Cast("int32", Load("w", (var("k"), var("j"))))
        stage = evolve(
            stage,
            body=Binary("mul", body.left, Binary("sub", moving, Load("w", (var("j"), var("k"))))),
        )
    changed = evolve(workload, stages=(stage,))
    assert split_zero_points(changed) == changed
