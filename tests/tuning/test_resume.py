"""A run that is stopped at any step, and gone on with, is the run that was never stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_parts import valid_outcome
from tuner_bench import Bench, Killed, SteppingDatabase, nothing, passing_killed

from autotune.errors import DatabaseError
from autotune.process.interrupts import TuningInterrupted
from autotune.search.strategies import EvolutionaryStrategy, GridStrategy, RandomStrategy
from autotune.sketches import Candidate
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Outcome, Record, Run
from autotune.store.sqlite import open_database
from autotune.tuning.events import WarningRaised
from autotune.tuning.resume import Checkpoint

TRIALS = 9
ROUND = 4


def killed() -> None:
    """Stop as by SIGKILL, as far as the database can tell."""
    raise Killed


def interrupted() -> None:
    """A real Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


@attrs.define
class Steps:
    """Counts steps, and stops a run at one of them."""

    stop: Callable[[], None] = nothing
    at: int | None = None
    taken: int = 0

    def __call__(self) -> None:
        self.taken += 1
        if self.taken == self.at:
            self.stop()


def some_crash(candidate: Candidate) -> Outcome:
    """Crashes may be tried again by another run, but not by the one that recorded them."""
    if int(candidate.digest, 16) % 4 == 0:
        return Outcome("crash", message="scripted")
    return valid_outcome(candidate)


def test_a_run_of_an_older_version_is_not_continued_in_silence() -> None:
    """Runs of ``random`` once kept a cost model that it never asked."""
    with open_database(":memory:") as database:
        bench = Bench(database, strategy=RandomStrategy)
        plan = bench.tuner(TRIALS).plan
        older = attrs.evolve(
            plan.new_run(TRIALS, fresh=False, created=0.0),
            identity="older",
            options={**plan.decisions, "cost_model": "gbdt", "pruning_model": "psa"},
            status="interrupted",
            checkpoint=Checkpoint.empty(1).to_json(),
        )
        database.start_run(attrs.evolve(older, run_id="other", seed=77))
        database.start_run(older)
        result = bench.run(TRIALS)
        (warning,) = bench.seen(WarningRaised)
        assert isinstance(warning, WarningRaised) and warning.message == (
            f"run {older.run_id} is not continued: its strategy 'random' asks no cost model and "
            "no pruning model; its records are still used"
        )
        assert result.run_id != older.run_id and result.trials == TRIALS


def run_once(database: SteppingDatabase, steps: Steps, trials: int, **options: Any) -> Bench:
    """Run a single session; returns the bench on which it took place."""
    options = {"round_size": ROUND, "outcome": some_crash, **options}
    bench = Bench(database, step=steps, **options)
    database.step = steps
    tuner = bench.tuner(trials)
    try:
        with tuner.guard, passing_killed():
            tuner.run()
    except (Killed, KeyboardInterrupt, TuningInterrupted):
        pass
    finally:
        database.step = nothing
    assert not any(measurer.is_open for measurer in bench.measurers)
    return bench


def facts(database: Database) -> dict[str, Any]:
    """Facts that are the same however often a run was stopped: all but times and names."""
    run = only_run(database)
    assert run.checkpoint is not None
    records = sorted(database.records(), key=lambda record: record.trial)
    progress = run.checkpoint["progress"]
    return {
        "records": [_of_record(record) for record in records],
        "search": run.checkpoint["search"],
        "logs": [[[*entry[:3], entry[4]] for entry in log] for log in progress["logs"]],
        "confirmations": progress["confirmations"],
        "reason": progress["reason"],
        "status": run.status,
        "trials": run.trials,
    }


def only_run(database: Database) -> Run:
    """The run, of which there is one."""
    (run,) = database.runs()
    return run


def _of_record(record: Record) -> list[Any]:
    return [record.trial, record.candidate.digest, record.outcome]


WAYS = pytest.mark.parametrize("stop", [killed, interrupted])


