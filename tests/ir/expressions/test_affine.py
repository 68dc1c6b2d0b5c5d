from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_indices import AXES, quasi_affine

from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IntExpr,
    affine_form,
    const,
    index_form,
    maximum,
    minimum,
    var,
)
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


@given(quasi_affine(), EXTENTS)
def test_a_form_has_the_value_of_its_index(index: IntExpr, extents: dict[str, int]) -> None:
    """A form is a sum over axes and terms; what is divided has a form again."""

    def value(form: AffineForm, at: dict[str, int]) -> int:
        total = form.constant
        for name, coefficient in form.coefficients.items():
            term = form.terms.get(name)
            if term is None:
                total += coefficient * at[name]
                continue
            top = value(term.operand, at)
            divided = top // term.divisor if term.op == "floordiv" else top % term.divisor
            total += coefficient * divided
        return total

    form = index_form(index)
    assert form.axes <= index.variables
    renamed = form.renamed({axis: axis.upper() for axis in AXES})
    assert renamed.axes == {axis.upper() for axis in form.axes}
    for point in itertools.product(*(range(extents[axis]) for axis in AXES)):
        at = dict(zip(AXES, point, strict=True))
        expected = evaluate(index, at)
        assert value(form, at) == expected
        assert value(renamed, {axis.upper(): x for axis, x in at.items()}) == expected


def test_terms_of_quotients_remainders_and_others() -> None:
    form = index_form(j // 64 * 2 + i + 3)
    assert (form.coefficients, form.constant) == ({"(j // 64)": 2, "i": 1}, 3)
    assert form.terms == {"(j // 64)": IndexTerm("floordiv", AffineForm({"j": 1}, 0), 64)}
    assert form.axes == {"i", "j"}
    assert (form.step("i"), form.step("j"), form.step("k")) == (1, 0, 0)
    assert index_form(j % 64).step("j") == 1
    assert index_form((j * 64 + i) // 64).step("j") == 1
    other = index_form(i * j)
    assert other.axes == {"i", "j"} and other.step("i") == 2
    assert other.terms["i*j"].op == "any"
    assert index_form(i // 2 - i // 2) == AffineForm({}, 0)
