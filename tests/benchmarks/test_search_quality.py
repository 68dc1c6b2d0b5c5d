"""The figures of benchmarks/strategies.py, by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from benchmark_scripts import benchmark_scripts
from hypothesis import given
from hypothesis import strategies as st

with benchmark_scripts("search_quality", "pieces") as (quality, pieces):
    pass


def run(*points: tuple[int, float, float], seconds: float = 100.0) -> Any:
    """A run of 200 trials with these (trials, seconds, latency)."""
    found = tuple(quality.Point(*point) for point in points)
    return quality.Run("gmm", "some", 0, 200, seconds, found)


def test_points_are_where_it_became_better() -> None:
    history = [(0, 1.0, None), (1, 2.0, 8.0), (2, 3.0, 8.0), (3, 4.0, 6.0)]
    found = quality.improvements(history, before=0.5)
    assert found == (quality.Point(2, 2.5, 8.0), quality.Point(4, 4.5, 6.0))


def test_the_best_programs_of_a_run_by_their_turns() -> None:
    # The last turn is twice as slow for all; the third program only seemed to be faster.
    steps = [
        {"trial": 0, "elapsed": 1.0, "seconds": [8.0, 8.0, 16.0]},
        {"trial": 9, "elapsed": 2.0, "seconds": [4.0, 4.0, 8.0]},
        {"trial": 20, "elapsed": 3.0, "seconds": [5.0, 5.0, 10.0]},
    ]
    points = quality.timed_steps(steps, before=0.5)
    assert [(it.trials, it.seconds) for it in points] == [(1, 1.5), (10, 2.5), (21, 3.5)]
    assert [it.latency for it in points] == pytest.approx([8.0, 4.0, 5.0])
    found = run(*((it.trials, it.seconds, it.latency) for it in points))
    assert found.after_trials(200) == found.latency == pytest.approx(5.0)
    assert found.trials_to(4.1) == 10, "it had that once"
    assert quality.timed_steps([], 0.0) == ()


def test_trials_and_seconds_to_a_target() -> None:
    it = run((2, 1.0, 8.0), (50, 20.0, 5.0), (120, 70.0, 4.0))
    assert (it.trials_to(8.0), it.trials_to(5.0), it.trials_to(4.5)) == (2, 50, 120)
    assert (it.seconds_to(9.0), it.seconds_to(5.0)) == (1.0, 20.0)


def test_what_misses_counts_twice_its_budget() -> None:
    it = run((2, 1.0, 8.0), seconds=70.0)
    assert it.trials_to(7.9) == 400
    assert it.seconds_to(7.9) == 140.0
    assert run().trials_to(1.0) == 400, "nothing was valid"


def test_latency_after_a_budget() -> None:
    it = run((2, 1.0, 8.0), (50, 20.0, 5.0))
    assert [it.after_trials(trials) for trials in (1, 2, 49, 50, 200)] == [math.inf, 8, 8, 5, 5]
    assert [it.after_seconds(seconds) for seconds in (0.5, 19.0, 20.0)] == [math.inf, 8, 5]
    assert quality.shared_seconds([it, run(seconds=60.0)]) == 60.0


def test_a_run_by_what_its_winner_takes() -> None:
    it = run((2, 1.0, 8.0), (50, 20.0, 4.0)).calibrated(2.0)
    assert [point.latency for point in it.points] == [4.0, 2.0]
    assert [point.trials for point in it.points] == [2, 50]


def test_latencies_of_programs_that_took_turns() -> None:
    # The second round is ten times slower for all; in the third, something hit one of them.
    turns = {"one": [1.0, 10.0, 1.0], "two": [2.0, 20.0, 2.0], "other": [4.0, 40.0, 64.0]}
    assert quality.true_latencies(turns) == {"one": 1.0, "two": 2.0, "other": 4.0}


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


@given(st.lists(st.floats(1e-6, 1e6), min_size=1), st.floats(1e-3, 1e3))
def test_geometric_means_scale(values: list[float], factor: float) -> None:
    mean = quality.geometric_mean(values)
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)
    scaled = quality.geometric_mean([value * factor for value in values])
    assert scaled == pytest.approx(mean * factor)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    pieces.append_piece(path, {"seed": 0})
    pieces.append_piece(path, {"seed": 1})
    return path


def test_pieces_are_kept(results: Path) -> None:
    assert pieces.read_pieces(results) == [{"seed": 0}, {"seed": 1}]
    assert pieces.read_pieces(results.with_name("none.jsonl")) == []


def test_a_piece_that_was_cut_off_is_replaced(results: Path) -> None:
    whole = results.read_bytes()
    results.write_bytes(whole[:-3])
    assert pieces.read_pieces(results) == [{"seed": 0}]
    pieces.append_piece(results, {"seed": 1})
    assert results.read_bytes() == whole


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
