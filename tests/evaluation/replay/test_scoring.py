"""Scores: exact random search, known answers, and mutations that these catch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from recorded_spaces import made_run, permuted_run, small_table

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.runs import (
    POINTS,
    Replay,
    RunScore,
    Yardstick,
    expected_best,
    score_run,
    yardstick,
)
from autotune.report.bootstrap import bootstrap_interval

BUDGET = 60
RUNS = 300
TIMES = st.lists(st.floats(1e-3, 1e3) | st.just(math.inf), min_size=1, max_size=6).filter(
    lambda times: any(map(math.isfinite, times))
)


@given(TIMES)
def test_the_expectation_is_the_mean_over_all_orders(times: list[float]) -> None:
    seconds = np.array(times)
    worst = max(filter(math.isfinite, times))
    counted = np.where(np.isfinite(seconds), seconds, worst)
    orders = np.array(list(itertools.permutations(counted)))
    exact = np.minimum.accumulate(orders, axis=1).mean(axis=0)
    found = expected_best(seconds, len(times) + 2)
    assert found[: len(times)] == pytest.approx(exact)
    assert found[len(times) :] == pytest.approx(counted.min())
    assert (np.diff(found) <= 1e-9 * worst).all()


def test_a_space_where_everything_fails_has_no_yardstick() -> None:
    with pytest.raises(InvalidValueError, match="no valid configuration"):
        yardstick(np.array([math.inf]), 3)


def test_the_cutoff_is_where_random_search_has_come_most_of_the_way() -> None:
    table = small_table()
    by = yardstick(table.seconds, 200)
    aim = by.median - 0.95 * (by.median - by.optimum)
    assert by.random[by.cutoff - 1] <= aim < by.random[by.cutoff - 2]
    assert yardstick(table.seconds, 5).cutoff == 5


def test_a_space_of_equals_has_nothing_to_gain() -> None:
    by = yardstick(np.full(30, 2.0), 20)
    assert score_run(made_run([(1, 2.0)], 20), by) == RunScore(0.0, 0.0, 0.0, 0.0, True)


def test_what_a_run_finds_before_its_first_success_is_the_worst() -> None:
    by = yardstick(small_table().seconds, BUDGET)
    never = score_run(made_run([], BUDGET), by)
    assert never.regret == pytest.approx(math.log(by.worst / by.optimum))
    late = score_run(made_run([(51, by.optimum)], BUDGET), by)
    assert late.regret_early == never.regret_early and late.regret == 0.0
    assert never.to_budget < late.to_budget < 0


# What a scorer is: seconds of a space and a run give a score.
Judge = Callable[[NDArray[np.float64], Replay], RunScore]


def judge(seconds: NDArray[np.float64], run: Replay) -> RunScore:
    return score_run(run, yardstick(seconds, BUDGET))


def shifted_optimum(seconds: NDArray[np.float64], run: Replay) -> RunScore:
    by = yardstick(seconds, BUDGET)
    return score_run(run, evolve(by, optimum=0.95 * by.optimum))


def leaked_future(seconds: NDArray[np.float64], run: Replay) -> RunScore:
    earlier = tuple(evolve(it, evaluation=max(1, it.evaluation - 2)) for it in run.steps)
    last = {it.evaluation: it for it in earlier}
    return score_run(evolve(run, steps=tuple(last.values())), yardstick(seconds, BUDGET))


def fast_failures(seconds: NDArray[np.float64], run: Replay) -> RunScore:
    fastest = seconds.min()
    return score_run(run, yardstick(np.where(np.isfinite(seconds), seconds, fastest), BUDGET))


def failures_left_out(seconds: NDArray[np.float64], run: Replay) -> RunScore:
    return score_run(run, yardstick(seconds[np.isfinite(seconds)], BUDGET))


def check(judge: Judge) -> None:
    """Check the laws of a scorer: random search has 0, the optimum 1 and no regret."""
    table = small_table()
    runs = [permuted_run(table, seed, BUDGET) for seed in range(RUNS)]
    scores = [judge(table.seconds, run) for run in runs]
    rng = np.random.default_rng(0)
    for name in ("to_cutoff", "to_budget"):
        values = [getattr(score, name) for score in scores]
        interval = bootstrap_interval(values, np.mean, rng, confidence=0.999)
        assert interval.low < 0 < interval.high, (name, interval)
        assert interval.high - interval.low < 0.5
    optimum, worst = (
        float(table.seconds.min()),
        float(table.seconds[np.isfinite(table.seconds)].max()),
    )
    # Found with the last evaluation, it counts at the last point, and only there.
    never, last = (
        judge(table.seconds, made_run(steps, BUDGET)) for steps in ([], [(BUDGET, optimum)])
    )
    random = float(expected_best(table.seconds, BUDGET)[-1])
    gained = 1 - (random - worst) / (random - optimum)
    assert last.to_budget - never.to_budget == pytest.approx(gained / POINTS)
    at_once = judge(table.seconds, made_run([(1, optimum)], BUDGET))
    assert at_once == RunScore(pytest.approx(1.0), pytest.approx(1.0), 0.0, 0.0, True)


def test_random_search_scores_nothing_and_the_optimum_everything() -> None:
    check(judge)


@pytest.mark.parametrize(
    "mutant", [shifted_optimum, leaked_future, fast_failures, failures_left_out]
)
def test_a_wrong_scorer_is_caught(mutant: Judge) -> None:
    with pytest.raises(AssertionError):
        check(mutant)


@given(st.integers(2, BUDGET))
def test_the_best_is_known_from_its_own_evaluation_on(number: int) -> None:
    run = made_run([(1, 3.0), (number, 1.0)], BUDGET)
    best = run.best(BUDGET, 9.0)
    assert (best[: number - 1] == 3.0).all() and (best[number - 1 :] == 1.0).all()


def test_a_yardstick_is_of_one_budget() -> None:
    by: Yardstick = yardstick(small_table().seconds, 7)
    assert len(by.random) == 7 and by.worst > by.median > by.optimum
