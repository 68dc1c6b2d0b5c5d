from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.expressions import AffineForm, IntExpr, affine_form, const, maximum, minimum, var
from autotune.ir.expressions.integer import evaluate

i, j = var("i"), var("j")
COEFFICIENTS = st.dictionaries(st.sampled_from("ijk"), st.integers(-5, 5), max_size=3)
EXTENTS = st.fixed_dictionaries({axis: st.integers(1, 5) for axis in "ijk"})


def linear(coefficients: dict[str, int], constant: int) -> IntExpr:
    return sum((var(name) * c for name, c in coefficients.items()), const(constant))


@given(COEFFICIENTS, st.integers(-9, 9))
def test_a_linear_combination_is_read_back(coefficients: dict[str, int], constant: int) -> None:
    form = affine_form(linear(coefficients, constant))
    assert form == AffineForm({n: c for n, c in coefficients.items() if c}, constant)


@given(COEFFICIENTS, st.integers(-9, 9), EXTENTS)
def test_bounds_are_the_smallest_and_largest_value(
    coefficients: dict[str, int], constant: int, extents: dict[str, int]
) -> None:
    expression = linear(coefficients, constant)
    form = affine_form(expression)
    assert form is not None
    points = itertools.product(*(range(extents[axis]) for axis in "ijk"))
    values = [evaluate(expression, dict(zip("ijk", point, strict=True))) for point in points]
    assert form.bounds(extents) == (min(values), max(values))


def test_repeated_axes_are_collected() -> None:
    assert affine_form(2 * i + j - i + 3) == AffineForm({"i": 1, "j": 1}, 3)
    assert affine_form(i - i) == AffineForm({}, 0)
    assert affine_form((i + 2) * 3) == AffineForm({"i": 3}, 6)


@pytest.mark.parametrize(
    "expression",
    [i * j, i // 2, i % 3, minimum(i, j), maximum(i, 0), 2 * (i // 2) + j, i * i, 3 * i * j],
    ids=repr,
)
def test_what_is_not_affine_has_no_form(expression: Any) -> None:
    assert affine_form(expression) is None
