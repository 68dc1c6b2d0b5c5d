"""Files of autotune 0.1 open today: records, runs, models, events, results, targets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from autotune.cli.app import run
from autotune.models import ModelContext
from autotune.models.training import make_trainable
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.sketches import Sketch
from autotune.store.database import Database, RecordFilter
from autotune.store.jsonl import import_lines, read_lines
from autotune.store.records import Record, Run
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.tuning.events import TrialFinished, event_from_json, event_to_json, read_events
from autotune.tuning.options import TuneOptions
from autotune.tuning.resolve import RunPlan
from autotune.tuning.resume import Checkpoint, why_not_resumable

FILES = Path(__file__).parent

RUNS = {
    "a224b0fda964": ("evolutionary", "finished", "gbdt", 6),
    "c7684f9a7335": ("evolutionary", "interrupted", "gbdt", 3),
    "d5573fddc8d0": ("pruner", "interrupted", "gbdt", 3),
    "e12773be962b": ("felix", "interrupted", "felix-gp", 3),
    "478c047f6a88": ("felix", "interrupted", "felix-mlp", 3),
    "2b4c870f015f": ("heron", "interrupted", "gbdt", 3),
    "2b95ac9e59f7": ("evolutionary", "finished", "gbdt", 4),
    "gpu-0": ("random", "finished", None, 4),
    "gpu-1": ("random", "finished", None, 4),
}
"""Strategy, status, cost model and trials of each run."""


def is_installed(kind: str, name: str) -> bool:
    """Tell whether this environment has a part: the plugins are spread over two."""
    return name in manager().names(kind)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the database: opening one may write to it."""
    return Path(shutil.copy(FILES / "records.db", tmp_path / "records.db"))


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with open_database(path) as opened:
        yield opened


def exported() -> list[Any]:
    return [json.loads(line) for line in (FILES / "records.jsonl").read_text().splitlines()]


def test_records_are_found_and_exported_as_then(database: Database) -> None:
    records = list(database.records())
    assert len(records) == 28
    assert all(record.outcome.status == "ok" for record in records)
    best = [database.best(RecordFilter(run_id=record["run_id"])) for record in exported()]
    assert [record and record.to_json() for record in best] == exported()


def test_records_are_imported() -> None:
    with open_database(":memory:") as database:
        with (FILES / "records.jsonl").open("rb") as stream:
            report = import_lines(read_lines(stream), database, on_bad=pytest.fail)
        assert report.added == 4
        assert [record.to_json() for record in database.records()] == exported()


def test_steps_that_only_gpus_have_are_read(database: Database) -> None:
    records = list(database.records(RecordFilter(run_id="gpu-0"))) + list(
        database.records(RecordFilter(run_id="gpu-1"))
    )
    kinds = {type(step).__name__ for record in records for step in record.candidate.sketch.steps}
    assert {"Bind", "CooperativeFetch", "TileCeil"} <= kinds
    assert all(Record.from_json(record.to_json()) == record for record in records)


def test_runs_are_listed_with_their_checkpoints(database: Database) -> None:
    listed = {run.run_id: run for run in database.runs()}
    assert set(listed) == set(RUNS)
    for name, (strategy, status, cost_model, trials) in RUNS.items():
        run = listed[name]
        assert (run.strategy, run.status) == (strategy, status)
        assert run.options.get("cost_model") == cost_model
        if run.checkpoint is not None:
            tasks = len(run.options.get("tasks", ["the only one"]))
            checkpoint = Checkpoint.from_json(run.checkpoint, tasks)
            assert checkpoint.progress.trials in (trials, trials + 1)
            # Later versions also note the largest budget of seconds that was used up, and what
            # tasks began with.
            later = {"used_up": 0.0, "warm_starts": []}
            progress = {**run.checkpoint["progress"], **later}
            assert checkpoint.to_json() == {**run.checkpoint, "progress": progress}


NEEDS = {"felix-gp": ("felix",), "felix-mlp": ("felix", "torch")}


@pytest.mark.parametrize(
    "run_id",
    [
        pytest.param(name, marks=pytest.mark.needs(*NEEDS.get(run[2], ())))
        for name, run in RUNS.items()
        if run[2]
    ],
)
def test_checkpoints_of_cost_models_are_loaded(database: Database, run_id: str) -> None:
    found = database.run(run_id)
    assert found is not None and found.checkpoint is not None
    name = found.options["cost_model"]
    state = found.checkpoint["search"]["cost_model"]
    options = found.options.get("cost_model_options", {})
    target = Target.from_json(json.loads((FILES / "target.json").read_text()))
    model = create_part("cost_model", name, ModelContext(target=target, options=options))
    model.load_state(state)
    # Arrays had no type while all of them were float32.
    weights = state.get("weights", {})
    typed = {name: it if len(it) == 3 else ["<f4", *it] for name, it in weights.items()}
    assert json.loads(json.dumps(model.state())) == {
        **state,
        **({"weights": typed} if typed else {}),
    }


