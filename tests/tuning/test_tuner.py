"""The tuning loop: budgets, records, resuming, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_parts import InProcessMeasurer
from tuner_bench import Bench, Killed, OutcomeOf

from autotune.measure import TimeIsOver
from autotune.process.interrupts import TuningInterrupted
from autotune.search.strategies import (
    GridStrategy,
)
from autotune.sketches import Candidate
from autotune.store.database import RecordFilter
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.testing.toy_space import ToySpace
from autotune.tuning import tuner
from autotune.tuning.events import (
    AnsweredFromRecords,
    BaselineMeasured,
    CheckpointSaved,
    RunFailed,
    RunFinished,
    RunInterrupted,
    RunStarted,
    TrialFinished,
    WarningRaised,
)
from autotune.tuning.resume import this_process


@pytest.fixture
def bench() -> Iterator[Bench]:
    with open_database(":memory:") as database:
        yield Bench(database)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_never_began_leaves_nothing(bench: Bench, error: type[BaseException]) -> None:
    def prepared() -> None:
        assert bench.measurers[0].is_open, "workers start while others get ready"
        raise error

    with pytest.raises(error):
        attrs.evolve(bench.tuner(16), prepared=prepared).run()
    assert not bench.measurers[0].is_open
    assert not bench.events and not bench.database.runs()


def test_a_run_uses_its_budget_and_records_every_outcome(bench: Bench) -> None:
    result = bench.run(21)
    records = list(bench.database.records())
    assert [record.trial for record in records] == list(range(21))
    assert [record.candidate.digest for record in records] == bench.measured
    assert {record.run_id for record in records} == {result.run_id}
    assert result.trials == 21 and result.outcomes["ok"] == 21 and result.cached == 0
    latencies = [record.outcome.latency for record in records]
    assert result.best is not None
    assert result.best.latency == min(latency for latency in latencies if latency is not None)
    assert [point.trial for point in result.history] == list(range(21))
    assert result.history[-1].best == result.best.latency
    assert bench.measurers[0].baselines == 1
    assert not any(measurer.is_open for measurer in bench.measurers)
    run = bench.database.run(result.run_id)
    assert run is not None and run.status == "finished"


def test_events_tell_the_story(bench: Bench) -> None:
    bench.run(12)
    kinds = [type(event) for event in bench.events]
    assert kinds[0] is RunStarted and kinds[-1] is RunFinished
    assert kinds.count(TrialFinished) == 12
    assert kinds.count(BaselineMeasured) == 1
    assert kinds.count(CheckpointSaved) == 1  # the second round is not complete
    bests = [event.best or 0 for event in bench.events if isinstance(event, TrialFinished)]
    assert bests == sorted(bests, reverse=True)


def test_a_finished_run_is_answered_from_its_records(bench: Bench) -> None:
    first = bench.run(20)
    made = len(bench.measurers)
    again = bench.run(20)
    smaller = bench.run(5)
    assert len(bench.measurers) == made
    assert again.from_records and smaller.from_records and not first.from_records
    assert again.best == first.best and again.history == first.history
    assert again.baseline == first.baseline and again.outcomes == first.outcomes
    assert sum(again.seconds.values()) == pytest.approx(sum(first.seconds.values()))
    assert bench.seen(AnsweredFromRecords)


@settings(max_examples=settings.default.max_examples // 2)
@given(budgets=st.lists(st.integers(1, 50), min_size=2, max_size=4).map(sorted))
def test_a_larger_budget_continues_the_run(budgets: list[int]) -> None:
    with open_database(":memory:") as one, open_database(":memory:") as other:
        whole, pieces = Bench(one), Bench(other)
        expected = whole.run(budgets[-1])
        results = [pieces.run(budget) for budget in budgets]
        assert pieces.measured == whole.measured
        assert results[-1].best is not None and expected.best is not None
        assert results[-1].best.candidate == expected.best.candidate
        assert len({result.run_id for result in results}) == 1


def test_an_interrupt_saves_and_says_how_to_go_on(bench: Bench) -> None:
    with pytest.raises(
        TuningInterrupted, match="after 11 trials.*the same call resumes"
    ) as caught:
        bench.tuner(30, stop_after=11).run()
    run = bench.database.run(caught.value.run_id)
    assert run is not None and run.status == "interrupted"
    assert bench.seen(RunInterrupted) == [RunInterrupted(run.run_id, 11)]
    assert bench.database.count(RecordFilter(run_id=run.run_id)) == 11
    assert not any(measurer.is_open for measurer in bench.measurers)
    result = bench.run(30)
    assert result.run_id == run.run_id and result.trials == 30
    assert len(set(bench.measured)) == 30 == len(bench.measured)
    started = bench.seen(RunStarted)[-1]
    assert isinstance(started, RunStarted) and started.resumed_trials == 8
    assert sum(result.seconds.values()) == pytest.approx(30.0)


def test_an_error_leaves_a_run_that_can_go_on(bench: Bench) -> None:
    with pytest.raises(ZeroDivisionError):
        bench.tuner(30, stop_after=11, stop_by=ZeroDivisionError).run()
    last = bench.events[-1]
    assert isinstance(last, RunFailed) and last.trials == 11 and "ZeroDivision" in last.message
    assert not any(measurer.is_open for measurer in bench.measurers)
    assert bench.run(30).trials == 30
    assert len(bench.database.runs()) == 1


def test_other_runs_answer_what_they_measured(bench: Bench) -> None:
    bench.strategy = GridStrategy
    first = bench.run(24)
    bench.seed += 1  # a run of its own, which proposes the same
    second = bench.run(24)
    assert second.run_id != first.run_id
    assert second.cached == 24 and second.trials == 24
    assert second.best is not None and second.best.run_id == first.run_id
    assert second.best == first.best
    assert sum(measurer.baselines for measurer in bench.measurers) == 1
    again = bench.run(24)
    assert again.from_records and again.best == first.best and again.cached == 24


def test_fresh_ignores_records_also_when_it_is_resumed(bench: Bench) -> None:
    first = bench.run(24)
    with pytest.raises(TuningInterrupted):
        bench.tuner(24, fresh=True, stop_after=10).run()
    second = bench.run(24)
    assert second.run_id != first.run_id
    assert second.cached == 0 and bench.measured[24:] == bench.measured[:24]
    assert sum(measurer.baselines for measurer in bench.measurers) == 2


def test_other_conditions_are_another_run(bench: Bench) -> None:
    first = bench.run(8)
    bench.protocol = "warm-3"
    second = bench.run(8)
    assert second.run_id != first.run_id and second.cached == 0
    bench.seed = 4
    assert bench.run(8).run_id not in (first.run_id, second.run_id)


def test_crashes_are_tried_again_by_another_run_but_not_by_the_same(bench: Bench) -> None:
    bench.strategy = GridStrategy
    bench.outcome = _failing(lambda candidate: int(candidate.digest, 16) % 3 == 0, "crash")
    bench.stop(16, 12, KeyboardInterrupt)
    first = bench.run(16)
    assert len(bench.measured) == 16
    crashed = first.outcomes["crash"]
    assert 0 < crashed < 16
    bench.seed += 1
    bench.outcome = None
    second = bench.run(16)
    assert second.outcomes["crash"] == 0 and second.cached == 16 - crashed
    assert len(bench.measured) == 16 + crashed


def test_time_ends_a_run_and_the_same_time_is_answered_from_records(bench: Bench) -> None:
    first = bench.run(1000, seconds=10.0)
    assert first.reason == "the time is over"
    assert 10 <= first.trials <= 12
    assert bench.run(1000, seconds=10.0).from_records
    longer = bench.run(1000, seconds=20.0)
    assert longer.run_id == first.run_id and 20 <= longer.trials <= 24
    assert len(set(bench.measured)) == len(bench.measured)


def test_time_alone_is_used_up_whatever_the_number_of_trials(bench: Bench) -> None:
    first = bench.run(None, seconds=100.0)
    assert first.reason == "the time is over" and 100 <= first.trials <= 102
    (started,) = bench.seen(RunStarted)
    assert isinstance(started, RunStarted) and (started.trials, started.seconds) == (None, 100.0)
    stored = bench.database.run(first.run_id)
    assert stored is not None and stored.trials == 0
    assert bench.run(None, seconds=100.0).from_records and bench.run(16).from_records
    longer = bench.run(None, seconds=120.0)
    assert longer.run_id == first.run_id and longer.trials > first.trials
    assert len(set(bench.measured)) == len(bench.measured)


def test_an_exhausted_space_ends_a_run(bench: Bench) -> None:
    bench.space = ToySpace(extent=2)
    bench.space.loosened = {"toy": ("every core gets work",)}
    size = bench.space.count()
    result = bench.run(1000)
    assert result.loosened == bench.space.loosened
    assert result.trials == size and result.reason == "the space is exhausted"
    assert bench.run(2000).from_records


def test_an_empty_space_has_no_valid_candidate(bench: Bench) -> None:
    bench.space = ToySpace(limit=0)
    result = bench.run(10)
    assert result.best is None and result.trials == 0


def _failing(fails: Callable[[Candidate], bool], status: str) -> OutcomeOf:
    def outcome(candidate: Candidate) -> Outcome:
        if fails(candidate):
            return Outcome(status, message=f"{status} of {candidate.digest}\nwith details")
        return Outcome("ok", 1.0 + int(candidate.digest, 16) % 97)

    return outcome


def test_hopeless_runs_warn_and_then_stop(bench: Bench) -> None:
    bench.outcome = _failing(lambda candidate: True, "build_error")
    result = bench.run(200)
    assert result.trials == 32 and result.best is None
    assert result.outcomes["build_error"] == 32
    (warning,) = bench.seen(WarningRaised)
    assert isinstance(warning, WarningRaised)
    assert "first 8 candidates all ended in build_error" in warning.message
    first = f"build_error of {bench.measured[0]}"
    assert first in warning.message
    text = result.failure_text()
    assert "none of 32 candidates was valid (32 build_error)" in text
    assert first in text and "\n" not in text
    run = bench.database.run(result.run_id)
    assert run is not None and run.status == "failed"
    assert bench.run(200).run_id != result.run_id  # what was wrong may have been mended


def test_mixed_failures_do_not_warn(bench: Bench) -> None:
    bench.outcome = _failing(lambda candidate: int(candidate.digest, 16) % 2 == 0, "invalid")
    result = bench.run(40)
    assert result.best is not None and not bench.seen(WarningRaised)
    assert set(result.failures) == {"invalid"}


def test_a_run_of_a_living_process_is_left_alone(bench: Bench) -> None:
    bench.stop(20, 4, Killed)
    (run,) = bench.database.runs()
    assert run.status == "running" and run.checkpoint is not None
    # The first process of the machine lives, and is not this one.
    owner = (
        this_process().split(":")[0]
        + ":1:"
        + Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]
    )
    bench.database.update_run(run.run_id, checkpoint={**run.checkpoint, "owner": owner})
    assert bench.run(20).run_id != run.run_id


def test_a_checkpoint_of_another_version_is_refused(bench: Bench) -> None:
    from autotune.errors import DatabaseError

    bench.stop(20, 12, KeyboardInterrupt)
    (run,) = bench.database.runs()
    assert run.checkpoint is not None
    bench.database.update_run(run.run_id, checkpoint={**run.checkpoint, "version": 99})
    with pytest.raises(DatabaseError, match="version 99.*--fresh"):
        bench.run(20)
    assert bench.run(20, fresh=True).trials == 20


def test_several_tasks_share_a_run(bench: Bench) -> None:
    bench.tasks = 3
    results = bench.tuner(48).run()
    assert sum(result.trials for result in results) == 48
    assert {result.trials for result in results} == {16}
    assert len({result.run_id for result in results}) == 1
    assert len(bench.seen(RunStarted)) == len(bench.seen(RunFinished)) == 3
    assert all(result.from_records for result in bench.tuner(48).run())


@pytest.mark.parametrize(
    ("shares", "most_bytes", "open_at_once"),
    [(False, 1 << 30, 2), (True, 1 << 30, 3), (True, 1, 1)],
)
def test_measurers_that_cost_processes_or_much_memory_are_not_all_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, shares: bool, most_bytes: int, open_at_once: int
) -> None:
    monkeypatch.setattr(InProcessMeasurer, "shares_workers", shares)
    monkeypatch.setattr(tuner, "MOST_KEPT_BYTES", most_bytes)
    bench.tasks, counts = 3, list[int]()
    bench.step = lambda: counts.append(sum(it.is_open for it in bench.measurers))
    results = bench.tuner(48).run()
    assert max(counts) == open_at_once
    assert (len(bench.measurers) == 3) == (open_at_once == 3)
    assert all(result.confirmation is not None for result in results)


def test_a_task_is_left_after_trials_without_a_gain(bench: Bench) -> None:
    bench.tasks, bench.patience = 3, 12
    results = bench.tuner(10_000).run()
    assert {result.reason for result in results} == {"no program has gained from its last trials"}
    for result in results:
        latencies = [point.best for point in result.history]
        last_gain = next(at for at, best in enumerate(latencies) if best == latencies[-1])
        # It is looked at after a round, and one more may have been on its way.
        assert 12 <= result.trials - 1 - last_gain < 12 + 2 * bench.round_size
    assert all(result.from_records for result in bench.tuner(10_000).run())
    bench.patience = None
    assert bench.tuner(10).run()[0].run_id != results[0].run_id


def test_tasks_that_share_the_time_have_a_candidate_before_their_baseline(bench: Bench) -> None:
    bench.tasks = 3
    bench.tuner(24).run()
    for task in ("toy 0", "toy 1", "toy 2"):
        events = [it for it in bench.events if getattr(it, "task", "") == task]
        kinds = [type(it) for it in events]
        assert kinds.count(BaselineMeasured) == 1
        assert kinds.index(TrialFinished) < kinds.index(BaselineMeasured)
    asked = [best for measurer in bench.measurers for best in measurer.beside]
    assert len(asked) == 3 and all(asked), "each is timed beside a candidate"


def test_a_task_without_a_valid_candidate_times_no_baseline(bench: Bench) -> None:
    bench.tasks, bench.outcome = 2, lambda _: Outcome("build_error", message="scripted")
    results = bench.tuner(12).run()
    assert not any(measurer.baselines for measurer in bench.measurers)
    assert {it.best for it in results} == {None}


def test_a_baseline_that_takes_a_whole_session_waits_for_a_candidate(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = InProcessMeasurer.measure_baselines
    asked: list[float | None] = []

    def slow(
        self: InProcessMeasurer, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        asked.append(best)
        if best is None:
            bench.time += 100.0
            raise TimeIsOver
        return timed(self, programs, best)

    monkeypatch.setattr(InProcessMeasurer, "measure_baselines", slow)
    first = bench.run(16, seconds=50.0)
    assert (first.trials, first.best) == (0, None)
    second = bench.run(16, seconds=500.0)
    assert second.run_id == first.run_id and second.trials == 16
    assert asked[0] is None and len(asked) == 2 and asked[1] is not None
    assert second.baseline is not None and second.baseline.ok


@pytest.mark.parametrize(("factor", "turns"), [(5.0, 1), (20.0, 0)])
def test_a_baseline_that_has_lost_by_far_is_not_confirmed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, factor: float, turns: int
) -> None:
    again: list[int] = []
    rematch = InProcessMeasurer.rematch

    def counting(self: InProcessMeasurer, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        again.append(sum(candidate is None for candidate in candidates))
        return rematch(self, candidates)

    monkeypatch.setattr(InProcessMeasurer, "rematch", counting)
    monkeypatch.setattr("toy_parts.virtual_latency", lambda *_: factor)
    bench.outcome = bench.again = lambda _: Outcome("ok", 1.0, (1.0,) * 3)
    result = bench.run(8)
    assert sum(again) == turns
    assert result.speedup == pytest.approx(factor)
