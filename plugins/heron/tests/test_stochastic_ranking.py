from __future__ import annotations

import numpy as np
import pytest
from autotune_heron.annealing import is_accepted, moved
from autotune_heron.stochastic_ranking import stochastic_ranking
from hypothesis import given
from hypothesis import strategies as st

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=12)


def ranked(rows: list[tuple[int, int]], chance: float, sweeps: int, seed: int = 0) -> list[int]:
    scores, violations = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    rng = np.random.default_rng(seed)
    return stochastic_ranking(scores, violations, chance, sweeps, rng).tolist()


@given(ROWS, st.floats(0, 1), st.integers(0, 12), st.integers(0, 99))
def test_a_ranking_has_every_row_once(
    rows: list[tuple[int, int]], chance: float, sweeps: int, seed: int
) -> None:
    assert sorted(ranked(rows, chance, sweeps, seed)) == list(range(len(rows)))


@given(ROWS)
def test_without_chance_feasible_rows_come_first_by_score(rows: list[tuple[int, int]]) -> None:
    found = ranked(rows, 0.0, len(rows))
    keys = [(rows[at][1], 0 if rows[at][1] else -rows[at][0]) for at in found]
    assert keys == sorted(keys)


@given(ROWS)
def test_with_certainty_only_scores_count(rows: list[tuple[int, int]]) -> None:
    scores = [rows[at][0] for at in ranked(rows, 1.0, len(rows))]
    assert scores == sorted(scores, reverse=True)


@given(ROWS, st.floats(0, 1), st.integers(0, 99))
def test_feasible_rows_are_among_themselves_ranked_by_score(
    rows: list[tuple[int, int]], chance: float, seed: int
) -> None:
    feasible = [(score, 0) for score, _ in rows]
    found = [feasible[at][0] for at in ranked(feasible, chance, len(rows), seed)]
    assert found == sorted(found, reverse=True)


def test_an_infeasible_row_gets_ahead_the_more_often_the_larger_the_chance() -> None:
    rows = [(1, 0)] * 5 + [(9, 1)]
    places = {
        chance: np.mean([ranked(rows, chance, 10, seed).index(5) for seed in range(300)])
        for chance in (0.0, 0.45, 1.0)
    }
    assert places[0.0] == 5 and places[1.0] == 0
    assert 1 < places[0.45] < 5


def test_no_sweep_changes_nothing() -> None:
    assert ranked([(1, 0), (9, 0)], 0.5, 0) == [0, 1]


def test_violations_are_never_taken_for_merits() -> None:
    """The published residuals of inequalities have the wrong sign."""
    assert ranked([(5, 3), (5, 1), (5, 0)], 0.0, 3) == [2, 1, 0]


VALUES = (np.array([1, 2, 4]), np.array([7]), np.array([3, 5]))


@given(st.integers(0, 2**32))
def test_a_step_changes_one_parameter_to_another_of_its_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.choice(values, 20) for values in VALUES])
    after = moved(rows, VALUES, rng)
    assert ((after != rows).sum(axis=1) == 1).all()
    assert all(np.isin(after[:, at], values).all() for at, values in enumerate(VALUES))


def test_where_nothing_varies_nothing_moves() -> None:
    rows = np.array([[7, 7]])
    assert (moved(rows, (np.array([7]),) * 2, np.random.default_rng(0)) == rows).all()


@pytest.mark.parametrize(("lost", "temperature"), [(0.1, 0.1), (0.5, 1.0), (2.0, 1.0)])
def test_worse_steps_are_taken_with_the_chance_of_metropolis(
    lost: float, temperature: float
) -> None:
    n = 20_000
    before = np.ones(n)
    taken = is_accepted(before, before - lost, temperature, np.random.default_rng(0))
    assert taken.mean() == pytest.approx(np.exp(-lost / temperature), abs=0.015)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_better_steps_are_always_taken_and_infeasible_ones_never(temperature: float) -> None:
    before, rng = np.zeros(100), np.random.default_rng(0)
    assert is_accepted(before, before + 0.1, temperature, rng).all()
    assert is_accepted(before, before, temperature, rng).all()
    assert not is_accepted(before, before - np.inf, temperature, rng).any()
    assert not is_accepted(before - np.inf, before - np.inf, temperature, rng).any()


def test_without_temperature_no_worse_step_is_taken() -> None:
    before = np.zeros(100)
    assert not is_accepted(before, before - 1e-9, 0.0, np.random.default_rng(0)).any()