@WAYS
@pytest.mark.parametrize(
    ("options", "stride", "trials"),
    [
        ({}, 2, TRIALS),
        ({"lookahead": 0}, 5, TRIALS),
        ({"tasks": 2}, 3, TRIALS),
        ({"tasks": 2, "lookahead": 0}, 5, TRIALS),
        ({"lanes": 2}, 17, 25),
        ({"lanes": 2, "lookahead": 0}, 31, 25),
    ],
    ids=[
        *("one task", "no lookahead", "two tasks", "two tasks, no lookahead"),
        *("two machines", "two machines, no lookahead"),
    ],
)
def test_every_step_is_one_to_stop_at(
    stop: Callable[[], None], options: dict[str, Any], stride: int, trials: int
) -> None:
    with SteppingDatabase() as database:
        count = Steps()
        run_once(database, count, trials, **options)
        expected = facts(database)
    assert count.taken > 50 and expected["status"] == "finished"
    for step in range(1, count.taken + 1, stride):
        with SteppingDatabase() as database:
            steps = Steps(stop, step)
            first = run_once(database, steps, trials, **options)
            assert steps.taken >= step
            second = run_once(database, Steps(), trials, **options)
            assert facts(database) == expected, f"stopped at step {step}"
        if stop is interrupted:
            twice = set(first.measured) & set(second.measured)
            assert not twice, f"measured twice after an interrupt at step {step}"


