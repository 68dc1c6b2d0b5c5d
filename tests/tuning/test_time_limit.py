"""Work that time limits bound, and work that is left undone when the time is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from toy_parts import valid_outcome
from tuner_bench import Bench, with_plan

from autotune.measure import TimeIsOver
from autotune.process.stopwatch import Stopwatch
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.tuning.budget import Budget, Reserve, TimeLimit
from autotune.tuning.events import WarningRaised, WinnerConfirmed
from autotune.tuning.options import TuneOptions
from autotune.tuning.resume import Checkpoint


@pytest.fixture
def bench() -> Iterator[Bench]:
    with open_database(":memory:") as database:
        yield Bench(database)


@attrs.define
class Clock:
    now: float = 0.0

    def limit(self, before: float = 0.0, startup: float = 0.0, **budget: float) -> TimeLimit:
        watch = Stopwatch(lambda: self.now, {"run": before, "startup": startup})
        return TimeLimit(Budget(100, **budget), watch)


@pytest.mark.parametrize(
    ("before", "budget", "search_ends"),
    [
        (0.0, {"seconds": 20.0}, 20.0),
        (15.0, {"seconds": 20.0}, 5.0),
        (15.0, {"seconds": 20.0, "session_seconds": 3.0}, 3.0),
        (15.0, {"session_seconds": 8.0}, 8.0),
        (20.0, {"seconds": 20.0}, 0.0),
    ],
)
def test_the_search_ends_when_the_first_limit_is_reached(
    before: float, budget: dict[str, float], search_ends: float
) -> None:
    clock = Clock()
    limit = clock.limit(before, **budget)
    assert limit.search_is_over() == (search_ends == 0)
    clock.now = search_ends
    assert limit.search_is_over() and not limit.is_over


def test_a_session_does_not_pay_for_the_start_of_earlier_ones() -> None:
    clock = Clock()
    limit = clock.limit(before=5.0, startup=40.0, seconds=60.0)
    assert limit.left == 55.0 and not limit.search_is_over()
    # Nor does a call that was stopped while it started count as one that did its work.
    progress = attrs.evolve(Checkpoint.empty(1).progress, seconds={"startup": 60.0, "run": 5.0})
    assert not Budget(None, 60.0).is_used_up(progress)
    assert Budget(None, 60.0).is_used_up(attrs.evolve(progress, used_up=60.0))


@pytest.mark.parametrize(
    ("given", "trials"),
    [
        ({}, 3 * 64),
        ({"trials": 5}, 5),
        ({"time": 20.0}, None),
        ({"trials": 5, "time": 20.0}, 5),
        # The run goes on with the next call.
        ({"session_time": 20.0}, 3 * 64),
    ],
)
def test_trials_have_a_default_where_no_time_is_given(
    given: dict[str, Any], trials: int | None
) -> None:
    options = TuneOptions(threads=1, **given)
    budget = Budget.of(options, programs=3)
    assert budget == Budget(trials, options.time, options.session_time)
    assert budget.left(2) == (sys.maxsize if trials is None else trials - 2)


def test_a_call_without_a_limit_is_never_late() -> None:
    clock = Clock()
    limit = clock.limit()
    limit.keep_for([1] * 8, 1)
    clock.now = 1e9
    assert not (limit.search_is_over() or limit.is_late() or limit.is_over)


def test_what_is_in_flight_is_given_up_within_five_seconds() -> None:
    clock = Clock()
    limit = clock.limit(seconds=10.0)
    clock.now = 11.5
    assert limit.is_late(), "in the search one second is enough"
    limit.end_search()
    assert not limit.is_late() and not limit.is_over
    clock.now = 14.5
    assert limit.is_late() and limit.is_over


def test_the_seconds_beyond_the_limit_are_the_callers_where_it_has_something_to_do() -> None:
    clock = Clock()
    limit = clock.limit(seconds=60.0)
    limit.reserve(Reserve(10.0))
    limit.end_search()
    clock.now = 49.0
    assert not limit.is_over
    clock.now = 50.0
    assert limit.is_over and not limit.is_late()
    clock.now = 51.5
    assert limit.is_late()


def test_what_the_caller_does_afterwards_is_no_time_of_the_session() -> None:
    clock = Clock()
    watch = Stopwatch(lambda: clock.now)
    limit = TimeLimit(Budget(100, 60.0), watch)
    limit.reserve(Reserve(4.0, programs=10))
    assert limit.left == 56.0 and limit.used_up(is_over=False) == 0.0
    clock.now = 20.0
    watch.claim("build", 16.0)
    limit.keep_for([], 16)  # ten programs of a second each
    assert limit.left == 60.0 - 20.0 - 4.0 - 10.0
    limit.keep_for([], 16, tuned=5)  # the other five are built as they are
    assert limit.left == 60.0 - 20.0 - 4.0 - 6.25
    limit.keep_for([], 16, tuned=30)
    assert limit.left == 60.0 - 20.0 - 4.0 - 10.0
    clock.now = 46.0
    assert limit.search_is_over() and limit.used_up(is_over=True) == 60.0
    assert not limit.is_late()
    later = TimeLimit(Budget(100, 60.0), Stopwatch(lambda: clock.now, {"run": 46.0}), 60.0)
    assert later.search_is_over() and later.left == 60.0


def test_time_for_builds_is_that_of_candidates_in_their_workers() -> None:
    clock = Clock()
    watch = Stopwatch(lambda: clock.now)
    limit = TimeLimit(Budget(100, 60.0), watch)
    limit.reserve(Reserve(4.0, programs=10, untuned_build=0.5))
    assert limit.left == 60.0 - 4.0 - 5.0
    clock.now = 20.0
    watch.claim("build", 16.0)  # also baselines were built, and workers waited for
    limit.note_builds([0.5, 1.5])
    limit.keep_for([], 4, tuned=4)
    assert limit.left == 60.0 - 20.0 - 4.0 - 4 * 1.0 - 6 * 0.5
    limit.reserve(Reserve(4.0, programs=10))
    limit.keep_for([], 4, tuned=4)
    assert limit.left == 60.0 - 20.0 - 4.0 - 4 * 1.0 - 6 * 0.25


def test_what_confirming_takes_is_known_once_a_winner_has_been_confirmed() -> None:
    clock = Clock()
    limit = clock.limit(seconds=100.0)
    clock.now = 60.0
    limit.keep_for([1] * 10, 60)  # a second each, of which three may come after the limit
    assert not limit.is_confirmation_unknown(10), "there is time left"
    clock.now = 87.0
    assert limit.is_confirmation_unknown(10) and not limit.is_confirmation_unknown(3)
    limit.note_confirmation(1, 0.5)
    assert not limit.is_confirmation_unknown(10)
    limit.keep_for([1] * 9, 60)
    clock.now = 97.3
    assert not limit.search_is_over(), "9 x 0.5 s and a quarter more, and again 3 seconds less"
    clock.now = 97.4
    assert limit.search_is_over()
    limit.keep_for([8] * 4, 60)
    clock.now = 95.6
    assert limit.search_is_over(), "three times as much for programs with many trials"


def test_confirming_takes_as_long_as_the_trials_that_are_repeated() -> None:
    clock = Clock()
    watch = Stopwatch(lambda: clock.now)
    limit = TimeLimit(Budget(100, 100.0), watch)
    clock.now = 30.0
    watch.claim("startup", 20.0)  # ten trials took the other ten seconds

    def search_ends(waiting: list[int]) -> float:
        limit.keep_for(waiting, 10)
        return min(second for second in range(101) if is_over_at(second))

    def is_over_at(second: float) -> bool:
        clock.now = second
        over, clock.now = limit.search_is_over(), 30.0
        return over

    # The last three seconds of confirming are those that a call may take more.
    assert search_ends([1] * 10) == 100 - (10 - 3)
    assert search_ends([8, 2]) == 100 - (3 + 2 - 3)
    assert search_ends([8] * 50) == 85, "at most 15 % is kept"


def test_a_call_that_kept_time_for_its_caller_is_answered_when_it_is_made_again(
    bench: Bench,
) -> None:
    kept = attrs.evolve(bench.tuner(1000, seconds=40.0), prepared=lambda: Reserve(20.0))
    (first,) = kept.run()
    assert first.reason == "the time is over" and first.confirmation is not None
    assert sum(first.seconds.values()) <= 25.0
    again = bench.run(1000, seconds=40.0)
    assert again.from_records and again.trials == first.trials
    more = bench.run(1000, seconds=60.0)
    assert more.run_id == first.run_id and more.trials > first.trials


def test_time_is_kept_for_as_many_winners_as_there_are() -> None:
    clock = Clock()
    limit = clock.limit(seconds=100.0)
    clock.now = 40.0
    limit.keep_for([10] * 4, 40)  # 12 trials' time, of which 3 seconds may come after the limit
    assert limit.left == 60.0 and not limit.search_is_over()
    clock.now = 90.9
    assert not limit.search_is_over()
    clock.now = 91.1
    assert limit.search_is_over()
    limit.keep_for([10] * 1000, 40)
    clock.now = 84.9
    assert not limit.search_is_over(), "never more than 15 % of the time"


def test_trials_take_longer_than_confirmations_and_the_time_is_used_all_the_same(
    bench: Bench,
) -> None:
    """Trials take four seconds, confirmations two or three: all that may be kept is too much."""
    bench.tasks, bench.round_size = 5, 1

    def slow(candidate: Candidate) -> Outcome:
        bench.time += 3.0
        return valid_outcome(candidate)

    def again(candidate: Candidate) -> Outcome:
        bench.time += 1.0
        return valid_outcome(candidate)

    bench.outcome, bench.again = slow, again
    results = bench.tuner(None, seconds=120.0).run()
    assert all(result.confirmation is not None for result in results)
    assert 113.0 < bench.time <= 125.0
    confirmed = [it.task for it in bench.seen(WinnerConfirmed) if isinstance(it, WinnerConfirmed)]
    assert len(results) <= len(confirmed) <= len(results) + 1, "one at most is confirmed twice"


def test_confirmations_that_there_was_no_time_for_are_made_by_the_same_call(bench: Bench) -> None:
    """Winners take about ten seconds each to be confirmed; the whole call may take 30."""
    bench.tasks, began = 3, 0.0

    def again(candidate: Candidate) -> Outcome:
        bench.time += 3.0
        if bench.time > began + 34.0:  # as workers that are shared do
            bench.time = began + 34.0
            raise TimeIsOver
        return valid_outcome(candidate)

    bench.again = again
    results = bench.tuner(1000, seconds=30.0).run()
    assert bench.time <= 35.0
    assert {result.reason for result in results} == {"the time is over"}
    assert sum(result.trials for result in results) >= 8
    confirmed = [result.confirmation is not None for result in results]
    assert any(confirmed) and not all(confirmed)
    unknown = [result.task for result in results if result.confirmation is None]
    (warning,) = (it for it in bench.seen(WarningRaised) if isinstance(it, WarningRaised))
    assert sorted(warning.task.split(", ")) == sorted(unknown)
    assert "not confirmed" in warning.message and "the same call" in warning.message

    measured, began = len(bench.measured), bench.time
    later = bench.tuner(1000, seconds=30.0).run()
    assert [it.run_id for it in later] == [it.run_id for it in results]
    assert [it.trials for it in later] == [it.trials for it in results]
    assert all(result.confirmation is not None for result in later)
    assert len(bench.measured) == measured and bench.time <= began + 35.0
    assert all(result.from_records for result in bench.tuner(1000, seconds=30.0).run())


def test_a_call_without_time_to_propose_again_knows_what_was_measured(bench: Bench) -> None:
    first = bench.run(1000, seconds=11.0)
    assert first.trials > bench.round_size and first.best is not None

    def slow_start() -> Reserve:
        bench.time += 60.0
        return Reserve()

    (second,) = attrs.evolve(bench.tuner(1000, seconds=20.0), prepared=slow_start).run()
    assert (second.run_id, second.trials) == (first.run_id, first.trials)
    assert second.best is not None and second.best.candidate == first.best.candidate
    measured = len(bench.measured)
    later = bench.run(1000, seconds=200.0)
    assert later.run_id == first.run_id and later.trials > first.trials
    assert len(bench.measured) == measured + later.trials - first.trials


def test_winners_on_which_most_time_is_spent_are_confirmed_first(bench: Bench) -> None:
    bench.tasks = 3
    tuner = bench.tuner(48)
    weights = dict(zip((it.name for it in tuner.plan.tasks), (1.0, 1e6, 1e3), strict=True))
    tasks = [attrs.evolve(it, weight=weights[it.name]) for it in tuner.plan.tasks]
    with_plan(tuner, tasks=tasks).run()
    order = [it.task for it in bench.seen(WinnerConfirmed) if isinstance(it, WinnerConfirmed)]
    assert order == sorted(weights, key=lambda name: -weights[name])
