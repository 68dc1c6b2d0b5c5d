"""``autotune train``, from recording to tuning."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, tune_square
from process_facts import becomes_true
from toy_parts import REFERENCE_BACKEND, TOY_SPACE, TOY_TREES
from tuner_processes import count_records

from autotune.cli.app import run
from autotune.models.cost import ModelFile
from autotune.testing.reference_backend import SCRIPT_VARIABLE

PARTS = ("--backend", REFERENCE_BACKEND, "--space", TOY_SPACE, "--cost-model", TOY_TREES)
DATA = ("--database", "data.db")
RECORD = ("train", "record", *DATA, "--tasks", "tasks.json", *PARTS, "--threads", "1")
FIT = ("train", "fit", "--cost-model", TOY_TREES, *DATA, "--output", "model.npz")


def _write_tasks(folder: Path) -> None:
    tasks = [
        {"name": f"gemm-{n}", "workload": "gemm", "shape": {"m": n, "n": n, "k": n}}
        for n in (8, 16, 32)
    ]
    data = {"schema": "autotune.tasks", "version": 1, "tasks": tasks}
    (folder / "tasks.json").write_text(json.dumps(data))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with 20 programs of each of three tasks."""
    path = tmp_path_factory.mktemp("recorded") / "data.db"
    for n in (8, 16, 32):
        command = (*tune_square(n), *IN_PROCESS, "--trials", "20", "--quiet")
        assert run((*command, "--database", str(path))) == 0
    return path


@pytest.fixture
def recorded(cli: Any, data: Path) -> Any:
    """A command line in a folder with recorded data."""
    shutil.copy(data, cli.folder / "data.db")
    return cli


@pytest.mark.slow
def test_recording_says_what_it_does(cli: Any) -> None:
    _write_tasks(cli.folder)
    done = cli(*RECORD, "--programs", "8", "--only", "gemm-16", "--json", "out.json")
    assert done.status == 0, done.stderr
    assert "task 1 of 1: gemm-16" in done.stderr and "8/8 trials" in done.stderr
    assert "1 of 1 tasks are complete" in done.stdout and "run the same command" not in done.stdout
    report = json.loads((cli.folder / "out.json").read_text())
    assert (report["complete"], report["listed"]) == (1, 1)
    (task,) = report["tasks"]
    assert task["task"] == "gemm-16" and task["programs"] == 8 and task["complete"]


def test_from_records_to_tuning(recorded: Any) -> None:
    cli = recorded
    done = cli("train", "info", "--database", "data.db", "--json", "info.json")
    assert "3 tasks, 60 programs, 60 of them ok" in done.stdout
    found = json.loads((cli.folder / "info.json").read_text())
    assert [item["task"] for item in found] == [
        f"gemm m={n} n={n} k={n} float32" for n in (8, 16, 32)
    ]
    for item in found:
        assert item["programs"] == item["outcomes"]["ok"] == 20
        assert 0 < item["best"] <= item["median"] <= item["percentile_90"]
    done = cli(*FIT, "--hold-out", "3", "--json", "train.json")
    assert done.status == 0, done.stderr
    assert "trained on 60 programs of 3 tasks, is in model.npz" in done.stdout
    report = json.loads((cli.folder / "train.json").read_text())
    assert len(report["held_out"]) == 3 and report["programs"] == 60
    for fold in report["held_out"]:
        assert len(fold["tasks"]) == 1
        assert 0 < fold["top1"] <= fold["top5"] <= 1 and 0 <= fold["pairwise"] <= 1
    first = ModelFile.at(cli.folder / "model.npz").digest
    assert cli(*FIT, "--quiet").status == 2
    assert cli(*FIT).status == 0
    assert ModelFile.at(cli.folder / "model.npz").digest == first
    done = cli.tune("--cost-model", TOY_TREES, "--load-cost-model", "model.npz", "--trials", "4")
    assert done.status == 0, done.stderr


def test_tasks_are_held_out(recorded: Any) -> None:
    done = recorded(
        *FIT, "--hold-out", "gemm m=8 n=8 k=8 float32", "--json", "-", "--training-threads", "2"
    )
    assert done.status == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["tasks"]) == 2
    assert [item["tasks"] for item in report["held_out"]] == [["gemm m=8 n=8 k=8 float32"]]
    assert report["training"]["rows"] == report["programs"] == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cost-model", "gdbt"), "unknown cost model 'gdbt'"),
        (("--cost-model", "random"), "cost model 'random' cannot be trained"),
        (("--hold-out", "softmax"), "unknown task 'softmax'"),
        (("--hold-out", "9"), "folds must be between 2 and 3"),
        (("--hold-out", "gemm"), "no task with a valid candidate to train on"),
        (("--cost-model-option", "epochs=3"), "has no option 'epochs'"),
        (("--cost-model-option", "epochs"), "not of the form name=value"),
        (("--threads", "2"), "name it by --target"),
        (("--target", "a100"), "there are no records of target"),
        (("--database", "missing.db"), "missing.db"),
        (("--output", "folder/model.npz"), "cannot be written"),
    ],
)
def test_bad_calls_write_nothing(recorded: Any, arguments: tuple[str, ...], message: str) -> None:
    before = recorded.files()
    done = recorded(*FIT, *arguments)
    assert done.status == 2 and message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert recorded.files() == before


def test_there_is_nothing_to_learn_from_failures(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_tasks(cli.folder)
    faults = [{"fault": "invalid", "every": 1}]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    done = cli(*RECORD, "--programs", "4", "--only", "gemm-8")
    assert done.status == 0 and "complete" in done.stdout, done.stderr
    done = cli(*FIT)
    assert done.status == 1 and "to learn from; no file is written" in done.stderr
    assert not (cli.folder / "model.npz").exists()


def test_bad_calls_of_recording(cli: Any) -> None:
    _write_tasks(cli.folder)
    for arguments, message in [
        (("--only", "gemm-9"), "unknown task of tasks.json 'gemm-9'"),
        (("--protocol", "slow"), "unknown measuring protocol 'slow'"),
        (("--tasks", "cpu-61"), "unknown task list 'cpu-61'"),
        (("--programs", "0"), "trials must be a whole number of at least 1"),
        (("--random-share", "2"), "option 'epsilon' of strategy"),
    ]:
        done = cli(*RECORD, *arguments)
        assert done.status == 2 and message in done.stderr, done.stderr
    assert cli.files() == {"tasks.json"}


def test_an_empty_database(cli: Any) -> None:
    assert cli.tune("--trials", "1", "--database", "data.db").status == 0
    sqlite3.connect(cli.folder / "data.db").executescript("DELETE FROM records;")
    done = cli("train", "info", "--database", "data.db")
    assert done.status == 1 and "has no records" in done.stderr
    assert cli(*FIT).status == 1


@pytest.mark.slow
def test_an_interrupted_recording_goes_on(spawn: Any, tmp_path: Path) -> None:
    _write_tasks(tmp_path)
    slow = {SCRIPT_VARIABLE: json.dumps({"build_seconds": 0.2})}
    command = (*RECORD, "--programs", "30", "--json", "out.json")
    process = spawn(*command, **slow)
    path = tmp_path / "data.db"
    assert becomes_true(lambda: path.exists() and count_records(path) >= 40)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr and "interrupted" in stderr.splitlines()[-1]
    stored = count_records(path)
    assert 40 <= stored < 90
    finished = spawn(*command)
    _, stderr = finished.communicate(timeout=300)
    assert finished.returncode == 0, stderr
    assert json.loads((tmp_path / "out.json").read_text())["complete"] == 3
    assert count_records(path) == 90
