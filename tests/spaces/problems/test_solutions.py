"""Solutions are exactly those of an independent evaluator, and drawn as promised."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from attrs import evolve
from heron_problems import dl_boost_gemm
from hypothesis import given
from hypothesis import strategies as st
from made_problems import NAMES, made_problems
from oracles.constraints import brute_force, is_solution

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import const, var
from autotune.spaces.problems import (
    AtMost,
    ConstraintProblem,
    IntRange,
    Member,
    Product,
    Solutions,
    Sum,
    Variable,
    solve,
)

# A busy machine is no reason to fail.

Row = tuple[int, ...]
SMALL = dl_boost_gemm(2, 16, 4)


def rows(matrix: np.ndarray) -> list[Row]:  # type: ignore[type-arg]
    return list(map(tuple, matrix.tolist()))


@given(made_problems())
def test_complete_small(problem: ConstraintProblem) -> None:
    """All solutions, each once, and their number; whatever the constraints are."""
    solutions, expected = solve(problem), brute_force(problem)
    found = list(solutions.enumerate())
    assert len(found) == solutions.count == len(expected)
    assert set(found) == expected


@given(made_problems(), st.integers(0, 2**64 - 1))
def test_sound(problem: ConstraintProblem, seed: int) -> None:
    solutions = solve(problem)
    if solutions.count == 0:
        with pytest.raises(InvalidValueError, match="'made' has no feasible configuration"):
            solutions.sample(1, seed)
        return
    for drawn in (solutions.sample(20, seed), solutions.stratified(20, seed)):
        assert all(is_solution(problem, row) for row in rows(drawn))
        assert solutions.contains(drawn).all()


@given(made_problems(), st.data())
def test_containment_looks_at_every_variable(
    problem: ConstraintProblem, data: st.DataObject
) -> None:
    point = st.lists(st.integers(-2, 13), min_size=len(NAMES), max_size=len(NAMES))
    asked = data.draw(st.lists(point, min_size=1, max_size=10))
    inside = solve(problem).contains(np.array(asked, dtype=np.int64))
    assert inside.tolist() == [is_solution(problem, tuple(row)) for row in asked]


@given(made_problems(), st.data())
def test_restriction_and_strongest_propagation(
    problem: ConstraintProblem, data: st.DataObject
) -> None:
    """Restricting gives the solutions with the values asked for; propagation their projections,
    so that it loses no value of a solution, and a second time, in any order, changes nothing."""
    names = data.draw(st.permutations(NAMES))[: data.draw(st.integers(0, 3))]
    values = st.lists(st.integers(-1, 12), min_size=1, max_size=6)
    given_values = {name: data.draw(values) for name in names}
    left = {
        row
        for row in brute_force(problem)
        if all(row[NAMES.index(name)] in of for name, of in given_values.items())
    }
    solutions = solve(problem)
    assert set(solutions.restrict(given_values).enumerate()) == left
    found = solutions.propagate(given_values)
    for name, kept in found.items():
        assert kept == tuple(sorted({row[NAMES.index(name)] for row in left}))
    if left:
        narrowed = {**given_values, **found}
        again = solutions.propagate(dict(reversed(narrowed.items())))
        assert {name: again[name] for name in found if name in again} == {
            name: found[name] for name in found if name in again
        }


@given(made_problems(), st.data())
def test_repair_gives_the_nearest_solution(
    problem: ConstraintProblem, data: st.DataObject
) -> None:
    solutions = solve(problem)
    if solutions.count == 0:
        return
    row = data.draw(st.lists(st.integers(-2, 13), min_size=4, max_size=4))
    (repaired,) = rows(solutions.repair(np.array([row], dtype=np.int64)))
    assert is_solution(problem, repaired)
    if is_solution(problem, tuple(row)):
        assert repaired == tuple(row)
    decided = [NAMES.index(name) for name in solutions.points.columns]

    def distance(other: Row) -> int:
        return sum(abs(place(row[i]) - place(other[i])) for i in decided)

    assert distance(repaired) == min(map(distance, brute_force(problem)))


def place(number: int) -> int:
    return round((math.log2(number) if number >= 1 else -1.0) * 65536)


def test_uniform() -> None:
    """Pearson's statistic over all 2772 points lies within five deviations of its mean."""
    solutions = solve(SMALL)
    draws = 100 * solutions.count
    counts = Counter(rows(solutions.sample(draws, 1)))
    assert set(counts) <= set(solutions.enumerate())
    mean, freedom = 100, solutions.count - 1
    statistic = (solutions.count - len(counts)) * mean
    statistic += sum((count - mean) ** 2 / mean for count in counts.values())
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


def test_positions_of_a_large_space_are_as_frequent_as_their_points() -> None:
    """Heron's attach positions for 64 x 64 x 64, whose shares are known exactly."""
    solutions = solve(dl_boost_gemm(64, 64, 64))
    column = solutions.problem.variable_names.index("position")
    n = 40_000
    found = Counter(solutions.sample(n, 2)[:, column].tolist())
    for position, share in enumerate((0.834842, 0.152859, 0.012299)):
        assert abs(found[position] - n * share) < 5 * math.sqrt(n * share * (1 - share))


