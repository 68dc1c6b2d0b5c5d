"""Bootstrap intervals: by hand where resamples can be counted, and by their laws."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.report.bootstrap import (
    ConfidenceInterval,
    bootstrap_interval,
    paired_difference,
)

FEW = 200
values = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def bounds(found: ConfidenceInterval) -> tuple[float, float, float]:
    return found.value, found.low, found.high


def test_resamples_that_can_be_counted() -> None:
    # The mean of two draws from {0, 1} is 0, 1/2, 1 with probability 1/4, 1/2, 1/4.
    assert bounds(bootstrap_interval([1, 0], np.mean, rng())) == (0.5, 0, 1)
    assert bounds(bootstrap_interval([1, 0], np.mean, rng(), confidence=0.4)) == (0.5, 0.5, 0.5)
    found = paired_difference([1, 0], [0, 0], rng())
    assert bounds(found.interval) == (0.5, 0, 1)
    assert found.above == pytest.approx(3 / 4 + 1 / 8, abs=0.02)
    assert found.pairs == 2


def test_the_median_of_runs_of_which_some_found_nothing() -> None:
    found = bootstrap_interval([1.0, 2.0, 3.0, math.inf], np.median, rng())
    assert bounds(found) == (2.5, 1.0, math.inf)


def test_pairs_see_through_what_both_sides_share() -> None:
    hard = rng(1).uniform(0, 1, 40)
    found = paired_difference(hard + 0.02 + rng(2).normal(0, 0.01, 40), hard, rng()).interval
    assert 0 < found.low < 0.02 < found.high < 0.04


def test_groups_count_alike_whatever_their_sizes() -> None:
    ours, theirs = [3.0, 3.0, 3.0, 1.0], [1.0, 1.0, 1.0, 1.0]
    found = paired_difference(ours, theirs, rng(), groups="aaab")
    assert bounds(found.interval) == (1.0, 1.0, 1.0), "within a group all pairs are alike"
    other = paired_difference(ours, theirs, rng(), groups="aaab", draw_groups=True)
    # Both may be drawn twice.
    assert bounds(other.interval) == (1.0, 0.0, 2.0)
    assert found.above == 1
    assert other.above == pytest.approx(3 / 4 + 1 / 8, abs=0.02)


def test_bounds_cover_the_true_mean_about_as_often_as_they_say() -> None:
    draws = rng(3)
    inside = 0
    for _ in range(300):
        found = bootstrap_interval(draws.normal(5.0, 1.0, 30), np.mean, draws, resamples=FEW)
        inside += found.low <= 5.0 <= found.high
    assert 0.88 < inside / 300 < 0.98


@given(values, seeds)
def test_a_mean_and_its_bounds_lie_within_the_values(column: list[float], seed: int) -> None:
    found = bootstrap_interval(column, np.mean, rng(seed), resamples=FEW)
    slack = 1e-9 * (1 + max(map(abs, column)))
    assert min(column) - slack <= found.low <= found.high <= max(column) + slack
    assert found == bootstrap_interval(column, np.mean, rng(seed), resamples=FEW)


@given(values, st.floats(-100, 100), st.sampled_from([0.5, 2.0, 4.0]), seeds)
def test_it_moves_and_scales_with_the_values(
    column: list[float], shift: float, scale: float, seed: int
) -> None:
    plain = bootstrap_interval(column, np.median, rng(seed), resamples=FEW)
    moved = bootstrap_interval(
        scale * np.array(column) + shift, np.median, rng(seed), resamples=FEW
    )
    expected = [scale * value + shift for value in bounds(plain)]
    assert bounds(moved) == pytest.approx(expected, abs=1e-6)


@given(values, st.floats(0.5, 0.98), seeds)
def test_more_confidence_is_never_narrower(
    column: list[float], confidence: float, seed: int
) -> None:
    few = bootstrap_interval(column, np.mean, rng(seed), resamples=FEW, confidence=confidence)
    more = bootstrap_interval(
        column, np.mean, rng(seed), resamples=FEW, confidence=confidence + 0.01
    )
    assert more.low <= few.low <= few.high <= more.high


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=1, max_size=8), seeds)
def test_exchanged_sides_change_the_sign(pairs: list[tuple[float, float]], seed: int) -> None:
    ours, theirs = zip(*pairs, strict=True)
    one = paired_difference(ours, theirs, rng(seed), resamples=FEW + 1, confidence=0.9)
    other = paired_difference(theirs, ours, rng(seed), resamples=FEW + 1, confidence=0.9)
    assert one.interval.value == pytest.approx(-other.interval.value)
    assert one.interval.low == pytest.approx(-other.interval.high)
    assert one.above == pytest.approx(1 - other.above)


@given(values, seeds)
def test_a_difference_to_nothing_is_the_interval_of_the_values(
    column: list[float], seed: int
) -> None:
    alone = bootstrap_interval(column, np.mean, rng(seed), resamples=FEW)
    paired = paired_difference(column, [0.0] * len(column), rng(seed), resamples=FEW)
    assert bounds(paired.interval) == pytest.approx(bounds(alone))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval([], np.mean, rng()), "at least one"),
        (lambda: bootstrap_interval([1, math.nan], np.mean, rng()), "NaN"),
        (lambda: bootstrap_interval(np.ones((2, 2)), np.mean, rng()), "in a row"),
        (lambda: bootstrap_interval([1], np.mean, rng(), resamples=0), "at least 1, not 0"),
        (lambda: bootstrap_interval([1], np.mean, rng(), confidence=1.0), "between 0 and 1"),
        (lambda: paired_difference([1], [1, 2], rng()), "1 values do not pair with 2"),
        (lambda: paired_difference([], [], rng()), "do not pair"),
        (lambda: paired_difference([math.inf], [math.inf], rng()), "NaN"),
        (lambda: paired_difference([1], [1], rng(), groups="ab"), "2 names of groups for 1"),
    ],
)
def test_nonsense_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        call()
