"""Processes that tune different networks into one database at the same time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reference_models import build_model, tune_model
from tuner_processes import Stored, finish, start

NAMES = ("first", "second")
TRIALS = 12


def command(name: str) -> tuple[str, ...]:
    return (*tune_model(name, TRIALS), "--json", f"{name}.json")


def result_of(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def tasks_of(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    return {task["name"]: task for task in result_of(folder, name)["tasks"]}


@pytest.mark.slow
@pytest.mark.promise(
    "two processes tune two networks with a common task into one database at once",
    "both end, no record is lost or there twice, and each is built from the records of both",
)
def test_two_networks_are_tuned_into_one_database_at_once(tmp_path: Path) -> None:
    for process in [start(tmp_path, *command(name)) for name in NAMES]:
        finish(process)
    stored = Stored.read(tmp_path / "records.db")
    assert [(run.status, run.trials) for run in stored.runs] == [("finished", TRIALS)] * 2
    trials = {run.run_id: sum(map(len, stored.logs(run))) for run in stored.runs}
    assert list(trials.values()) == [TRIALS] * 2
    measured = [record for record in stored.records if record.outcome.ok]

    for process in [start(tmp_path, *command(name)) for name in NAMES]:
        finish(process)
    assert [result_of(tmp_path, name)["run"]["from_records"] for name in NAMES] == [True, True]
    assert len(Stored.read(tmp_path / "records.db").records) == len(stored.records)

    digests = {name: tasks_of(tmp_path, name)["outer"]["digest"] for name in NAMES}
    assert len(set(digests.values())) == 1, "the task is one for both"
    common = [it for it in measured if it.candidate.sketch.workload.digest == digests["first"]]
    # One may find what the other has just measured, and measure nothing of it again.
    assert common and {record.run_id for record in common} <= set(trials)
    fastest = min(record.outcome.latency or 1.0 for record in common)
    found = set()
    for name in NAMES:
        finish(start(tmp_path, *build_model(name), "--json", f"{name}.json"))
        outer = tasks_of(tmp_path, name)["outer"]
        assert outer["latency"] == fastest
        found.add(outer["record"])
    assert len(found) == 1
