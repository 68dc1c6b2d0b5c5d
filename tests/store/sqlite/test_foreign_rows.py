"""Rows with correct checksums and values that this program does not write."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from autotune.errors import DatabaseDamaged, DatabaseError
from autotune.ir.workloads import gemm
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database
from autotune.store.sqlite.rows import replace, select
from autotune.testing.sample_records import KEY, sample_baseline, sample_record, sample_run

SOUND = [sample_record(0, 3e-3), sample_record(2, 2e-3)]
# Shares nothing with the others that it refers to.
OTHER = evolve(
    sample_record(1, 1e-3, workload=gemm(m=4, n=4, k=4)),
    key=evolve(KEY, threads=3),
    target={**SOUND[0].target, "name": "other"},
    program="text",
)
DEEP = "[" * 300 + "]" * 300

Change = Callable[[dict[str, Any]], dict[str, Any]]


def outcome(**changes: Any) -> Change:
    """Another outcome, and the columns that go with it."""

    def change(row: dict[str, Any]) -> dict[str, Any]:
        content = {**json.loads(row["outcome"]), **changes}
        return {"outcome": json.dumps(content), "latency": content["latency"]}

    return change


def text(column: str, old: str, new: str) -> Change:
    return lambda row: {column: row[column].replace(old, new)}


def to(**changes: Any) -> Change:
    return lambda row: changes


HOSTILE: dict[str, tuple[str, Change]] = {
    "negative latency": ("records", outcome(latency=-1.0)),
    "no latency at all": ("records", outcome(latency=0.0)),
    "negative sample": ("records", outcome(samples=[1e-3, -1e-3])),
    "sample of zero": ("records", outcome(samples=[0, 1e-3])),
    "infinite sample": ("records", text("outcome", '"samples":[', '"samples":[1e999,')),
    "NaN": ("records", text("outcome", '"samples":[', '"samples":[NaN,')),
    "negative seconds": ("records", outcome(timings={"build": -1.0})),
    "infinite seconds": ("records", text("outcome", "0.25", "1e999")),
    "no seconds beside it": ("records", outcome(reference=0.0)),
    "no drift": ("records", outcome(drift=0.0)),
    "half a letter": ("records", outcome(message="\ud800")),
    "outcome of a list": ("records", to(outcome="[]")),
    "outcome without samples": ("records", to(outcome='{"status":"ok","latency":0.001}')),
    "torn outcome": ("records", to(outcome='{"status":')),
    "deep outcome": ("records", to(outcome=DEEP)),
    "endless outcome": ("records", to(outcome="[" * 100_000)),
    "binary outcome": ("records", to(outcome=b"{}")),
    "another latency": ("records", to(latency=1e-9)),
    "another workload": ("records", to(workload=gemm(m=8, n=8, k=8).digest)),
    "negative value": ("records", to(config="[-1,16]")),
    "huge value": ("records", to(config=f"[{2**70},16]")),
    "value of text": ("records", to(config='["1",16]')),
    "broken value": ("records", to(config="[1.5,16]")),
    "too few values": ("records", to(config="[1]")),
    "config of a number": ("records", to(config="7")),
    "config of an object": ("records", to(config='{"tile":1}')),
    "negative trial": ("records", to(trial=-1)),
    "trial of text": ("records", to(trial="x")),
    "binary run": ("records", to(run_id=b"\xff")),
    "binary space": ("records", to(space=b"\xff")),
    "infinite time": ("records", to(created=float("inf"))),
    "time of text": ("records", to(created="yesterday")),
    "elapsed of text": ("records", to(elapsed="long")),
    "no threads": ("measure_keys", to(threads=0)),
    "threads of text": ("measure_keys", to(threads="many")),
    "binary backend": ("measure_keys", to(backend=b"\xff")),
    "target of a list": ("targets", to(content="[]")),
    "target without cores": ("targets", text("content", '"cores"', '"score"')),
    "deep target": ("targets", to(content=DEEP)),
    "too many steps": (
        "sketches",
        lambda row: {"content": json.dumps({**json.loads(row["content"]), "steps": [{}] * 5000})},
    ),
    "deep sketch": ("sketches", to(content=DEEP)),
    "deep workload": ("workloads", to(content=DEEP)),
    "binary program": ("programs", to(content=b"text")),
}


def made(path: Path, table: str, change: Change) -> int:
    """A file in which ``OTHER`` is stored with a change; returns the number of its row."""
    with open_database(path) as database:
        for record in (SOUND[0], OTHER, SOUND[1]):
            database.append_record(record)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = select(connection, table, "TRUE")
        row = rows[-1] if table != "records" else rows[1]
        replace(connection, table, row, change(row))
    return 2


def facts(database: Database) -> list[Any]:
    everything = RecordFilter()
    return [
        list(database.records()),
        database.best(everything),
        database.best_of_each(),
        list(database.records(RecordFilter(run_id="run-1"))),
        database.best(RecordFilter(run_id="run-1")),
    ]


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_row_that_is_no_record_is_skipped_and_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "foreign.db"
    number = made(path, *HOSTILE[kind])
    for read_only in (True, False):
        said: list[str] = []
        with open_database(path, read_only=read_only, warn=said.append) as database:
            found = facts(database)
            if kind == "binary run":
                found[3:] = [SOUND, SOUND[1]]
            assert found == [SOUND, SOUND[1], [SOUND[1]], SOUND, SOUND[1]]
            assert database.lookup(OTHER.candidate.digest, OTHER.key) is None
            assert len(said) == 1 and f"row {number} of records: " in said[0], said
            assert "\n" not in said[0] and len(said[0]) < 600
            with pytest.raises(DatabaseDamaged, match=f"row {number} of records"):
                database.check()


def test_rows_found_by_another_candidate_answer_nothing(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    made(path, "records", to(candidate=SOUND[0].candidate.digest, key_id=1))
    said: list[str] = []
    with open_database(path, read_only=True, warn=said.append) as database:
        assert database.lookup(SOUND[0].candidate.digest, KEY) is None
    assert "row 2 of records: it is found by another candidate" in said[0]


def test_the_fastest_of_many_broken_rows_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    sound = sample_record(700, 5e-3)
    with open_database(path) as database:
        database.append_missing([sample_record(trial, 1e-3) for trial in range(600)])
        database.append_record(sound)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for row in select(connection, "records", "id <= 600"):
            replace(connection, "records", row, {"config": "[-1,16]"})
        connection.execute("COMMIT")
    said: list[str] = []
    with open_database(path, read_only=True, warn=said.append) as database:
        assert database.best(RecordFilter(workload_name="gemm")) == sound
        assert database.best_of_each() == [sound]
        assert list(database.records()) == [sound]
    # Some are named; that there are more is said once.
    assert len(said) == 21
    assert "more rows are skipped" in said[-1]


def test_baselines_and_runs(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    sound = sample_baseline()
    with open_database(path) as database:
        database.start_run(sample_run("sound"))
        for _ in range(4):
            database.append_baseline(sound)
    broken: list[dict[str, Any]] = [
        {"options": "{"},
        {"options": DEEP * 400},
        {"seed": "x"},
        {"trials": -1},
        {"created": float("inf")},
        {"strategy": b"\xff"},
    ]
    for at in range(len(broken)):
        with open_database(path) as database:
            database.start_run(sample_run(f"run-{at}"))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for row, changes in zip(select(connection, "runs", "id > 1"), broken, strict=True):
            replace(connection, "runs", row, changes)
        wrong: list[dict[str, Any]] = [{"latency": -1.0}, {"counts_as": 0}, {"name": 7}]
        for row, changes in zip(select(connection, "baselines", "id > 1"), wrong, strict=True):
            replace(connection, "baselines", row, outcome_of_baseline(row, **changes))
    said: list[str] = []
    with open_database(path, read_only=True, warn=said.append) as database:
        assert [run.run_id for run in database.runs()] == ["sound"]
        assert database.run("run-2") is None
        assert database.baselines() == [sound]
    assert [message.split(": ")[1] for message in said] == [
        *(f"row {at} of runs" for at in range(2, 8)),
        *(f"row {at} of baselines" for at in range(2, 5)),
    ]


def outcome_of_baseline(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"outcome": json.dumps({**json.loads(row["outcome"]), **changes})}


@pytest.mark.parametrize(
    "change", [to(outcome='{"status": "melted"}', status="melted"), to(status="melted")]
)
def test_what_a_later_version_may_have_written_ends_the_reading(
    tmp_path: Path, change: Change
) -> None:
    path = tmp_path / "later.db"
    made(path, "records", change)
    with (
        open_database(path, read_only=True, warn=pytest.fail) as database,
        pytest.raises(DatabaseError, match="a newer version"),
    ):
        list(database.records())


def test_sound_rows_are_said_nothing_of(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    records: list[Record] = [
        *SOUND,
        OTHER,
        sample_record(3, status="crash"),
        evolve(sample_record(4), outcome=Outcome("ok", 1e-3, (1e-3,), {}, "ünïcode \\ud800")),
    ]
    with open_database(path) as database:
        database.append_missing(records)
    with open_database(path, read_only=True, warn=pytest.fail) as database:
        assert list(database.records()) == records
        database.check()