def test_weights() -> None:
    """Modes come up as often as asked when their weights undo their shares."""
    solutions = solve(dl_boost_gemm(64, 64, 64))
    column = solutions.problem.variable_names.index("position")
    weights = {"position": {0: 1 / 658560, 1: 1 / 120582, 2: 2 / 9702}}
    n = 20_000
    found = Counter(solutions.sample(n, 3, weights=weights)[:, column].tolist())
    for position, share in enumerate((0.25, 0.25, 0.5)):
        assert abs(found[position] - n * share) < 5 * math.sqrt(n * share * (1 - share))
    with pytest.raises(UnknownNameError, match="parallel"):
        solutions.sample(1, 0, weights={"parallel": {1: 2.0}})


@pytest.mark.parametrize("threads", [2, 7])
def test_deterministic(threads: int) -> None:
    first, second = solve(SMALL), solve(ConstraintProblem.from_json(SMALL.to_json()))
    np.testing.assert_array_equal(first.sample(300, 9), second.sample(300, 9, threads=threads))
    np.testing.assert_array_equal(first.sample(300, 9)[200:], second.sample(100, 9, 200))


@given(made_problems(), st.integers(0, 40), st.integers(0, 20))
def test_tighten_monotone(problem: ConstraintProblem, limit: int, less: int) -> None:
    def points(most: int) -> set[Row]:
        bound = AtMost(var("a") * var("b") + var("c"), const(most))
        bounded = evolve(problem, constraints=(*problem.constraints, bound))
        return set(solve(bounded).enumerate())

    assert points(limit - less) <= points(limit)


@given(made_problems(), st.integers(0, 2**32), st.permutations(NAMES), st.integers(0, 4))
def test_offspring_of_two_solutions(
    problem: ConstraintProblem, seed: int, order: list[str], count: int
) -> None:
    """Both parents stay, children take kept variables from either, and fewer of these never make
    the space smaller, in whatever order they are given."""
    solutions = solve(problem)
    if solutions.count == 0:
        return
    mother, father = rows(solutions.sample(2, seed))
    kept = {name: (mother[i], father[i]) for i, name in enumerate(NAMES) if name in order[:count]}
    children = solutions.restrict(kept)
    assert children.contains(np.array([mother, father], dtype=np.int64)).all()
    for child in rows(children.sample(10, seed)):
        assert is_solution(problem, child)
        assert all(child[NAMES.index(name)] in of for name, of in kept.items())
    assert solutions.restrict(dict(reversed(kept.items()))).count == children.count
    for name in kept:
        fewer = {other: of for other, of in kept.items() if other != name}
        assert solutions.restrict(fewer).count >= children.count


def test_an_unknown_extent_has_to_follow_from_something() -> None:
    free = Variable("free", IntRange(1, 10**9))
    with pytest.raises(InvalidValueError, match=r"what 'free' follows from.*1 \.\. 1000000000"):
        solve(ConstraintProblem("open", (free,), ()))


def test_too_many_combinations_are_refused() -> None:
    variables = tuple(Variable(f"v{i}", IntRange(1, 1000)) for i in range(4))
    total = Variable("total", (12345,), "derived")
    squares = Sum(var("total"), tuple(var(v.name) * var(v.name) for v in variables))
    problem = ConstraintProblem("squares", (*variables, total), (squares,))
    with pytest.raises(InvalidValueError, match="'squares'.*too many parameters"):
        solve(problem, limit=100_000)


def test_matrices_and_names_are_checked() -> None:
    solutions: Solutions = solve(SMALL)
    with pytest.raises(InvalidValueError, match=r"int64 matrix \[n, 26\]"):
        solutions.contains(np.zeros((1, 3), dtype=np.int64))
    with pytest.raises(UnknownNameError, match="did you mean|Did you mean"):
        solutions.restrict({"positon": [1]})


def test_an_intermediate_extent_may_be_restricted() -> None:
    """It is not decided itself, so the problem is solved anew."""
    solutions = solve(SMALL)
    assert "i.rest0" not in solutions.points.columns
    column = SMALL.variable_names.index("i.rest0")
    left = solutions.restrict({"i.rest0": [2]})
    assert left.count == sum(row[column] == 2 for row in solutions.enumerate()) > 0


def test_products_with_zero_are_kept() -> None:
    """Factorisations have positive factors only; other domains are not lists of divisors."""
    variables = tuple(Variable(name, IntRange(-2, 2)) for name in ("x", "y"))
    problem = ConstraintProblem(
        "zero",
        (*variables, Variable("z", IntRange(-4, 4), "derived")),
        (Product(var("z"), (var("x"), var("y"))), Member(var("z"), (-4, 0))),
    )
    assert set(solve(problem).enumerate()) == brute_force(problem)
    assert len(brute_force(problem)) == 11
