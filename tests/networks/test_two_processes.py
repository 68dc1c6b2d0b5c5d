"""Processes that tune different networks into one database at the same time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reference_models import first, second, tune_model
from tuner_processes import Stored, finish, start

from autotune.networks.api import ModelOptions, build_recorded
from autotune.networks.source import Source
from autotune.tuning.options import TuneOptions

NAMES = ("first", "second")
TRIALS = 12


def command(name: str) -> tuple[str, ...]:
    return (*tune_model(name, TRIALS), "--json", f"{name}.json")


def result_of(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def digest_of(folder: Path, name: str, task: str) -> str:
    (found,) = (it for it in result_of(folder, name)["tasks"] if it["name"] == task)
    return str(found["digest"])


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

    digests = {name: digest_of(tmp_path, name, "outer") for name in NAMES}
    assert len(set(digests.values())) == 1, "the task is one for both"
    common = [it for it in measured if it.candidate.sketch.workload.digest == digests["first"]]
    # One may find what the other has just measured, and measure nothing of it again.
    assert common and {record.run_id for record in common} <= set(trials)
    fastest = min(record.outcome.latency or 1.0 for record in common)
    reading = ModelOptions(frontend="reference_models:NativeFrontend")
    options = TuneOptions(database=tmp_path / "records.db", threads=1)
    found = set()
    for model in (first(), second()):
        recorded = build_recorded(Source(model, None, model.name), reading, options)
        recorded.build()
        (outer,) = (task for task in recorded.tasks if task.name == "outer")
        assert outer.latency == fastest and outer.record is not None
        found.add(outer.record.name)
    assert len(found) == 1
