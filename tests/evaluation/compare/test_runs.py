"""What runs had found when, by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.evaluation.compare import (
    Point,
    Run,
    geometric_mean,
    improvements,
    read_run,
    true_latencies,
)


def run(*points: tuple[int, float, float], seconds: float = 100.0) -> Run:
    """A run of 200 trials with these (trials, seconds, latency)."""
    found = tuple(Point(*point) for point in points)
    return Run("gmm", "some", 0, 200, seconds, found)


def test_points_are_where_it_became_better() -> None:
    history = [(0, 1.0, None), (1, 2.0, 8.0), (2, 3.0, 8.0), (3, 4.0, 6.0)]
    found = improvements(history, before=0.5)
    assert found == (Point(2, 2.5, 8.0), Point(4, 4.5, 6.0))


def test_the_best_programs_of_a_run_by_their_turns() -> None:
    # The last turn is twice as slow for all; the third program only seemed to be faster.
    steps = [
        {"trial": 0, "elapsed": 1.0, "seconds": [8.0, 8.0, 16.0]},
        {"trial": 9, "elapsed": 2.0, "seconds": [4.0, 4.0, 8.0]},
        {"trial": 20, "elapsed": 3.0, "seconds": [5.0, 5.0, 10.0]},
    ]
    line = {"workload": "gmm", "contender": "some", "seed": 0, "trials": 200, "wall": 100.0}
    # The clock of the run began half a second after the command.
    line |= {"seconds": {"total": 99.5}, "steps": steps, "history": []}
    found = read_run(line)
    points = found.points
    assert [(it.trials, it.seconds) for it in points] == [(1, 1.5), (10, 2.5), (21, 3.5)]
    assert [it.latency for it in points] == pytest.approx([8.0, 4.0, 5.0])
    assert found.after_trials(200) == found.latency == pytest.approx(5.0)
    assert found.trials_to(4.1) == 10, "it had that once"
    assert read_run({**line, "steps": []}).points == ()


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


def test_a_run_by_what_its_winner_takes() -> None:
    it = run((2, 1.0, 8.0), (50, 20.0, 4.0)).calibrated(2.0)
    assert [point.latency for point in it.points] == [4.0, 2.0]
    assert [point.trials for point in it.points] == [2, 50]


def test_latencies_of_programs_that_took_turns() -> None:
    # The second round is ten times slower for all; in the third, something hit one of them.
    turns = {"one": [1.0, 10.0, 1.0], "two": [2.0, 20.0, 2.0], "other": [4.0, 40.0, 64.0]}
    assert true_latencies(turns) == {"one": 1.0, "two": 2.0, "other": 4.0}


@given(st.lists(st.floats(1e-6, 1e6), min_size=1), st.floats(1e-3, 1e3))
def test_geometric_means_scale(values: list[float], factor: float) -> None:
    mean = geometric_mean(values)
    assert min(values) * (1 - 1e-9) <= mean <= max(values) * (1 + 1e-9)
    scaled = geometric_mean([value * factor for value in values])
    assert scaled == pytest.approx(mean * factor)
