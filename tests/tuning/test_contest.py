"""Several backends that compete for one program within one budget."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from rival_backends import BREAKING, QUICK, SLOW, UNABLE

import autotune
from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedWorkload
from autotune.ir.workloads import gemm
from autotune.process.interrupts import TuningInterrupted
from autotune.store.database import RecordFilter
from autotune.store.records import Comparison, Contest, Outcome
from autotune.store.sqlite import open_database
from autotune.testing.reference_backend import ReferenceProgram
from autotune.tuning.events import (
    BackendsCompared,
    Event,
    RoundStarted,
    TrialFinished,
    WarningRaised,
)
from autotune.tuning.options import TuneOptions

SQUARE = gemm(m=8, n=8, k=8)
BOTH = [SLOW, QUICK]
PARTS = {"cost_model": "random", "pruning_model": None}


def tune(folder: Path, program: object = SQUARE, **settings: Any) -> autotune.Result:
    """Tune with the two backends, and parts that need no compiler."""
    defaults: dict[str, Any] = {
        "backend": BOTH,
        "trials": 16,
        "round_size": 4,
        "threads": 1,
        "database": folder / "records.db",
    }
    return autotune.tune(program, parts=PARTS, **{**defaults, **settings})


@frozen
class Competition:
    """A run of 16 trials, to be looked at only: its database is in the folder."""

    folder: Path
    result: autotune.Result
    events: list[Event]


@pytest.fixture(scope="module")
def competition(tmp_path_factory: pytest.TempPathFactory) -> Competition:
    folder, events = tmp_path_factory.mktemp("competition"), list[Event]()
    return Competition(folder, tune(folder, listeners=[events.append]), events)


def test_the_faster_backend_wins_and_the_other_is_told_of(competition: Competition) -> None:
    result, events = competition.result, competition.events
    assert result.backend == QUICK
    assert result.task == "gemm m=8 n=8 k=8 float32"
    (rival,) = result.rivals
    assert rival.result.backend == SLOW and rival.result.rivals == ()
    assert result.trials + rival.result.trials == 16
    assert min(result.trials, rival.result.trials) >= 4
    assert result.best is not None and rival.result.best is not None
    assert result.best.key.backend == QUICK and rival.result.best.key.backend == SLOW
    # Timed in turns, on the same inputs: virtual time has no noise.
    latencies = [found.confirmation.latency for found in (result, rival.result)]  # type: ignore
    assert rival.comparison is not None and rival.comparison.faster
    assert rival.comparison.ratio == pytest.approx(latencies[1] / latencies[0], rel=1e-5)
    (compared,) = [event for event in events if isinstance(event, BackendsCompared)]
    assert compared.program == result.task and compared.contest.winner == QUICK
    assert compared.contest.over == {SLOW: rival.comparison}


@pytest.mark.slow
def test_a_budget_that_leaves_a_backend_without_a_round(
    tmp_path: Path, competition: Competition
) -> None:
    events: list[Event] = []
    tune(tmp_path, trials=7, listeners=[events.append])
    message = (
        "7 trials are less than a round of 4 for every program and backend: "
        "ask for 8 trials at least"
    )
    assert [event.message for event in events if isinstance(event, WarningRaised)] == [message]
    assert not any(isinstance(event, WarningRaised) for event in competition.events)


@pytest.mark.slow
def test_both_begin_alike_and_are_recorded_apart(tmp_path: Path) -> None:
    events: list[Event] = []
    tune(tmp_path, trials=8, listeners=[events.append])
    assert not any(isinstance(event, WarningRaised) for event in events)
    tasks = [event.task for event in events if isinstance(event, RoundStarted)]
    title = "gemm m=8 n=8 k=8 float32"
    assert tasks == [f"{title} on SlowBackend", f"{title} on QuickBackend"]
    asked: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, TrialFinished):
            asked.setdefault(event.task, []).append(event.candidate.digest)
    first, second = asked.values()
    assert first == second
    with open_database(tmp_path / "records.db") as database:
        for backend in BOTH:
            records = list(database.records(RecordFilter(backend=backend)))
            assert [record.candidate.digest for record in records] == first
        slow, quick = (database.best(RecordFilter(backend=name)) for name in BOTH)
        assert slow is not None and quick is not None
        assert slow.latency == pytest.approx(4 / 3 * (quick.latency or 0.0), rel=1e-5)
        # What is found out of one backend is not found out of the other.
        digest, run = quick.candidate.digest, quick.run_id
        assert slow.candidate.digest == digest and slow.run_id == run
        database.amend(run, digest, Outcome("wrong_result", message="seen later"), quick.key)
        found = {
            record.key.backend: record.outcome.status
            for record in database.records()
            if record.candidate.digest == digest
        }
    assert found == {SLOW: "ok", QUICK: "wrong_result"}


@pytest.mark.slow
def test_the_same_call_is_answered_from_records_with_the_contest(
    tmp_path: Path, competition: Competition
) -> None:
    shutil.copytree(competition.folder, tmp_path, dirs_exist_ok=True)
    first, again = competition.result, tune(tmp_path)
    assert again.from_records and not first.from_records
    one, two = first.to_json(), again.to_json()
    assert two["rivals"][0]["comparison"] == one["rivals"][0]["comparison"]
    assert two["best"] == one["best"]
    assert json.loads(json.dumps(two)) == two
    more = tune(tmp_path, trials=24)
    assert more.run_id == first.run_id
    assert more.trials + more.rivals[0].result.trials == 24


@pytest.mark.slow
def test_an_interrupted_competition_goes_on_as_if_it_had_not_been(
    tmp_path: Path, competition: Competition
) -> None:
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        finished = sum(isinstance(it, TrialFinished) for it in seen)
        if isinstance(event, TrialFinished) and finished == 10:
            raise KeyboardInterrupt

    with pytest.raises(TuningInterrupted):
        tune(tmp_path, listeners=[stop])
    resumed, straight = tune(tmp_path), competition.result
    assert resumed.backend == straight.backend
    for one, two in ((resumed, straight), (resumed.rivals[0].result, straight.rivals[0].result)):
        assert one.trials == two.trials
        assert [point.best for point in one.history] == [point.best for point in two.history]


def test_one_backend_alone_is_no_competition(tmp_path: Path) -> None:
    result = tune(tmp_path, backend=[QUICK], trials=4)
    assert result.rivals == () and result.to_json()["rivals"] == []
    again = tune(tmp_path, backend=QUICK, trials=4)
    assert again.from_records


def test_a_backend_without_a_sketch_is_left_out(tmp_path: Path) -> None:
    events: list[Event] = []
    result = tune(tmp_path, backend=[UNABLE, QUICK], trials=4, listeners=[events.append])
    assert result.backend == QUICK and result.rivals == () and result.trials == 4
    (warning,) = [event for event in events if isinstance(event, WarningRaised)]
    assert f"backend '{UNABLE}' does not take part for gemm m=8" in warning.message
    assert "none of its" in warning.message


def test_no_backend_can_take_part(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedWorkload, match="'gemm': none of its .* sketches"):
        tune(tmp_path, backend=[UNABLE])
    other = "backend_with_gaps:NoBackend"
    with pytest.raises(UnsupportedWorkload, match="none of the backends can take part: .*; "):
        tune(tmp_path, backend=[UNABLE, other])
    assert not list(tmp_path.iterdir())


def test_a_backend_whose_candidates_all_fail_loses(tmp_path: Path) -> None:
    result = tune(tmp_path, backend=[BREAKING, QUICK])
    assert result.backend == QUICK and result.best is not None
    (rival,) = result.rivals
    assert rival.result.best is None and rival.comparison is None
    assert rival.result.outcomes["build_error"] == rival.result.trials


@pytest.mark.slow
def test_a_backend_that_does_not_import_a_program_competes_with_its_own(tmp_path: Path) -> None:
    events: list[Event] = []
    program = ReferenceProgram(SQUARE, json.dumps({"seed": 7}))
    foreign = "backend_with_gaps:BackendWithoutImports"
    result = tune(tmp_path, program, backend=[foreign, QUICK], listeners=[events.append])
    assert {result.backend, result.rivals[0].result.backend} == {foreign, QUICK}
    (warning,) = [event for event in events if isinstance(event, WarningRaised)]
    kind = "autotune.testing.reference_backend.ReferenceProgram"
    assert f"does not import a {kind}: it competes with" in warning.message
    programs = {it.backend: it.program for it in (result, result.rivals[0].result)}
    assert programs == {foreign: None, QUICK: program.script}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([], InvalidValueError, "there is no backend"),
        (["a:B", "a:B"], InvalidValueError, "'a:B' is named twice"),
        ("a:B,a:B", InvalidValueError, "'a:B' is named twice"),
        ("a:B,,b:C", UnknownNameError, "unknown backend ''"),
        (3, InvalidValueError, "backend must be a name, not 3"),
        (["a:B", None], InvalidValueError, "backend must be a name, not None"),
    ],
)
def test_wrong_backends(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TuneOptions(backend=given)


@pytest.mark.slow
def test_several_programs_on_several_backends(tmp_path: Path) -> None:
    results = autotune.tune_tasks(
        [SQUARE, autotune.Task(gemm(m=4, n=16, k=8), weight=2.0, name="wide")],
        backend=",".join(BOTH),
        parts={"cost_model": "random", "pruning_model": None},
        trials=8,
        round_size=2,
        threads=1,
        database=tmp_path / "records.db",
    )
    assert [result.task for result in results] == ["gemm m=8 n=8 k=8 float32", "wide"]
    found = [(it.backend, [rival.result.backend for rival in it.rivals]) for it in results]
    assert found == [(QUICK, [SLOW])] * 2
    assert sum(it.trials + it.rivals[0].result.trials for it in results) == 8


def test_a_contest_round_trips_through_json() -> None:
    over = {"b": Comparison(1.2, 0.0, float("inf"), 1)}
    contest = Contest("a", {"a": "1", "b": "2"}, over)
    assert Contest.from_json(json.loads(json.dumps(contest.to_json()))) == contest
    with pytest.raises(InvalidValueError, match="not a contest"):
        Contest.from_json({"winner": "a"})
