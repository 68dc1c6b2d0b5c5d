"""The nearest point to any row, and the values that columns have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sketches import made_sketches, sketch_of
from oracles.feasible import brute_force

from autotune.errors import UnknownNameError
from autotune.ir.expressions import const, var
from autotune.sketches import AtMost, Factor, Ordinal, ProductEquals, Sketch
from autotune.spaces.feasible import build_feasible_set

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


def test_values_of_an_unknown_column() -> None:
    with pytest.raises(UnknownNameError, match="oo"):
        build_feasible_set(SPLIT).values("oo")
