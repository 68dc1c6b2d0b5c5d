"""Forms over digits mean what they say, and their ranges hold every value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import IntExpr, const, less, maximum, minimum, var
from autotune.ir.expressions.integer import evaluate
from autotune.lower.linear import Digits, Linear

EXTENTS = {"i": 5, "j": 4, "k": 3}
COEFFICIENTS = st.integers(-6, 6)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> IntExpr:
    """Index expressions over three axes: sums of multiples, quotients, remainders and extrema."""
    kinds = ["axis", "constant"] + ["sum", "scaled", "div", "mod", "min", "max"] * (depth > 0)
    kind = draw(st.sampled_from(kinds))
    if kind == "axis":
        return var(draw(st.sampled_from(sorted(EXTENTS))))
    if kind == "constant":
        return const(draw(COEFFICIENTS))
    left = draw(expressions(depth - 1))
    if kind == "scaled":
        return left * draw(COEFFICIENTS)
    if kind in ("div", "mod"):
        divisor = draw(st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 12, 24)))
        return left // divisor if kind == "div" else left % divisor
    right = draw(expressions(depth - 1))
    combine: dict[str, Callable[[IntExpr, IntExpr], IntExpr]] = {
        "sum": lambda a, b: a + b,
        "min": minimum,
        "max": maximum,
    }
    return combine[kind](left, right)


def points() -> Iterator[dict[str, int]]:
    for values in product(*map(range, EXTENTS.values())):
        yield dict(zip(EXTENTS, values, strict=True))


def counters() -> tuple[Digits, dict[str, Linear]]:
    digits = Digits()
    return digits, {name: digits.counter(name, extent) for name, extent in EXTENTS.items()}


@given(expressions())
def test_a_form_has_the_values_of_its_expression_and_no_other(expression: IntExpr) -> None:
    digits, axes = counters()
    form = digits.of_expression(expression, axes)
    low, high = digits.bounds(form)
    for point in points():
        digits.fixed.update(point)
        found = digits.resolved(form)
        assert found.terms == ()
        assert found.constant == evaluate(expression, point)
        assert low <= found.constant <= high


@given(expressions(), st.sampled_from(sorted(EXTENTS)))
def test_a_form_depends_on_what_changes_it(expression: IntExpr, axis: str) -> None:
    digits, axes = counters()
    form = digits.of_expression(expression, axes)
    if digits.depends(form, axis):
        return
    for point in points():
        others = {evaluate(expression, {**point, axis: it}) for it in range(EXTENTS[axis])}
        assert len(others) == 1


@given(expressions(), st.sampled_from(sorted(EXTENTS)), st.integers(0, 2))
def test_some_digits_may_be_known(expression: IntExpr, axis: str, value: int) -> None:
    digits, axes = counters()
    form = digits.of_expression(expression, axes)
    with digits.at(axis, value):
        part = digits.resolved(form)
        assert not digits.depends(part, axis) or part.coefficient(axis) == 0
    for point in points():
        digits.fixed = {**point, axis: value}
        assert digits.resolved(part).constant == evaluate(expression, {**point, axis: value})


@given(expressions())
def test_a_joined_form_is_the_same_number(expression: IntExpr) -> None:
    digits, axes = counters()
    form = digits.joined(digits.of_expression(expression, axes))
    for point in points():
        digits.fixed = {**point}
        assert digits.resolved(form).constant == evaluate(expression, point)


def test_quotients_and_remainders_of_one_number_are_joined() -> None:
    digits = Digits()
    number = digits.counter("i", 700) * 32 + digits.counter("j", 32)
    row = digits.quotient(number, 3)
    plane = digits.quotient(row, 229)
    places = digits.remainder(number, 3), digits.remainder(row, 229), digits.remainder(plane, 21)
    inside = places[0] + places[1] * 3 + places[2] * 687
    assert digits.joined(inside + digits.quotient(plane, 21) * 14427) == number
    assert digits.joined(inside) == digits.remainder(number, 14427)
    apart = places[0] + places[1] * 4
    assert digits.joined(apart) == apart


@given(expressions(), expressions(depth=1), st.integers(0, 30))
def test_what_is_known_of_one_form_narrows_others(
    expression: IntExpr, known: IntExpr, bound: int
) -> None:
    digits, axes = counters()
    form = digits.of_expression(expression, axes)
    below = digits.of_expression(known, axes) - bound
    ranges = dict(digits.ranges)
    with digits.knowing([below]):
        low, high = digits.bounds(digits.resolved(form))
        part = digits.joined(digits.resolved(form))
    assert {name: digits.ranges[name] for name in ranges} == ranges and not digits.fixed
    for point in points():
        if evaluate(known, point) < bound:
            digits.fixed = {**point}
            assert digits.resolved(part).constant == evaluate(expression, point)
            assert low <= digits.resolved(form).constant <= high


def test_elements_below_the_number_of_all_have_no_index_around_them() -> None:
    digits = Digits()
    element = digits.counter("i", 451) * 32 + digits.counter("j", 32)
    place = digits.quotient(digits.quotient(digits.quotient(element, 3), 229), 21)
    vectors = digits.counter("i", 5) * 2 + digits.quotient(digits.counter("k", 64), 32)
    row = digits.quotient(vectors, 3)
    with digits.knowing([element - 14427]):
        assert digits.resolved(place) == Linear()
    with digits.knowing([digits.counter("i", 5) * 128 + digits.counter("k", 64) * 2 - 576]):
        assert digits.bounds(row) == (0, 2)
    assert digits.bounds(row) == (0, 3)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9))
def test_blocks_and_what_is_in_them_are_digits_of_their_own(
    blocks: int, block: int, divisor: int
) -> None:
    """A divisor that is the extent of the inner loop leaves nothing to divide."""
    digits = Digits()
    outer, inner = digits.counter("outer", blocks), digits.counter("inner", block)
    whole = outer * block + inner
    assert digits.quotient(whole, block) == outer
    assert digits.remainder(whole, block) == inner
    assert not digits.derived
    assert digits.quotient(whole * divisor, block * divisor) == outer


@given(st.integers(1, 6), st.integers(2, 8), st.integers(2, 9))
def test_vectors_lie_together_in_blocks_of_several(count: int, lanes: int, blocks: int) -> None:
    """Whatever number of them a block has."""
    digits = Digits()
    vector = digits.counter("vector", count * blocks)
    index = vector * lanes + digits.counter("lane", lanes)
    place, block = digits.remainder(index, lanes * count), digits.quotient(index, lanes * count)
    assert place.coefficient("lane") == 1
    assert digits.is_apart(place, "lane") and not digits.depends(block, "lane")


def test_ranges_are_those_of_now() -> None:
    """Part of a loop may have been printed before the whole of it."""
    digits = Digits()
    index = digits.counter("i", 10)
    digits.ranges["i"] = (0, 4)
    assert digits.bounds(digits.quotient(index, 3)) == (0, 1)
    digits.ranges["i"] = (0, 9)
    assert digits.bounds(digits.quotient(index, 3)) == (0, 3)


def test_products_of_axes_are_refused() -> None:
    digits, axes = counters()
    for expression in (var("i") * var("j"), less(var("i"), var("j"))):
        with pytest.raises(UnsupportedWorkload, match="multipl"):
            digits.of_expression(expression, axes)
