"""Findings of runs over time, by hand."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

import autotune
from autotune import Record, RecordFilter, open_database
from autotune.errors import AutotuneError, UnknownNameError
from autotune.evaluation.compare import (
    Arena,
    Course,
    Point,
    geometric_mean,
    improvements,
    read_run,
    steps_of,
    time_programs,
    time_steps,
    true_latencies,
)
from autotune.ir.workloads import gemm


def run(*points: tuple[int, float, float], seconds: float = 100.0) -> Course:
    """A run of 200 trials with these (trials, seconds, latency)."""
    found = tuple(Point(*point) for point in points)
    return Course("gmm", "some", 0, 200, seconds, found)


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


History = list[tuple[int, float, float | None]]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[History, list[Record]]:
    """History and records of a run."""
    database = tmp_path_factory.mktemp("run") / "records.db"
    result = autotune.tune(
        gemm(m=8, n=8, k=8),
        backend=REFERENCE_BACKEND,
        parts={"search_space": TOY_SPACE, "cost_model": "random", "pruning_model": None},
        trials=12,
        threads=1,
        database=database,
    )
    with open_database(database, read_only=True) as opened:
        records = list(opened.records(RecordFilter(run_id=result.run_id)))
    return [(it.trial, it.elapsed, it.best) for it in result.history], records


def test_every_program_that_was_the_best_for_a_while(tuned: tuple[History, list[Record]]) -> None:
    history, records = tuned
    bests = [best for _, _, best in history]
    changes = [t for t, best in enumerate(bests) if best is not None and best not in bests[:t]]
    winner = next(record for record in records if record.trial == changes[-1])
    steps = steps_of(history, records, winner)
    assert [trial for trial, _, _ in steps] == changes
    assert [record.trial for _, _, record in steps] == changes

    # Another one that the confirmation put in its place is what the run ended with.
    other = next(record for record in records if record.trial not in changes)
    *before, last = steps_of(history, records, other)
    assert before == steps
    assert last == (history[-1][0], history[-1][1], other)


ARENA = Arena(turns=4, seconds=1e-6, backend=REFERENCE_BACKEND)


def test_they_take_turns(tuned: tuple[History, list[Record]]) -> None:
    _, records = tuned
    steps = [(record.trial, 0.5 * record.trial, record) for record in records[:3]]
    timed = time_steps(steps, ARENA)
    assert [(it["trial"], it["elapsed"]) for it in timed] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert [len(it["seconds"]) for it in timed] == [4] * 3
    assert all(0 < seconds < math.inf for it in timed for seconds in it["seconds"])

    # A program that cannot be built has no turns.
    unknown = attrs.evolve(records[0].candidate, values=(0,) * len(records[0].candidate.values))
    broken = attrs.evolve(records[0], candidate=unknown)
    again = [*records[:3], broken, records[0]]
    found, failed = time_programs(again, ARENA)
    assert set(found) == {record.candidate.digest for record in records[:3]}, "each once"
    assert list(failed) == [broken.candidate.digest] and all(failed.values())


def test_a_backend_that_only_a_file_names_is_not_imported(
    tuned: tuple[History, list[Record]],
) -> None:
    _, records = tuned
    with pytest.raises(UnknownNameError, match="installed plugins only"):
        time_programs(records[:1], attrs.evolve(ARENA, backend=None))


def test_programs_of_several_backends_take_no_turns(tuned: tuple[History, list[Record]]) -> None:
    _, (one, *_) = tuned
    other = attrs.evolve(
        one,
        candidate=attrs.evolve(one.candidate, values=one.candidate.values[::-1]),
        key=attrs.evolve(one.key, backend="other"),
    )
    with pytest.raises(AutotuneError, match="one workload and one backend"):
        time_programs([one, other], ARENA)