@settings(max_examples=settings.default.max_examples // 5)
@given(
    stops=st.lists(
        st.tuples(st.sampled_from([killed, interrupted]), st.integers(1, 90), st.integers(1, 40)),
        min_size=1,
        max_size=5,
    ),
    total=st.integers(20, 40),
    options=st.fixed_dictionaries(
        {
            "strategy": st.sampled_from([EvolutionaryStrategy, RandomStrategy]),
            "tasks": st.integers(1, 2),
            "lookahead": st.integers(0, 1),
            "trees": st.just(True),
        }
    ),
)
def test_budgets_and_stops_in_any_order_with_a_model_that_learns(
    stops: list[tuple[Callable[[], None], int, int]], total: int, options: dict[str, Any]
) -> None:
    with SteppingDatabase() as database:
        whole = run_once(database, Steps(), total, **options)
        expected = facts(database)
    with SteppingDatabase() as database:
        measured: set[str] = set()
        for stop, at, trials in stops:
            measured |= set(run_once(database, Steps(stop, at), trials, **options).measured)
        measured |= set(run_once(database, Steps(), total, **options).measured)
        if all(trials <= total for _, _, trials in stops):
            assert measured == set(whole.measured)
            found = facts(database)
            assert {**found, "reason": ""} == {**expected, "reason": ""}


@WAYS
def test_a_run_stopped_while_it_is_confirmed_is_confirmed_later(stop: Callable[[], None]) -> None:
    def again(candidate: Candidate) -> Outcome:
        stop()
        return valid_outcome(candidate)

    with SteppingDatabase() as database:
        run_once(database, Steps(), TRIALS, again=again)
        assert only_run(database).status != "finished"
        second = run_once(database, Steps(), TRIALS)
        assert second.measured == []
        (confirmation,) = facts(database)["confirmations"]
        assert confirmation is not None


@WAYS
def test_a_winner_found_wrong_is_found_so_at_whatever_step_the_run_was_stopped(
    stop: Callable[[], None],
) -> None:
    with SteppingDatabase() as database:
        run_once(database, Steps(), TRIALS)
        (confirmation,) = facts(database)["confirmations"]
    winner = confirmation["winner"]

    def again(candidate: Candidate) -> Outcome:
        if candidate.digest == winner:
            return Outcome("wrong_result", message="wrong on other inputs")
        return valid_outcome(candidate)

    with SteppingDatabase() as database:
        count = Steps()
        run_once(database, count, TRIALS, again=again)
        expected = _verdict(database, winner)
    for step in range(count.taken - 12, count.taken + 1):
        with SteppingDatabase() as database:
            run_once(database, Steps(stop, step), TRIALS, again=again)
            run_once(database, Steps(), TRIALS, again=again)
            assert _verdict(database, winner) == expected, f"stopped at step {step}"


def _verdict(database: Database, winner: str) -> tuple[str, str, str]:
    """Status of the winner that was wrong, by record and log, and the winner in its stead."""
    run = only_run(database)
    assert run.checkpoint is not None and run.status == "finished"
    (log,) = run.checkpoint["progress"]["logs"]
    (confirmation,) = run.checkpoint["progress"]["confirmations"]
    (logged,) = (entry[1] for entry in log if entry[0] == winner)
    (record,) = (it for it in database.records() if it.candidate.digest == winner)
    assert logged == record.outcome.status == "wrong_result"
    best = database.best(RecordFilter(run_id=run.run_id))
    assert best is not None and best.candidate.digest == confirmation["winner"] != winner
    return logged, record.outcome.status, confirmation["winner"]


def test_a_record_that_another_run_has_amended_does_not_end_this_one() -> None:
    """Two runs share a record; one finds out that it is wrong while the other is at work."""
    with open_database(":memory:") as database:
        first = Bench(database, strategy=GridStrategy, round_size=ROUND)
        best = first.run(TRIALS).best
        assert best is not None
        wrong = Outcome("wrong_result", message="wrong on other inputs")
        second = Bench(database, strategy=GridStrategy, round_size=ROUND, seed=4)
        first_run = only_run(database).run_id

        def outcome(candidate: Candidate) -> Outcome:
            database.amend(first_run, best.candidate.digest, wrong)
            return Outcome("ok", 1.0, (1.0,))  # slower than everything else

        second.outcome = outcome
        result = second.run(TRIALS + ROUND)
        assert result.cached == TRIALS and len(second.measured) == ROUND
        assert result.best is not None and result.best.candidate != best.candidate
        assert result.confirmation is not None
        assert result.confirmation.rejected == (best.candidate.digest,)
        # The first run's answer is the best of what is still valid, too.
        answer = first.run(TRIALS)
        assert answer.from_records and answer.best is not None
        assert answer.best.candidate != best.candidate and answer.best.outcome.ok


def test_a_run_is_never_without_a_state() -> None:
    with SteppingDatabase() as database:
        states = []

        def look() -> None:
            if not database._connection.in_transaction:
                states.extend(run.checkpoint for run in database.runs())

        run_once(database, Steps(), 1)
        first = len(database.runs())
        database.step = look
        Bench(database, seed=5).tuner(TRIALS).run()
        assert first == 1 and len(database.runs()) == 2
        assert states and None not in states


def test_only_one_of_two_that_find_a_run_goes_on_with_it() -> None:
    """The second one reads the run before the first one takes it over, and claims it after."""
    with SteppingDatabase() as database:
        run_once(database, Steps(killed, 40), TRIALS)
        left_behind = only_run(database)
        found = database.find_run
        database.find_run = lambda identity: left_behind  # type: ignore[method-assign]
        one = Bench(database, round_size=ROUND).run(TRIALS)
        other = Bench(database, round_size=ROUND).run(TRIALS)
        database.find_run = found  # type: ignore[method-assign]
        assert one.run_id == left_behind.run_id != other.run_id


def test_the_checkpoint_of_a_space_that_has_changed_is_refused() -> None:
    with SteppingDatabase() as database:
        run_once(database, Steps(killed, 60), TRIALS)
        run = only_run(database)
        assert run.checkpoint is not None and run.checkpoint["search"]["outstanding"]
        checkpoint: dict[str, Any] = dict(run.checkpoint)
        checkpoint["search"]["outstanding"][1][0][0] = 99
        database.update_run(run.run_id, checkpoint=checkpoint)
        with pytest.raises(DatabaseError, match="the search space does not.*--fresh"):
            Bench(database, round_size=ROUND).run(TRIALS)
        assert only_run(database).status == "interrupted"


@pytest.mark.parametrize("factor", [1.6, 1 / 1.6])
def test_a_session_on_a_machine_of_another_speed_goes_by_what_it_times(factor: float) -> None:
    """The best so far is timed again; records keep what was timed, and still compare."""

    def slower(candidate: Candidate) -> Outcome:
        outcome = valid_outcome(candidate)
        latency = (outcome.latency or 0.0) * factor
        return attrs.evolve(outcome, latency=latency, samples=(latency,) * 3)

    trials, after = 48, 20
    with open_database(":memory:") as database:
        bench = Bench(database)
        bench.stop(trials, after, KeyboardInterrupt)
        later = Bench(database, outcome=slower, again=slower)
        result = later.run(trials)
        recorded = list(database.records())
    assert result.trials == trials and result.best is not None
    for record in recorded:
        usual = valid_outcome(record.candidate).latency or 0.0
        assert record.latency == pytest.approx(usual * (1 if record.trial < after else factor))
    fastest = min(valid_outcome(record.candidate).latency or 0.0 for record in recorded)
    # Latencies alone would have it among those of the faster session.
    assert valid_outcome(result.best.candidate).latency == fastest
