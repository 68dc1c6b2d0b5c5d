"""Observers in real workers, with the reference backend, through the Python interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from thinning import thinned
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

import autotune
from autotune import MeasureProtocol
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.workloads import gemm
from autotune.process import WorkerStartFailed
from autotune.store.database import RecordFilter
from autotune.store.records import Outcome
from autotune.store.sqlite import open_database
from autotune.tuning.events import Event, WarningRaised

TRIALS = 4


class Run:
    """A run of a few trials: its outcomes and warnings."""

    def __init__(self, folder: Path, *observers: str, **settings: Any) -> None:
        self.warnings: list[str] = []
        self.database = str(folder / "records.db")
        self.result = autotune.tune(
            gemm(m=8, n=8, k=8),
            backend=REFERENCE_BACKEND,
            parts={"search_space": TOY_SPACE, "cost_model": "random"},
            trials=TRIALS,
            threads=1,
            database=self.database,
            observers=observers,
            listeners=[self._listen],
            **settings,
        )
        with open_database(self.database, read_only=True) as opened:
            records = opened.records(RecordFilter(run_id=self.result.run_id))
            self.outcomes: list[Outcome] = [record.outcome for record in records]

    def _listen(self, event: Event) -> None:
        if isinstance(event, WarningRaised):
            self.warnings.append(event.message)


@pytest.mark.needs("perf")
def test_readings_are_in_every_record(tmp_path: Path) -> None:
    run = Run(tmp_path, "faulty_observers:Counting", "faulty_observers:Missing", "perf")
    assert len(run.outcomes) == TRIALS
    for outcome in run.outcomes:
        readings = dict(outcome.readings)
        assert readings["counting/process"] != os.getpid(), "observers run in the workers"
        assert readings["counting/builds"] and readings["counting/calls"]
        assert readings["missing/joules"] is None and "missing/joules" in readings
        faults = readings["perf/page_faults_per_call"]
        assert faults is not None and faults >= 0
        assert "perf/instructions_per_call" in readings, "absent ones are there as None"
    assert [text for text in run.warnings if "missing" in text] == [
        "observer 'missing': no meter was ever built"
    ]
    assert run.result.best is not None
    best = run.result.to_json()["best"]["readings"]
    assert best == dict(run.result.best.outcome.readings) and best


def test_nothing_is_read_unless_asked_for_nor_is_another_run(tmp_path: Path) -> None:
    first = Run(tmp_path)
    assert [dict(outcome.readings) for outcome in first.outcomes] == [{}] * TRIALS
    again = Run(tmp_path, "faulty_observers:Counting")
    assert again.result.from_records and again.result.run_id == first.result.run_id


def test_those_that_raise_are_left_out_and_named(tmp_path: Path) -> None:
    errors = {"Raises": "ZeroDivisionError: some trouble", "Exits": "SystemExit: 0"}
    run = Run(tmp_path, *(f"faulty_observers:{name}" for name in (*errors, "Counting")))
    assert [outcome.status for outcome in run.outcomes] == ["ok"] * TRIALS
    assert all(outcome.readings["counting/calls"] for outcome in run.outcomes)
    assert sorted(run.warnings) == sorted(
        f"observer '{name.lower()}': it failed in readings and is not asked again: {error}"
        for name, error in errors.items()
    )


@pytest.mark.parametrize("name", thinned(["HangsInBuild", "HangsInRun", "KillsItself"], 3))
def test_one_that_hangs_or_ends_the_worker_costs_no_candidate(tmp_path: Path, name: str) -> None:
    protocol = MeasureProtocol(deadlines={} if name == "KillsItself" else {"observe": 1.0})
    run = Run(tmp_path, f"faulty_observers:{name}", protocol=protocol)
    assert [outcome.status for outcome in run.outcomes] == ["ok"] * TRIALS
    assert all(not outcome.readings.get(f"{name}/calls") for outcome in run.outcomes)
    (warning,) = run.warnings
    assert f"faulty_observers:{name}" in warning and "nothing is observed" in warning
    assert ("SIGSEGV" if name == "KillsItself" else "observe took more than") in warning
    assert run.result.baseline is not None and run.result.baseline.ok


@pytest.mark.parametrize(
    ("name", "how"),
    thinned(
        [
            ("EndsWhenMade", "exited with status 0"),
            ("HangsWhenMade", "observe took more than 1 s"),
        ],
        2,
    ),
)
def test_one_that_cannot_be_made_ends_the_run(tmp_path: Path, name: str, how: str) -> None:
    protocol = MeasureProtocol(deadlines={"observe": 1.0} if name == "HangsWhenMade" else {})
    with pytest.raises(WorkerStartFailed) as caught:
        Run(tmp_path, f"faulty_observers:{name}", protocol=protocol)
    assert str(caught.value) == (
        f"no worker for backend {REFERENCE_BACKEND!r}: 3 in a row ended before they were ready, "
        f"the last one while it made what observes (faulty_observers:{name}): {how}"
    )


@pytest.mark.parametrize(
    ("observers", "error", "message"),
    [
        (["pref"], UnknownNameError, "unknown observer 'pref'; available: "),
        ("perf", InvalidValueError, r"a list of names, such as \['perf'\]"),
        ([3], InvalidValueError, "observer must be a name, not 3"),
        (["faulty_observers:Nothing"], AutotuneError, "faulty_observers:Nothing"),
    ],
)
def test_mistakes_are_named_before_anything_is_measured(
    tmp_path: Path, observers: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        autotune.tune(
            gemm(m=8, n=8, k=8),
            backend=REFERENCE_BACKEND,
            parts={"search_space": TOY_SPACE, "cost_model": "random"},
            threads=1,
            database=tmp_path / "records.db",
            observers=observers,
        )
