"""A network's tuning, stopped at any moment, goes on as if it had never been."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attack_cases import sampled
from process_facts import becomes_true
from reference_models import tune_model
from tuner_processes import PATIENCE, Stored, finish, start, wait_for_records

from autotune.process.processes import marked_processes

TRIALS = 16
KILLS = 10
CASES = {f"kill {seed}": seed for seed in range(KILLS)}
COMMAND = (*tune_model("first", TRIALS), "--json", "result.json")


def result_of(folder: Path) -> dict[str, Any]:
    """Findings of a run: by which record each task is run, and how fast that is."""
    data = json.loads((folder / "result.json").read_text())
    tasks = [
        (it["name"], it["occurrences"], it["run_by"], it["trials"], it["latency"], it["record"])
        for it in data["tasks"]
    ]
    kept = ("trials", "latency", "untuned", "speedup")
    digests = [None if it[-1] is None else it[-1].partition("/")[2] for it in tasks]
    return {"tasks": [it[:-1] for it in tasks], "digests": digests} | {k: data[k] for k in kept}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and result of a run that nobody stops."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(folder, *COMMAND))
    stored = Stored.read(folder / "records.db")
    (run,) = stored.runs
    return stored.facts(run), result_of(folder)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder for temporary files of the test's processes."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def check_nothing_left(temporary: Path) -> None:
    assert becomes_true(lambda: not marked_processes(temporary))
    assert becomes_true(lambda: not list(temporary.iterdir()))


def check_resumed(folder: Path, whole: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """The same command ends with what a run has that nobody stopped, and keeps all records."""
    database = folder / "records.db"
    before = Stored.read(database).records if database.exists() else []
    finish(start(folder, *COMMAND))
    stored = Stored.read(database)
    (run,) = stored.runs
    assert (stored.facts(run), result_of(folder)) == whole
    after = {record.name: record for record in stored.records}
    assert all(after[record.name].outcome == record.outcome for record in before)


@pytest.mark.attack("kill")
@pytest.mark.parametrize("seed", sampled(CASES, now=1, slow=4, least=KILLS))
@pytest.mark.promise(
    "`tune-model` is killed at any moment",
    "no record is lost or there twice, nothing is left, and the resumed run has the result of one "
    "that was not killed",
)
def test_a_killed_network(
    seed: int,
    tmp_path: Path,
    temporary: Path,
    whole: tuple[dict[str, Any], dict[str, Any]],
    verdict: Callable[[str], None],
) -> None:
    rng = random.Random(seed)
    process = start(tmp_path, *COMMAND)
    if seed % 3 == 0:
        # Before the first record: while it starts, reads the model, checks it.
        time.sleep(rng.random() * 3)
    else:
        wait_for_records(tmp_path / "records.db", rng.randrange(1, TRIALS + 1), process)
        time.sleep(rng.random() * 0.2)
    was_killed = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    check_nothing_left(temporary)
    check_resumed(tmp_path, whole)
    check_nothing_left(temporary)
    verdict("resumed" if was_killed else "finished before")


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGINT], id="interrupted"),
        pytest.param(
            [signal.SIGINT, signal.SIGINT], id="interrupted twice", marks=pytest.mark.slow
        ),
        pytest.param([signal.SIGTERM], id="terminated", marks=pytest.mark.slow),
        pytest.param(
            [signal.SIGTERM, signal.SIGTERM], id="terminated twice", marks=pytest.mark.slow
        ),
    ],
)
@pytest.mark.promise(
    "Ctrl-C or SIGTERM, once or twice, during `tune-model`",
    "status 130 and a line that says how to go on; nothing is lost or left",
)
def test_an_interrupted_network(
    numbers: list[signal.Signals],
    tmp_path: Path,
    temporary: Path,
    whole: tuple[dict[str, Any], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = start(tmp_path, *COMMAND, build_seconds=0.5)
    wait_for_records(tmp_path / "records.db", 1, process)
    for number in numbers:
        process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "the same command resumes the run" in stderr.splitlines()[-1]
    check_nothing_left(temporary)
    check_resumed(tmp_path, whole)