def test_a_trained_model_is_read() -> None:
    target = Target.from_json(json.loads((FILES / "target.json").read_text()))
    model = make_trainable("gbdt", ModelContext(target=target))
    with (FILES / "gbdt.npz").open("rb") as stream:
        model.load(stream)


def test_a_target_is_read() -> None:
    data = json.loads((FILES / "target.json").read_text())
    target = Target.from_json(data)
    assert target.fingerprint == "c6acadb683a68e91"
    assert target.to_json() == data


def test_events_are_read_and_written_as_then() -> None:
    lines = [json.loads(line) for line in (FILES / "events.jsonl").read_text().splitlines()]
    read: dict[str, Sketch] = {}
    written: dict[str, Sketch] = {}
    for line in lines:
        event = event_from_json(line, read)
        again = json.loads(json.dumps(event_to_json(event, line["time"], written)))
        if isinstance(event, TrialFinished):
            # Digests of 0.1 covered names.
            candidate = event.candidate
            assert again["candidate"]["digest"] == candidate.digest
            assert again["candidate"]["sketch"]["digest"] == candidate.sketch.digest
            again["candidate"]["digest"] = candidate.spelling
            again["candidate"]["sketch"]["digest"] = candidate.sketch.spelling
        assert again == line
    with (FILES / "events.jsonl").open() as stream:
        assert len(list(read_events(stream))) == len(lines)


def plan_of(stored: Run, options: TuneOptions, version: str) -> RunPlan:
    """The plan of a run of a task like that of a stored one, which is nothing but its names."""
    task = mock.Mock(
        workload=mock.Mock(spelling=stored.workload),
        key=stored.key,
        space=mock.Mock(version=version.partition("-")[2]),
        program=None,
        refusal="",
    )
    task.space.name = version.partition("-")[0]
    nothing = mock.Mock()
    return RunPlan(
        options=options,
        tasks=[task],
        strategies=[],
        cost_models=[],
        scheduler=nothing,
        make_measurer=nothing,
    )


def test_runs_are_continued_by_the_same_options(database: Database) -> None:
    for stored in database.runs():
        options = stored.options
        if "cost_model" not in options or "tasks" in options:
            continue
        if not is_installed("strategy", stored.strategy):
            continue
        if not is_installed("cost_model", options["cost_model"]):
            continue
        parts = {
            "strategy": (stored.strategy, options["strategy_options"]),
            "cost_model": (options["cost_model"], options.get("cost_model_options", {})),
            "pruning_model": (options["pruning_model"], options.get("pruning_model_options", {})),
        }
        same = TuneOptions(
            parts=parts,
            seed=stored.seed,
            round_size=options["round_size"],
            lookahead=options["lookahead"],
        )
        plan = plan_of(stored, same, stored.space)
        if stored.strategy == "felix":
            # It descends on the tape: what its runs named as a pruning model was never asked.
            expected = "its strategy 'felix' asks no pruning model"
            assert why_not_resumable(stored) == expected and plan.identity != stored.identity
            continue
        assert plan.identity == stored.identity
        assert why_not_resumable(stored) == plan.changed_since(stored) == ""
        newer = plan_of(stored, same, "sketch-99")
        assert newer.changed_since(stored) == "search space sketch-3 is sketch-99 now"


def test_runs_are_listed_and_what_cannot_be_continued_is_said(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["records", "runs", "--database", str(path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    assert list(lines) == list(RUNS)
    assert "cannot" not in lines["c7684f9a7335"]
    assert lines["gpu-0"].endswith("cannot be continued: it has no checkpoint")


def commands() -> list[Sequence[str]]:
    return [
        ("records", "list"),
        ("best",),
        ("best", "gemm", "--shape", "m=32,n=32,k=32", "--backend", "tvm"),
        ("show", "--record", "a224b0fda964/0", "--part", "steps"),
        ("show", "--record", "gpu-0/0", "--part", "steps"),
        ("show", "--record", "gpu-1/0", "--part", "steps"),
    ]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_commands_read_the_database(
    path: Path, command: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--database", str(path)]) == 0, capsys.readouterr().err
    assert "gemm" in capsys.readouterr().out or "gpu-1" in command[-3]


def test_a_result_names_records_that_are_found(database: Database) -> None:
    best = json.loads((FILES / "result.json").read_text())["best"]
    found = RecordFilter(run_id=best["record"]["run"], candidate=best["digest"])
    (record,) = database.records(found)
    assert record.trial == best["record"]["trial"]
    assert record.outcome.latency == best["latency"]
    assert record.candidate.config == best["config"]
    assert record.candidate.sketch.to_json() == best["sketch"]
