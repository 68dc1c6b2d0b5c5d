"""The nearest point to any row, the values that columns have, and points drawn by weight."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sketches import made_sketches, sketch_of
from oracles.feasible import brute_force

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import const, var
from autotune.sketches import AtMost, Factor, Ordinal, ProductEquals, Sketch
from autotune.spaces.feasible import build_feasible_set

# A busy machine is no reason to fail.

SPLIT = sketch_of(
    [Factor("a0"), Factor("a1"), Factor("b0"), Factor("b1"), Ordinal("o", (1, 2, 9))],
    [
        ProductEquals(("a0", "a1"), const(12)),
        ProductEquals(("b0", "b1"), const(16)),
        AtMost(var("a1") * var("b1") + var("o"), 20, "test"),
    ],
)


def place(value: int) -> int:
    return round((math.log2(value) if value >= 1 else -1.0) * 65536)


def distance(row: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(abs(place(a) - place(b)) for a, b in zip(row, other, strict=True))


@given(made_sketches(), st.data())
def test_the_nearest_point_is_at_the_least_distance(sketch: Sketch, data: st.DataObject) -> None:
    feasible, expected = build_feasible_set(sketch), brute_force(sketch)
    if not expected:
        return
    width = len(sketch.params)
    values = st.lists(st.integers(-2, 40), min_size=width, max_size=width)
    rows = data.draw(st.lists(values, min_size=1, max_size=4))
    found = feasible.nearest(np.array(rows, dtype=np.int64))
    for row, point in zip(map(tuple, rows), map(tuple, found.tolist()), strict=True):
        assert point in expected
        assert distance(row, point) == min(distance(row, other) for other in expected)


def test_points_stay_where_they_are_on_any_number_of_threads() -> None:
    feasible = build_feasible_set(SPLIT)
    points = feasible.uniform(300, 1)
    for threads in (1, 2, 7):
        np.testing.assert_array_equal(feasible.nearest(points, threads), points)


@given(made_sketches())
def test_values_are_those_of_the_points(sketch: Sketch) -> None:
    feasible, expected = build_feasible_set(sketch), brute_force(sketch)
    for index, name in enumerate(sketch.param_names):
        assert feasible.values(name) == tuple(sorted({row[index] for row in expected}))


def test_weights_multiply() -> None:
    feasible = build_feasible_set(SPLIT)
    weights = {"o": {1: 0.0, 9: 3.0}, "a0": {12: 5.0}, "a1": {2: 0.5}}
    at = {name: SPLIT.param_names.index(name) for name in weights}
    expected = {
        row: math.prod(of.get(row[at[name]], 1.0) for name, of in weights.items())
        for row in brute_force(SPLIT)
    }
    total, n = sum(expected.values()), 40_000
    counts = Counter(map(tuple, feasible.weighted(n, weights, 3).tolist()))
    statistic = 0.0
    possible = {row: weight * n / total for row, weight in expected.items() if weight}
    assert set(counts) <= set(possible)
    for row, mean in possible.items():
        statistic += (counts[row] - mean) ** 2 / mean
    freedom = len(possible) - 1
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


def test_weighted_points_depend_on_seed_and_index_alone() -> None:
    feasible, weights = build_feasible_set(SPLIT), {"o": {2: 7.0}}
    whole = feasible.weighted(200, weights, 5)
    for threads in (1, 2, 7):
        np.testing.assert_array_equal(feasible.weighted(200, weights, 5, 0, threads), whole)
    np.testing.assert_array_equal(feasible.weighted(50, weights, 5, 150), whole[150:])
    assert (feasible.weighted(200, weights, 6) != whole).any()


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_are_numbers(weight: float) -> None:
    with pytest.raises(InvalidValueError, match="a weight is finite and not negative"):
        build_feasible_set(SPLIT).weighted(1, {"o": {1: weight}}, 0)


def test_some_point_has_a_weight() -> None:
    with pytest.raises(InvalidValueError, match="no point has a weight above zero"):
        build_feasible_set(SPLIT).weighted(1, {"o": {1: 0.0, 2: 0.0, 9: 0.0}}, 0)
    with pytest.raises(UnknownNameError, match="oo"):
        build_feasible_set(SPLIT).weighted(1, {"oo": {1: 1.0}}, 0)
    with pytest.raises(UnknownNameError, match="oo"):
        build_feasible_set(SPLIT).values("oo")
