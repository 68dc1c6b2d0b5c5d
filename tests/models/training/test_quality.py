"""Figures of rankings, computed by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.models.training import (
    ScoredTask,
    drafted_score,
    pairwise_accuracy,
    peak_score,
    quality_figures,
    top_k_score,
)

# The best is 1 ms and ranked second; the first of the ranking takes 2 ms.
SHORT = ScoredTask([0.9, 0.8, 0.1], [2e-3, 1e-3, 8e-3])
# The best is 10 ms and ranked last; the first takes 40 ms, the second failed.
LONG = ScoredTask([3.0, 2.0, 1.0], [40e-3, math.inf, 10e-3])


def test_top_k_score() -> None:
    assert top_k_score([SHORT], 1) == pytest.approx(1 / 2)
    assert top_k_score([SHORT], 2) == pytest.approx(1)
    assert top_k_score([SHORT, LONG], 1) == pytest.approx(11 / 42)
    assert top_k_score([SHORT, LONG], 2) == pytest.approx(11 / 41)
    assert top_k_score([SHORT, LONG], 5) == pytest.approx(1)
    often = ScoredTask(SHORT.scores, SHORT.latencies, weight=10)
    assert top_k_score([often, LONG], 1) == pytest.approx(20 / 60)


def test_peak_score_weighs_tasks_equally() -> None:
    assert peak_score([SHORT, LONG], 1) == pytest.approx((1 / 2 + 1 / 4) / 2)
    often = ScoredTask(SHORT.scores, SHORT.latencies, weight=3)
    assert peak_score([often, LONG], 1) == pytest.approx((3 / 2 + 1 / 4) / 4)


def test_drafted_score() -> None:
    assert drafted_score([SHORT, LONG], 2, 1) == pytest.approx(11 / 41)
    assert drafted_score([SHORT], 2, 2) == pytest.approx(1 / 2)
    assert drafted_score([SHORT], 3, 3) == pytest.approx(1 / 8)
    assert drafted_score([LONG], 2, 2) == 0


def test_a_top_of_failures_only_is_worth_nothing() -> None:
    assert top_k_score([ScoredTask([2, 1], [math.inf, 1e-3])], 1) == 0


@given(
    st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
)
def test_ties_are_the_mean_over_all_orders(scores: list[float], k: int, seed: int) -> None:
    latencies = np.random.default_rng(seed).uniform(1, 9, len(scores))
    speeds = []
    for order in itertools.permutations(range(len(scores))):
        ranking = sorted(order, key=lambda place: -scores[place])
        speeds.append(1 / min(latencies[place] for place in ranking[:k]))
    assert ScoredTask(scores, latencies).best_of_top(k) == pytest.approx(1 / np.mean(speeds))


def test_pairwise_accuracy() -> None:
    # Pairs by latency: (1, 2), (1, 8), (2, 8); the first is the wrong way round.
    assert pairwise_accuracy(SHORT) == pytest.approx(2 / 3)
    # 10 before 40 and before the failure, 40 before the failure: only the last is right.
    assert pairwise_accuracy(LONG) == pytest.approx(1 / 3)
    assert pairwise_accuracy(ScoredTask([0, 0, 1], [1, 2, 2])) == pytest.approx(0.5 / 2)
    assert pairwise_accuracy(ScoredTask([0, 1], [1, 1])) == 0.5


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=30, unique=True))
def test_laws_of_rankings(latencies: list[float]) -> None:
    right = ScoredTask(-np.array(latencies), latencies)
    wrong = ScoredTask(latencies, latencies)
    flat = ScoredTask(np.zeros(len(latencies)), latencies)
    assert pairwise_accuracy(right) == 1 and pairwise_accuracy(wrong) == 0
    assert pairwise_accuracy(flat) == 0.5
    assert top_k_score([right], 1) == pytest.approx(1)
    tops = [top_k_score([wrong], k) for k in range(1, len(latencies) + 1)]
    assert tops == sorted(tops) and tops[-1] == pytest.approx(1)


def test_figures() -> None:
    assert quality_figures([SHORT, LONG]) == pytest.approx(
        {"top1": 11 / 42, "top5": 1, "pairwise": 1 / 2}
    )


def test_nonsense_is_refused() -> None:
    for call, message in [
        (lambda: ScoredTask([1, 2], [1]), "2 scores for 1 latencies"),
        (lambda: ScoredTask([math.nan], [1]), "none of them NaN"),
        (lambda: ScoredTask([[1]], [1]), "numbers in a row"),
        (lambda: ScoredTask([1], [math.inf]), "without a valid candidate"),
        (lambda: top_k_score([SHORT], 0), "first 0"),
        (lambda: quality_figures([]), "no task"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            call()
