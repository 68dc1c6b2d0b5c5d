"""A tuned program is never slower than what the user would have had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from slow_untuned import LEAST_SECONDS, SLOW_UNTUNED
from thinning import thinned
from toy_parts import REFERENCE_BACKEND, tune_toy

import autotune
from autotune.cli.app import command_group
from autotune.errors import NoValidCandidate
from autotune.ir.workloads import gemm
from autotune.measure import MeasureProtocol
from autotune.models.training.training import training_groups
from autotune.report import comparison_table
from autotune.sketches import UNTUNED, is_default
from autotune.store.database import RecordFilter
from autotune.store.records import Comparison, Record
from autotune.store.sqlite import open_database
from autotune.testing.reference_backend import SCRIPT_VARIABLE, ReferenceProgram
from autotune.tuning.events import BaselineMeasured, Event, WarningRaised
from autotune.tuning.result import compile_record
from autotune.tuning.task import after_turns

SEED, TRIALS = 5, 6
WITH_DEFAULT = f"{REFERENCE_BACKEND}WithDefault"
DEFAULT = "reference schedule"
# Seed of the inputs that a run's winner is checked on: the third of its seeds, and one.
OTHER_INPUTS = int(np.random.SeedSequence(SEED).spawn(3)[2].generate_state(1)[0]) + 1

CASES: list[tuple[dict[str, float], str]] = [
    # As of a reshape: nothing is gained, and much may be lost.
    ({"baseline": 7e-8, "default": 2e-6, "others": 1.05e-6}, UNTUNED),
    ({"baseline": 2e-6, "default": 7e-8, "others": 1.05e-6}, DEFAULT),
    ({"baseline": 1e-5, "default": 2e-6, "others": 1.05e-6}, ""),
    # Equal ones: no gain beyond the noise is a gain.
    ({"baseline": 1e-5, "default": 1e-6, "others": 1e-6}, DEFAULT),
]


def tune(
    path: Path, script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[autotune.Result, list[Event]]:
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps(script))
    events: list[Event] = []
    usual = {"backend": WITH_DEFAULT, "trials": TRIALS, "seed": SEED}
    return tune_toy(path, listeners=[events.append], **{**usual, **options}), events


def command(*words: str) -> Any:
    """The JSON that a command prints."""
    done = CliRunner().invoke(command_group, [*words, "--json", "-"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def built_name(record: Record) -> str:
    """Name of the program that :func:`compile_record` makes of a record."""
    request = compile_record(record, backend=WITH_DEFAULT).executable._request  # type: ignore[attr-defined]
    if request.candidate is None:
        return UNTUNED
    return DEFAULT if is_default(request.candidate) else ""


@pytest.mark.parametrize(("latencies", "used"), thinned(CASES, 2))
def test_everything_that_applies_records_gives_the_same_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latencies: dict[str, float], used: str
) -> None:
    path, lines = tmp_path / "records.db", tmp_path / "best.jsonl"
    result, _ = tune(path, {"latencies": latencies}, monkeypatch)
    best = result.require_best()
    assert (best.baseline, result.keeps_baseline) == (used, bool(used))
    assert built_name(best) == used
    assert result.build().executable._request.candidate == best.scheduled  # type: ignore[attr-defined]
    assert result.speedup == (1.0 if used else pytest.approx(2e-6 / 1.05e-6))

    asked = ["--database", str(path)]
    (shown,) = command("best", *asked)
    assert Record.from_json(shown) == best
    seen = command("show", *asked, "--backend", WITH_DEFAULT, "--part", "script")
    assert Record.from_json(seen["record"]) == best
    named = command(
        "show", *asked, "--backend", WITH_DEFAULT, "--record", best.name, "--part", "script"
    )
    assert (named["record"], named["script"]) == (seen["record"], seen["script"])
    command("records", "export", str(lines), *asked, "--best-only")
    (exported,) = map(json.loads, lines.read_text().splitlines())
    assert Record.from_json(exported) == best
    with open_database(path) as database:
        stored = database.best(RecordFilter())
        assert stored == best
        (each,) = database.best_of_each()
        assert each == best

    command("records", "export", str(lines), *asked)
    other = tmp_path / "other.db"
    assert command("records", "import", str(lines), "--database", str(other))["bad"] == 0
    (imported,) = command("best", "--database", str(other))
    assert imported.pop("imported")
    assert Record.from_json(imported) == best

    again, events = tune(path, {"latencies": latencies}, monkeypatch)
    assert again.from_records
    assert (again.best, again.baselines) == (best, result.baselines)
    assert not [event for event in events if isinstance(event, BaselineMeasured)]


def test_a_default_schedule_is_shown_and_a_candidate_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "records.db")
    result, _ = tune(Path(path), {"latencies": CASES[1][0]}, monkeypatch)
    best = result.require_best()
    assert best.baseline == DEFAULT
    shown = command("show", "--database", path, "--backend", WITH_DEFAULT)
    assert shown["nest"] == f"{DEFAULT} is the compiler's own: it has no symbolic nest"
    untuned = f"{result.run_id}/untuned"
    nest = command("show", "--database", path, "--record", untuned, "--part", "nest")["nest"]
    assert nest.startswith("for C.i.0 in 8:")

    explained = command("explain", "--database", path, "--cost-model", "analytic")
    assert result.fastest is not None
    assert explained["candidate"] == result.fastest.candidate.to_json()
    for name in (best.name, untuned):
        done = CliRunner().invoke(command_group, ["explain", "--database", path, "--record", name])
        assert done.exit_code != 0
        assert "no parameters to explain" in str(done.exception)


def test_baselines_are_no_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.db"
    result, events = tune(path, {"latencies": CASES[0][0]}, monkeypatch)
    assert result.trials == TRIALS == sum(result.outcomes.values())
    with open_database(path) as database:
        assert database.count() == TRIALS
        assert all(record.candidate.sketch.steps for record in database.records())
        (group,) = training_groups(database.records())
        assert all(candidate.sketch.steps for candidate, _ in group.outcomes)
    (listed,) = command("records", "list", "--database", str(path))
    assert listed["records"] == TRIALS
    assert listed["best"]["record"] == f"{result.run_id}/untuned"
    assert {item["name"]: item["record"] for item in listed["baselines"]} == {
        UNTUNED: f"{result.run_id}/untuned",
        DEFAULT: f"{result.run_id}/default",
    }
    measured = [event for event in events if isinstance(event, BaselineMeasured)]
    assert [event.name for event in measured] == [UNTUNED, DEFAULT]


def test_one_more_program_is_built_for_a_task_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def builds(backend: str) -> int:
        log = tmp_path / f"{len(backend)}.log"
        tune(log.with_suffix(".db"), {"log": str(log)}, monkeypatch, backend=backend)
        return log.read_text().count("build begin")

    assert builds(WITH_DEFAULT) <= builds(REFERENCE_BACKEND) + 1


@pytest.mark.slow
def test_known_baselines_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    first, _ = tune(path, {}, monkeypatch)
    with open_database(path) as database:
        before = [it.outcome for it in database.baselines()]
    second, _ = tune(path, {"latencies": {"baseline": 1e-9}}, monkeypatch, seed=SEED + 1)
    assert second.run_id != first.run_id
    assert [it.outcome for it in second.baselines] == [it.outcome for it in first.baselines]
    with open_database(path) as database:
        assert [it.outcome for it in database.baselines()] == before


def test_what_others_claim_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, lines = tmp_path / "records.db", tmp_path / "records.jsonl"
    tune(path, {"latencies": {"baseline": 1e-8}}, monkeypatch)
    command("records", "export", str(lines), "--database", str(path))
    other = tmp_path / "other.db"
    command("records", "import", str(lines), "--database", str(other))
    latencies = {"baseline": 1e-3, "default": 1e-3}
    result, _ = tune(other, {"latencies": latencies}, monkeypatch, seed=SEED + 1)
    assert {it.outcome.latency for it in result.baselines} == {1e-3}
    with open_database(other) as database:
        timed = [it for it in database.baselines() if not it.outcome.imported]
        assert {it.outcome.latency for it in timed} == {1e-3}
        assert len(list(database.baselines())) == 4
        assert database.best(RecordFilter()) == result.best
        assert not result.require_best().outcome.imported


@pytest.mark.parametrize("fault", thinned(["invalid", "build_error", "wrong", "crash"], 2))
def test_a_default_schedule_that_fails_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    script = {
        "faults": [{"fault": fault, "candidate": "default"}],
        "latencies": {"baseline": 7e-8, "default": 1e-9, "others": 1e-6},
    }
    result, events = tune(tmp_path / "records.db", script, monkeypatch)
    assert result.baseline_name == UNTUNED == result.require_best().baseline
    said = [event.name for event in events if isinstance(event, BaselineMeasured)]
    # What has no schedule for a program says nothing; what fails is told.
    assert said == ([UNTUNED] if fault == "invalid" else [UNTUNED, DEFAULT])


def test_a_baseline_that_is_wrong_on_other_inputs_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"fault": "wrong", "candidate": "default", "inputs": OTHER_INPUTS}
    script = {
        "faults": [wrong],
        "latencies": {"baseline": 1e-5, "default": 1e-8, "others": 1e-6},
    }
    path = tmp_path / "records.db"
    result, _ = tune(path, script, monkeypatch)
    assert result.baseline_name == UNTUNED
    assert not result.require_best().baseline
    with open_database(path) as database:
        assert database.best(RecordFilter()) == result.best
        failed = {it.name: it.outcome.status for it in database.baselines()}
    assert failed == {UNTUNED: "ok", DEFAULT: "wrong_result"}


def test_an_untuned_program_that_is_too_slow_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = {"fault": "hang", "phase": "verify", "candidate": "baseline"}
    protocol = MeasureProtocol(deadlines={"verify": 1.0})
    result, _ = tune(
        tmp_path / "records.db",
        {"faults": [hang]},
        monkeypatch,
        backend=REFERENCE_BACKEND,
        protocol=protocol,
    )
    assert result.baseline is not None
    assert (result.baseline.status, result.speedup) == ("timeout", None)
    notes = "\n".join(comparison_table(result).notes)
    assert "naive loop nest: too slow to be timed: timeout (" in notes
    assert not result.require_best().baseline


def test_no_candidate_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.db"
    result, _ = tune(path, {"faults": [{"fault": "invalid", "every": 1}]}, monkeypatch)
    assert result.best is None
    with pytest.raises(NoValidCandidate):
        result.build()
    with open_database(path) as database:
        assert database.best(RecordFilter()) is None


@pytest.mark.parametrize(
    ("comparison", "counts_as"),
    [
        (Comparison(1.5, 1.4, 1.6, 9), 3.0),
        (Comparison(1.2, 0.9, 1.4, 9), 2.0),
        (Comparison(0.99, 0.9, 1.1, 9), 1.98),
        (Comparison(0.5, 0.4, 0.6, 9), 1.0),
    ],
)
def test_what_a_baseline_counts_as(comparison: Comparison, counts_as: float) -> None:
    from autotune.testing.sample_records import sample_baseline

    changed = after_turns(sample_baseline(7.0), comparison, 2.0, 5.0)
    assert changed.counts_as == pytest.approx(counts_as)
    assert changed.beats(2.0) == (not comparison.faster)
    assert (changed.outcome, changed.created) == (sample_baseline(7.0).outcome, 5.0)


def untuned_builds(log: Path) -> int:
    lines = [line.split() for line in log.read_text().splitlines()]
    return sum(line[:2] == ["build", "begin"] and line[-1] == "-" for line in lines)


@pytest.mark.parametrize(
    ("latencies", "asked", "builds", "speedup"),
    [
        # A candidate that is faster for certain.
        ({"baseline": 5.0, "others": 1e-3}, False, 0, None),
        # One that has lost by far is not built again to confirm that.
        ({"baseline": 5.0, "others": 1e-3}, True, 1, 5000.0),
        # One that may be slower, and one that is.
        ({"baseline": 1.0, "others": 0.8}, False, 2, 1.25),
        ({"baseline": 0.6, "others": 0.8}, False, 2, 1.0),
    ],
)
def test_a_slow_untuned_program_is_run_only_where_it_could_win(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    latencies: dict[str, float],
    asked: bool,
    builds: int,
    speedup: float | None,
) -> None:
    log, path = tmp_path / "log", tmp_path / "records.db"
    script = {"latencies": latencies, "log": str(log)}
    options: dict[str, Any] = {"backend": SLOW_UNTUNED, "time_untuned": asked}
    result, _ = tune(path, script, monkeypatch, **options)
    assert (untuned_builds(log), result.speedup) == (builds, speedup and pytest.approx(speedup))
    assert result.keeps_baseline == (speedup == 1.0)
    again, _ = tune(path, script, monkeypatch, **options)
    assert (again.from_records, untuned_builds(log)) == (True, builds)
    assert again.speedup == result.speedup
    assert (result.least_speedup is None) == (builds > 0)


def test_the_gain_over_an_untuned_program_that_was_not_run_is_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    latencies = {"baseline": 5.0, "others": 1e-3}
    result, _ = tune(path, {"latencies": latencies}, monkeypatch, backend=SLOW_UNTUNED)
    assert (result.speedup, result.least_speedup) == (None, pytest.approx(LEAST_SECONDS / 1e-3))
    data = result.to_json()
    assert (data["baseline"], data["least_untuned"]) == (None, LEAST_SECONDS)
    text = comparison_table(result).to_text()
    assert f"{UNTUNED}: not run, since a call takes 500 ms at least, 500x as long" in text


@pytest.mark.parametrize("fault", ["wrong", "build_error"])
def test_an_imported_program_that_differs_from_what_was_read_of_it_is_told(
    tmp_path: Path, fault: str
) -> None:
    script = json.dumps({"faults": [{"fault": fault, "candidate": "baseline"}]})
    events: list[Event] = []
    program = ReferenceProgram(gemm(m=8, n=8, k=8), script)
    tune_toy(tmp_path / "records.db", program, trials=1, listeners=[events.append])
    said = [event.message for event in events if isinstance(event, WarningRaised)]
    differs = "the imported program computes something else than what was read of it"
    assert any(message.startswith(differs) for message in said) == (fault == "wrong")
