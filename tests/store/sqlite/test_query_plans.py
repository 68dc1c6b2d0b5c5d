"""No query of a tuning run reads through a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from autotune.ir.workloads import gemm
from autotune.store.database import Database, RecordFilter
from autotune.store.records import Outcome
from autotune.store.sqlite import SQLiteDatabase, open_database
from autotune.testing.sample_records import KEY, sample_baseline, sample_record, sample_run

WORKLOAD = gemm(m=8, n=8, k=8).digest
CANDIDATE = sample_record(1).candidate.digest

OPERATIONS: dict[str, Callable[[Database], object]] = {
    "append": lambda database: database.append_record(sample_record(9, program="text")),
    "append missing": lambda database: database.append_missing([sample_record(0)]),
    "append baseline": lambda database: database.append_baseline(sample_baseline()),
    "append a missing baseline": lambda database: database.append_missing(
        [sample_baseline().record(sample_record(1))]
    ),
    "baselines": lambda database: database.baselines(RecordFilter(workload=WORKLOAD, key=KEY)),
    "best": lambda database: database.best(RecordFilter(workload=WORKLOAD, key=KEY)),
    "best of a workload": lambda database: database.best(RecordFilter(workload=WORKLOAD)),
    "best of a run": lambda database: database.best(RecordFilter(run_id="run-1")),
    "lookup": lambda database: database.lookup(CANDIDATE, KEY),
    "lookup program": lambda database: database.lookup_program("lowered", WORKLOAD, KEY),
    "amend": lambda database: database.amend("run-1", CANDIDATE, Outcome("wrong_result")),
    "start a run": lambda database: database.start_run(sample_run("run-2")),
    "update a run": lambda database: database.update_run("run-1", checkpoint={}, trials=2),
    "run": lambda database: database.run("run-1"),
    "find a run": lambda database: database.find_run(sample_run().identity),
    "runs of a workload": lambda database: database.runs(WORKLOAD),
    "records of a candidate": lambda database: list(
        database.records(RecordFilter(candidate=CANDIDATE))
    ),
    "best of a candidate": lambda database: database.best(RecordFilter(candidate=CANDIDATE)),
    "a candidate in a run": lambda database: list(
        database.records(RecordFilter(candidate=CANDIDATE, run_id="run-1", status="ok"))
    ),
    "records of a run": lambda database: list(database.records(RecordFilter(run_id="run-1"))),
}


@frozen
class Traced:
    """A database, and every statement that it has been given."""

    database: SQLiteDatabase
    connection: sqlite3.Connection
    statements: list[str]


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    with open_database(tmp_path / "records.db") as database:
        assert isinstance(database, SQLiteDatabase)
        database.start_run(sample_run())
        for trial in range(3):
            database.append_record(sample_record(trial, lowered="lowered", binary="binary"))
        statements: list[str] = []
        connection = database._connection
        connection.set_trace_callback(statements.append)
        yield Traced(database, connection, statements)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_query_uses_an_index(traced: Traced, name: str) -> None:
    OPERATIONS[name](traced.database)
    traced.connection.set_trace_callback(None)
    asked = [text for text in traced.statements if text.lstrip().startswith(("SELECT", "UPDATE"))]
    assert asked
    for text in asked:
        plan = [row[3] for row in traced.connection.execute(f"EXPLAIN QUERY PLAN {text}")]
        scans = [line for line in plan if line.startswith("SCAN") and is_of_a_table(line)]
        # One run is read through for its best record; what it is read from is no table. A
        # candidate has few records.
        may_sort = name == "best of a run" or "candidate" in name
        sorts = [line for line in plan if "TEMP B-TREE" in line and not may_sort]
        assert not scans + sorts, (text, plan)


def is_of_a_table(line: str) -> bool:
    tables = ("records", "runs", "baselines", "sketches", "targets", "programs", "copies")
    return line.split()[1] in tables or line == "SCAN workloads"


def test_the_index_of_candidates_is_preferred(traced: Traced) -> None:
    where = RecordFilter(candidate=CANDIDATE, run_id="run-1", status="ok")
    assert [record.trial for record in traced.database.records(where)] == [1]
    (query,) = (text for text in traced.statements if "ORDER BY id" in text)
    plan = str(traced.connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall())
    assert "SEARCH records USING INDEX records_by_candidate" in plan


def test_a_scan_would_be_noticed(traced: Traced) -> None:
    assert list(traced.database.records(RecordFilter(status="crash"))) == []
    query = "EXPLAIN QUERY PLAN SELECT id FROM records WHERE created > 1"
    assert is_of_a_table(traced.connection.execute(query).fetchone()[3])


def test_the_best_of_each_workload_reads_no_records_through(traced: Traced) -> None:
    assert len(traced.database.best_of_each()) == 1
    (query,) = (text for text in traced.statements if "wanted" in text)
    plan = str(traced.connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall())
    assert "SEARCH records USING INDEX records_by_latency" in plan
    assert "SCAN records" not in plan


def test_of_the_runs_of_a_network_the_most_recent_one_is_read_alone(traced: Traced) -> None:
    for number in range(2, 6):
        options = {"network": "own" if number < 5 else "other"}
        traced.database.start_run(sample_run(f"run-{number}", options=options))
    traced.statements.clear()
    assert next(traced.database.runs_of_network("own")).run_id == "run-4"
    read = [text for text in traced.statements if "checkpoint" in text]
    assert len(read) == 1 and "WHERE id = 4" in read[0]
