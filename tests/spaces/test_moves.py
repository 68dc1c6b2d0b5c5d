"""Neighbours, mixtures, restrictions and nearest points of feasible sets."""

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
from autotune.sketches import AtMost, Factor, OneOf, Ordinal, ProductEquals, Sketch
from autotune.spaces.feasible import build_feasible_set, parameter_groups

Row = tuple[int, ...]


def group_columns(sketch: Sketch) -> list[tuple[int, ...]]:
    return [group.columns for group in parameter_groups(sketch)]


def values(row: Row, columns: tuple[int, ...]) -> Row:
    return tuple(row[column] for column in columns)


def nearest(row: Row, expected: set[Row], columns: tuple[int, ...]) -> list[set[Row]]:
    """Feasible rows that differ from ``row`` in one group only, by increasing distance."""

    def place(value: int) -> int:
        return round((math.log2(value) if value >= 1 else -1.0) * 65536)

    by_distance: dict[int, set[Row]] = {}
    for other in expected:
        same = all(
            a == b for i, (a, b) in enumerate(zip(row, other, strict=True)) if i not in columns
        )
        if same and other != row:
            distance = sum(abs(place(row[c]) - place(other[c])) for c in columns)
            by_distance.setdefault(distance, set()).add(other)
    return [by_distance[distance] for distance in sorted(by_distance)]


@given(made_sketches(), st.integers(0, 2**64 - 1))
def test_neighbours_are_near_and_feasible(sketch: Sketch, seed: int) -> None:
    feasible, expected = build_feasible_set(sketch), brute_force(sketch)
    if not expected:
        return
    before = feasible.uniform(20, seed)
    after = feasible.neighbours(before, seed)
    for row, moved in zip(map(tuple, before.tolist()), map(tuple, after.tolist()), strict=True):
        possible = set()
        for columns in group_columns(sketch):
            found = 0
            for ring in nearest(row, expected, columns):
                if found >= 10:
                    break
                possible |= ring
                found += len(ring)
        assert moved in (possible or {row})


@given(made_sketches(), st.integers(0, 2**64 - 1))
def test_children_are_feasible_mixtures(sketch: Sketch, seed: int) -> None:
    feasible, expected = build_feasible_set(sketch), brute_force(sketch)
    if not expected:
        return
    mothers, fathers = feasible.uniform(20, seed), feasible.uniform(20, seed ^ 1)
    children = feasible.crossover(mothers, fathers, seed)
    columns = group_columns(sketch)
    for mother, father, child in zip(
        *(map(tuple, rows.tolist()) for rows in (mothers, fathers, children)), strict=True
    ):
        mixtures = {
            row
            for row in expected - {mother, father}
            if all(values(row, c) in (values(mother, c), values(father, c)) for c in columns)
        }
        assert child in (mixtures or {mother})


def test_mixtures_are_uniform() -> None:
    """Eight bits with an even sum: every mixture of two parents but the parents."""
    names = [f"b{i}" for i in range(8)]
    total = sum((var(name) for name in names), const(0))
    sketch = sketch_of([Ordinal(n, (0, 1)) for n in names], [OneOf(total % 2, (0,), "test")])
    feasible = build_feasible_set(sketch)
    assert feasible.count == 128
    mother, father = np.zeros((12600, 8), np.int64), np.ones((12600, 8), np.int64)
    counts = Counter(map(tuple, feasible.crossover(mother, father, 3).tolist()))
    assert len(counts) == 126
    statistic = sum((count - 100) ** 2 / 100 for count in counts.values())
    assert abs(statistic - 125) < 5 * math.sqrt(250)


def test_a_lone_feasible_parent_stays() -> None:
    sketch = sketch_of(
        [Ordinal("a", (1, 5)), Ordinal("b", (1, 5))],
        [OneOf(var("a") - var("b"), (0,), "test")],
    )
    feasible = build_feasible_set(sketch)
    one, five = np.array([[1, 1]]), np.array([[5, 5]])
    assert feasible.crossover(one, five, 0).tolist() == [[1, 1]]
    assert feasible.neighbours(one, 0).tolist() == [[1, 1]]


def test_infeasible_rows_stay_as_they_are() -> None:
    sketch = sketch_of(
        [Ordinal("a", (1, 2, 4)), Ordinal("b", (1, 2, 4))], [AtMost(var("a") * var("b"), 4, "x")]
    )
    feasible = build_feasible_set(sketch)
    outside = np.array([[4, 4], [3, 1], [2**62, -1]])
    np.testing.assert_array_equal(feasible.neighbours(outside, 0), outside)
    np.testing.assert_array_equal(feasible.crossover(outside[1:], outside[1:], 0), outside[1:])
    # Infeasible parents may have feasible mixtures.
    children = feasible.crossover(np.array([[3, 1]]), np.array([[4, 9]]), 0)
    assert children.tolist() == [[4, 1]]


