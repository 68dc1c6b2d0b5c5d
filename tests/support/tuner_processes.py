"""Real processes that tune into one database, to be killed, and what they have left there."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from python_processes import start_python

from autotune.store.records import Record, Run
from autotune.store.sqlite import open_database
from autotune.testing.reference_backend import SCRIPT_VARIABLE, SCRIPTED_NATIVE, SIMULATED_NATIVE

PATIENCE = 300.0
"""Seconds after which a process that gets nowhere is a failure."""

TUNE = (
    *("-m", "autotune", "tune", "gemm", "--shape", "m=16,n=16,k=16", "--threads", "1"),
    *("--backend", SIMULATED_NATIVE, "--round-size", "8", "--database", "records.db"),
)
"""Candidates are compiled and called; latencies are the same in every process."""

TUNE_FOR_REAL = tuple(SCRIPTED_NATIVE if it == SIMULATED_NATIVE else it for it in TUNE)
"""Candidates are timed, too."""

SCRIPT: dict[str, Any] = {
    "faults": [
        {"fault": "build_error", "every": 9},
        # May be tried again by another run, but not by the one that recorded it.
        {"fault": "crash", "phase": "run", "every": 11},
    ],
}


def start(folder: Path, *arguments: str, build_seconds: float = 0.02) -> subprocess.Popen[str]:
    """Start ``python ...`` in a folder, with builds that take a while."""
    script = {**SCRIPT, "build_seconds": build_seconds}
    return start_python(*arguments, cwd=folder, **{SCRIPT_VARIABLE: json.dumps(script)})


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a process that is to end well; returns what it said on stderr."""
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    return stderr


def wait_for_records(database: Path, number: int, process: subprocess.Popen[str]) -> None:
    """Wait until a database has so many records, or the process has ended."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        if database.exists() and count_records(database) >= number:
            return
        assert time.monotonic() < deadline, f"{database} did not get {number} records"
        time.sleep(0.01)


def stop(process: subprocess.Popen[str], number: int) -> None:
    """Send a signal to a process, and wait for its end."""
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in stderr, stderr


def count_records(database: Path) -> int:
    """Number of records in a database, which somebody may be making just now."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
    try:
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    except sqlite3.OperationalError:  # the tables are just being made
        return 0
    finally:
        connection.close()


@frozen
class Stored:
    """Everything in a database, checked: nothing is lost, torn or there twice."""

    runs: Sequence[Run]
    records: Sequence[Record]

    @staticmethod
    def read(database: Path) -> Stored:
        """Read everything; every record that a run's log refers to must be there, once.

        A resumed run has what an earlier session timed as it would be in its own: by one factor.
        """
        connection = sqlite3.connect(database)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()
        with open_database(database, read_only=True) as opened:
            stored = Stored(opened.runs(), list(opened.records()))
        by_name = {(it.run_id, it.candidate.digest): it for it in stored.records}
        places = {(it.run_id, it.trial) for it in stored.records}
        assert len(by_name) == len(places) == len(stored.records)
        for run in stored.runs:
            for log in stored.logs(run):
                factors = set()
                for entry in log:
                    digest, status, latency, source = *entry[:3], entry[5]
                    found = by_name[source, digest].outcome
                    assert (found.status, found.latency is None) == (status, latency is None)
                    if found.latency is not None and found.latency != latency:
                        factors.add(round(latency / found.latency, 9))
                assert len(factors) <= 1
        return stored

    def logs(self, run: Run) -> list[list[list[Any]]]:
        """The logs of a run's tasks: lists of the fields of ``LogEntry``."""
        assert run.checkpoint is not None
        logs: list[list[list[Any]]] = run.checkpoint["progress"]["logs"]
        return logs

    def facts(self, run: Run) -> dict[str, Any]:
        """Facts that must be the same however often a run was stopped: all but times and names."""
        assert run.checkpoint is not None
        mine = sorted(
            (it for it in self.records if it.run_id == run.run_id), key=lambda it: it.trial
        )
        progress = run.checkpoint["progress"]
        return {
            "status": run.status,
            "trials": run.trials,
            "records": [
                (it.trial, it.candidate.digest, it.outcome.status, it.outcome.latency)
                for it in mine
            ],
            "logs": [[[*entry[:3], entry[4]] for entry in log] for log in self.logs(run)],
            "winners": [it and (it["winner"], it["rejected"]) for it in progress["confirmations"]],
            "search": run.checkpoint["search"],
        }
