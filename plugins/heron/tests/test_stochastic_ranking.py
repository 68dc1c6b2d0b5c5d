from __future__ import annotations

import numpy as np
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