SPLIT = sketch_of(
    [
        *(Factor(f"a{i}") for i in range(4)),
        *(Factor(f"b{i}") for i in range(3)),
        Ordinal("u", (0, 16)),
    ],
    [
        ProductEquals(tuple(f"a{i}" for i in range(4)), const(96)),
        ProductEquals(tuple(f"b{i}" for i in range(3)), const(60)),
        AtMost(var("a2") * var("b2") + var("u"), 40, "test"),
    ],
)


def test_threads_and_chunks_do_not_change_moves() -> None:
    feasible = build_feasible_set(SPLIT)
    mothers, fathers = feasible.uniform(300, 1), feasible.uniform(300, 2)
    near = feasible.neighbours(mothers, 3)
    mixed = feasible.crossover(mothers, fathers, 3)
    assert feasible.contains(near).all() and feasible.contains(mixed).all()
    for threads in (2, 7):
        np.testing.assert_array_equal(feasible.neighbours(mothers, 3, threads=threads), near)
        again = feasible.crossover(mothers, fathers, 3, threads=threads)
        np.testing.assert_array_equal(again, mixed)
    np.testing.assert_array_equal(feasible.neighbours(mothers[100:], 3, first=100), near[100:])
    again = feasible.crossover(mothers[100:], fathers[100:], 3, first=100)
    np.testing.assert_array_equal(again, mixed[100:])


@pytest.mark.parametrize(
    "rows",
    [np.ones((2, 3), np.int64), np.ones(8, np.int64), np.ones((2, 8), np.int32), np.ones((2, 8))],
    ids=["narrow", "flat", "int32", "float64"],
)
def test_other_matrices_are_refused(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    feasible = build_feasible_set(SPLIT)
    with pytest.raises(InvalidValueError, match="configurations of 8 parameters are an int64"):
        feasible.contains(rows)
    with pytest.raises(InvalidValueError, match="configurations of 8 parameters are an int64"):
        feasible.neighbours(rows, 0)
    with pytest.raises(InvalidValueError, match="configurations of 8 parameters are an int64"):
        feasible.crossover(rows, rows, 0)


def test_parents_come_in_pairs() -> None:
    feasible = build_feasible_set(SPLIT)
    with pytest.raises(InvalidValueError, match="3 mothers, but 2 fathers"):
        feasible.crossover(feasible.uniform(3, 0), feasible.uniform(2, 0), 0)


def test_matrices_need_not_be_contiguous() -> None:
    feasible = build_feasible_set(SPLIT)
    rows = feasible.uniform(20, 0)
    np.testing.assert_array_equal(
        feasible.neighbours(np.asfortranarray(rows), 1), feasible.neighbours(rows, 1)
    )
    assert feasible.contains(rows[::-2]).all()


@given(made_sketches(), st.data())
def test_restriction_keeps_what_has_the_values(sketch: Sketch, data: st.DataObject) -> None:
    feasible, expected = build_feasible_set(sketch), brute_force(sketch)
    names = data.draw(st.lists(st.sampled_from(sketch.param_names), max_size=3, unique=True))
    allowed = {name: data.draw(st.lists(st.integers(0, 16), max_size=6)) for name in names}
    expected = {
        row
        for row in expected
        if all(row[sketch.param_names.index(name)] in given for name, given in allowed.items())
    }
    restricted = feasible.restrict(allowed)
    assert set(restricted.enumerate()) == expected and restricted.count == len(expected)
    if expected:
        for sample in (restricted.uniform(30, 0), restricted.stratified(30, 0)):
            assert set(map(tuple, sample.tolist())) <= expected
        rows = np.array(sorted(expected), dtype=np.int64)
        assert restricted.contains(rows).sum() == len(expected)


@given(made_sketches(), st.data())
def test_restrictions_in_any_order_and_fewer_of_them(sketch: Sketch, data: st.DataObject) -> None:
    """Restrictions commute, and dropping one never loses a configuration."""
    feasible = build_feasible_set(sketch)
    names = data.draw(st.permutations(sketch.param_names))[:3]
    allowed = {name: data.draw(st.sets(st.integers(0, 16), min_size=1)) for name in names}
    one = feasible.restrict({name: sorted(allowed[name]) for name in names})
    other = feasible
    counts = [other.count]
    for name in reversed(names):
        other = other.restrict({name: sorted(allowed[name])})
        counts.append(other.count)
    assert counts == sorted(counts, reverse=True)
    assert list(one.enumerate()) == list(other.enumerate())


def test_restrictions_name_parameters() -> None:
    with pytest.raises(UnknownNameError, match="a00"):
        build_feasible_set(SPLIT).restrict({"a00": [1]})


NEAR = sketch_of(
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
    feasible = build_feasible_set(NEAR)
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
        build_feasible_set(NEAR).values("oo")
