"""The figures of `strategies`, by hand."""

from __future__ import annotations

import math

import pytest
from benchmark_scripts import benchmark_scripts

from autotune.evaluation.compare import Course, Point

with benchmark_scripts("support.search_quality") as (quality,):
    pass


def run(*points: tuple[int, float, float], seconds: float = 100.0) -> Course:
    """A run of 200 trials with these (trials, seconds, latency)."""
    found = tuple(Point(*point) for point in points)
    return Course("gmm", "some", 0, 200, seconds, found)


def test_the_target_is_the_median_and_a_tolerance() -> None:
    reference = [run((1, 1.0, latency)) for latency in (3.0, 10.0, 2.0)]
    assert quality.target_of(reference) == 3.0
    assert quality.target_of(reference, 0.02) == pytest.approx(3.06)


def test_trials_to_the_target_of_each_workload() -> None:
    reference = {"a": [run((1, 1.0, 2.0))], "b": [run((1, 1.0, 10.0))]}
    runs = {
        "a": [run((10, 1.0, 2.0)), run((5, 1.0, 3.0), (40, 2.0, 1.0))],  # 10 and 40: 20
        "b": [run((5, 1.0, 12.0), (5, 1.0, 10.1))],  # missed without a tolerance: 400
    }
    assert quality.trials_to_target(runs, reference) == pytest.approx(math.sqrt(20 * 400))
    assert quality.trials_to_target(runs, reference, 0.02) == pytest.approx(math.sqrt(20 * 5))


def test_seconds_over_those_of_the_reference() -> None:
    walls = (400.0, 100.0, 200.0)
    reference = {"a": [run((200, wall, 2.0), seconds=wall) for wall in walls]}
    runs = {"a": [run((10, 5.0, 2.0)), run((10, 20.0, 2.0))]}
    assert quality.seconds_over(runs, reference) == pytest.approx(10.0 / 200.0)


def test_an_interval_holds_the_figure() -> None:
    reference = {"a": [run((1, 1.0, 2.0))]}
    runs = {"a": [run((trials, 1.0, 2.0)) for trials in (10, 20, 40, 80, 160)]}
    found = quality.interval_of(quality.trials_to_target, runs, reference)
    assert found.value == pytest.approx(40.0)
    assert 10 < found.low < 40 < found.high < 160
    same = quality.interval_of(quality.trials_to_target, {"a": runs["a"][:1]}, reference)
    assert same.low == same.high == same.value == pytest.approx(10.0)


def test_a_curve_has_no_value_before_all_runs_have_one() -> None:
    runs = [run((2, 1.0, 8.0)), run((5, 1.0, 2.0))]
    assert quality.curve_at(runs, lambda it: it.after_trials(4)) is None
    found = quality.curve_at(runs, lambda it: it.after_trials(5))
    assert found.value == pytest.approx(4.0)
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(8.0))


def test_areas_are_of_median_curves() -> None:
    fast = [run((1, 1.0, 4.0), (101, 2.0, 1.0)), run((1, 1.0, 4.0)), run((1, 1.0, 4.0))]
    slow = [run((1, 1.0, 8.0))]
    assert quality.area_over({"gmm": fast}, {"gmm": slow}) == pytest.approx(0.5)
    assert quality.area_over({"gmm": slow}, {"gmm": fast}) == pytest.approx(2.0)
    late = [run((101, 1.0, 2.0))]
    assert quality.area_over({"gmm": late}, {"gmm": slow}) == pytest.approx(0.25), "from there on"
    assert quality.area_over({"gmm": [run()]}, {"gmm": slow}) == math.inf


def test_an_all_knowing_search_is_as_good_as_the_reference_until_it_knows() -> None:
    reference = {"gmm": [run((1, 1.0, 8.0), (150, 2.0, 2.0)), run((101, 1.0, 4.0))]}
    told = quality.knowing(reference, {"gmm": 2.0}, 100)
    assert [one.after_trials(100) for one in told["gmm"]] == [8.0, math.inf]
    assert [one.after_trials(101) for one in told["gmm"]] == [2.0, 2.0]
    slow = {"gmm": [run((1, 1.0, 8.0))]}
    assert quality.area_over(quality.knowing(slow, {"gmm": 2.0}, 100), slow) == pytest.approx(0.5)
    found = {"gmm": [run((1, 1.0, 2.0))]}
    assert quality.area_over(quality.knowing(found, {"gmm": 2.0}, 100), found) == 1.0


def test_results_over_those_of_the_reference() -> None:
    runs = {"a": [run((1, 1.0, 2.0)), run((1, 1.0, 8.0))], "b": [run((1, 1.0, 3.0))]}
    reference = {"a": [run((1, 1.0, 1.0))], "b": [run((1, 1.0, 3.0))]}
    assert quality.latency_over(runs, reference) == pytest.approx(2.0)
