"""Findings at the end of a run about its winner."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from thinning import thinned
from toy_parts import REFERENCE_BACKEND, TOY_SPACE, valid_outcome
from tuner_bench import Bench

import autotune
from autotune.ir.workloads import gemm
from autotune.measure.racing import MOST_LEADERS, challenger, distinct_programs, judge, places
from autotune.search.strategies import RandomStrategy
from autotune.sketches import Candidate
from autotune.store.database import RecordFilter
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.store.trial_log import LogEntry
from autotune.testing.reference_backend import SCRIPT_VARIABLE
from autotune.tuning.events import WinnerConfirmed

SEED = 5
# Enough for as many leaders as there may be.
TRIALS = 192
# The seed of what a run's winners are checked on: the third of its seeds, and one.
OTHER_INPUTS = int(np.random.SeedSequence(SEED).spawn(3)[2].generate_state(1)[0]) + 1


def entry(digest: str, latency: float) -> LogEntry:
    return LogEntry(digest, "ok", latency, 0.0, False, "run")


def outcome(samples: Sequence[float]) -> Outcome:
    return Outcome("ok", float(np.median(samples)), tuple(samples))


def turns(*seconds: float, rounds: int = 10, noise: float = 0.01, seed: int = 0) -> list[Outcome]:
    """Samples of programs of these speeds on a machine that drifts from turn to turn."""
    rng = np.random.default_rng(seed)
    slowdown = np.where(rng.random(rounds) < 0.4, 1.6, 1.0)
    noisy = np.exp(rng.normal(0, noise, (len(seconds), rounds)))
    return [
        outcome((value * slowdown * row).tolist())
        for value, row in zip(seconds, noisy, strict=True)
    ]


def test_a_winner_that_wins_again() -> None:
    confirmation = judge([entry("a", 1.0), entry("b", 1.2)], turns(1.0, 1.2, 30.0), ["wrong"])
    assert (confirmation.winner, confirmation.runner_up) == ("a", "b")
    assert confirmation.rejected == ("wrong",)
    over, gain = confirmation.over_runner_up, confirmation.over_baseline
    assert over is not None
    assert gain is not None
    assert over.ratio == pytest.approx(1.2, rel=0.03)
    assert over.low <= 1.2 <= over.high
    assert gain.low <= 30 <= gain.high
    assert confirmation.gain
    assert confirmation.latency == np.median(confirmation.samples)


def test_a_runner_up_that_is_faster_wins() -> None:
    outcomes = turns(1.3, 1.0, 30.0)
    confirmation = judge([entry("a", 1.0), entry("b", 1.01)], outcomes, [])
    assert (confirmation.winner, confirmation.runner_up) == ("b", "a")
    assert confirmation.over_runner_up is not None
    assert confirmation.over_runner_up.faster
    assert confirmation.samples == outcomes[1].samples


def test_a_runner_up_within_the_noise_does_not_win() -> None:
    for seed in range(20):
        outcomes = turns(1.0, 1.0, noise=0.0, seed=seed)
        confirmation = judge([entry("a", 1.0), entry("b", 1.01)], outcomes, [])
        assert confirmation.winner == "a"
    swapped = sum(
        judge([entry("a", 1.0), entry("b", 1.01)], turns(1, 1, noise=0.05, seed=seed), []).winner
        == "b"
        for seed in range(400)
    )
    # 2.5 % to this side, plus three standard deviations of counting.
    assert swapped / 400 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 400)


def test_short_programs_are_timed_again_in_numbers_and_long_ones_two_at_a_time() -> None:
    latencies = (1e-6, 1e-2, 1.5e-2, 2.7e-2, 2.8e-2, 10.0)
    found = [places(latency, trials=200) for latency in latencies]
    assert found == [MOST_LEADERS, MOST_LEADERS, 5, 3, 2, 2]


def test_few_trials_have_few_leaders() -> None:
    found = [places(1e-5, trials) for trials in (1, 31, 32, 96, 192, 1000)]
    assert found == [2, 2, 3, 5, MOST_LEADERS, MOST_LEADERS]


def test_leaders_have_programs_of_their_own() -> None:
    found = [
        (entry("a", 1.0), Outcome("ok", 1.0, lowered="p", binary="x")),
        (entry("b", 1.1), Outcome("ok", 1.1, lowered="q", binary="x")),
        (entry("c", 1.2), Outcome("ok", 1.2, lowered="q", binary="y")),  # as "b" was lowered
        (entry("d", 1.3), Outcome("ok", 1.3, lowered="r")),
        (entry("e", 1.4), Outcome("ok", 1.4, duplicate_of="d")),
        (entry("f", 1.5), Outcome("ok", 1.5)),
    ]
    assert [it.digest for it in distinct_programs(found, 8)] == ["a", "d", "f"]
    assert [it.digest for it in distinct_programs(found, 2)] == ["a", "d"]
    assert distinct_programs([], 8) == []


def test_the_challenger_is_the_fastest_of_the_others_in_the_same_turns() -> None:
    for seed in range(20):
        assert challenger(turns(1.0, 1.2, 1.1, 1.3, seed=seed)) == 2
        assert challenger(turns(1.0, 1.2, 1.1, 0.9, seed=seed)) == 3
    assert challenger(turns(1.0, 1.2)) == 1


def test_a_leader_that_was_timed_in_a_bad_minute_wins_in_the_end() -> None:
    with open_database(":memory:") as database:
        Bench(database, strategy=RandomStrategy).run(TRIALS)
        found = sorted(database.records(), key=lambda record: record.latency or 0.0)
    fastest, second, place = found[0].candidate, found[1].candidate, found[MOST_LEADERS - 2]
    # Just behind that place, so that it is no tie.
    late = 1.0001 * (place.latency or 0.0)

    def outcome(candidate: Candidate) -> Outcome:
        if candidate.digest != fastest.digest:
            return valid_outcome(candidate)
        return attrs.evolve(place.outcome, latency=late, samples=(late,))

    with open_database(":memory:") as database:
        result = Bench(database, strategy=RandomStrategy, outcome=outcome).run(TRIALS)
        recorded = database.best(RecordFilter(run_id=result.run_id))
        beaten = [it for it in database.records() if it.outcome.beaten_by]
    assert result.best is not None and result.confirmation is not None and recorded is not None
    assert result.best.candidate == fastest == recorded.candidate
    assert result.confirmation.runner_up == second.digest
    # Its latency is what was timed; what it took in the end is kept beside it.
    assert recorded.latency == late == recorded.outcome.samples[0]
    assert result.confirmation.latency == pytest.approx(found[0].latency)
    # Those that seemed faster keep theirs, and are known to have lost.
    assert len(beaten) == MOST_LEADERS - 2
    assert {it.outcome.beaten_by for it in beaten} == {fastest.digest}
    assert all((it.latency or 1.0) <= (recorded.latency or 0.0) for it in beaten)


def test_equal_latencies_are_no_gain() -> None:
    confirmation = judge([entry("a", 1.0)], turns(1.0, 1.0, noise=0.05), [])
    assert confirmation.runner_up == ""
    assert confirmation.over_runner_up is None
    assert not confirmation.gain


@pytest.mark.parametrize("failed", [False, True])
def test_without_an_untuned_program_nothing_is_said_of_it(failed: bool) -> None:
    outcomes = turns(1.0, 1.2)
    if failed:
        outcomes.append(Outcome("timeout"))
    confirmation = judge([entry("a", 1.0), entry("b", 1.2)], outcomes, [])
    assert confirmation.over_baseline is None
    assert not confirmation.gain


def tune(
    database: Path, trials: int = 8, seed: int = SEED
) -> tuple[autotune.Result, list[WinnerConfirmed]]:
    events: list[Any] = []
    result = autotune.tune(
        gemm(m=8, n=8, k=8),
        backend=REFERENCE_BACKEND,
        parts={"search_space": TOY_SPACE, "cost_model": "random", "pruning_model": None},
        trials=trials,
        threads=1,
        seed=seed,
        database=database,
        listeners=[events.append],
    )
    return result, [event for event in events if isinstance(event, WinnerConfirmed)]


def ranking(database: Path, result: autotune.Result) -> list[str]:
    """Digests of the valid candidates of a run, the fastest first."""
    with open_database(database) as opened:
        records = opened.records(RecordFilter(run_id=result.run_id, status="ok"))
        ordered = sorted(records, key=lambda record: record.latency or 0.0)
    return [record.candidate.digest for record in ordered]


@pytest.mark.parametrize(
    ("fault", "status"),
    thinned([("wrong", "wrong_result"), ("kill", "crash"), ("outside", "wrong_result")], 3),
)
def test_winners_that_fail_on_other_inputs_are_recorded_so_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, status: str
) -> None:
    first, _ = tune(tmp_path / "first.db")
    order = ranking(tmp_path / "first.db", first)
    faults = [
        {"fault": fault, "phase": "verify", "candidate": digest, "inputs": OTHER_INPUTS}
        for digest in order[:3]
    ]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    result, (confirmed,) = tune(tmp_path / "second.db")
    assert result.best is not None
    assert result.best.candidate.digest == confirmed.confirmation.winner == order[3]
    assert sorted(confirmed.confirmation.rejected) == sorted(order[:3])
    assert result.confirmation == confirmed.confirmation
    assert result.outcomes[status] == 3
    with open_database(tmp_path / "second.db") as database:
        records = database.records(RecordFilter(run_id=result.run_id, status=status))
        assert sorted(record.candidate.digest for record in records) == sorted(order[:3])
        best = database.best(RecordFilter(workload=result.workload.digest))
        assert best is not None
        assert best.candidate.digest == order[3]


def test_a_run_whose_every_candidate_fails_in_the_end_has_no_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"faults": [{"fault": "wrong", "every": 1, "inputs": OTHER_INPUTS}]}
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps(script))
    result, confirmed = tune(tmp_path / "records.db", trials=5)
    assert result.best is None
    assert result.confirmation is None
    assert confirmed == []
    assert result.outcomes["wrong_result"] == 5


def test_a_run_without_an_untuned_program_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = {"faults": [{"fault": "wrong", "candidate": "baseline"}]}
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps(script))
    result, (confirmed,) = tune(tmp_path / "records.db", trials=5)
    assert result.baseline is not None
    assert result.baseline.status == "wrong_result"
    assert confirmed.confirmation.over_baseline is None
    assert result.best is not None
    assert confirmed.confirmation.winner == result.best.candidate.digest


def test_a_program_that_another_run_has_recorded_is_not_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["i1", "i2", "j1", "j2", "k1"]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"optimised_away": names}))
    path = tmp_path / "records.db"
    first, _ = tune(path, trials=16)
    second, _ = tune(path, trials=16, seed=SEED + 1)
    with open_database(path) as database:
        old = list(database.records(RecordFilter(run_id=first.run_id)))
        new = list(database.records(RecordFilter(run_id=second.run_id)))
    assert {record.candidate.sketch.digest for record in old} >= {
        record.candidate.sketch.digest for record in new
    }
    measured = {it.candidate.digest: it.outcome for it in old if not it.outcome.duplicate_of}
    # One of each sketch: its parameters make no difference.
    assert len(measured) == len({record.candidate.sketch.digest for record in old})
    assert new
    for record in new:
        assert record.outcome.binary in {outcome.binary for outcome in measured.values()}
        assert record.outcome.duplicate_of in measured
