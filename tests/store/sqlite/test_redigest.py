"""Files of before digests were free of names: what is in them is found by today's digests."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from autotune.errors import DatabaseDamaged, DatabaseError
from autotune.ir.workloads import gemm
from autotune.sketches import Candidate
from autotune.store.database import RecordFilter
from autotune.store.jsonl import import_lines, read_lines
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database, opening
from autotune.store.sqlite.migrations import MIGRATIONS, migrate, redigest
from autotune.store.sqlite.rows import replace, select
from autotune.store.sqlite.schema import COLUMNS, SCHEMA_VERSION
from autotune.testing.sample_records import KEY, sample_baseline, sample_record, sample_run

FILES = Path(__file__).parents[2] / "files_of_0_1"
BEFORE = 2
"""The last version whose digests covered names."""
WORKLOAD = gemm(m=8, n=8, k=8)


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as it is, and not as a database opens it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def records() -> list[Record]:
    """A winner, a duplicate of it, and one that it has beaten."""
    winner = sample_record(0, 2e-6, tile=4, lowered="same")
    digest = winner.candidate.digest
    duplicate = sample_record(1, 2e-6, tile=8, lowered="same", duplicate_of=digest)
    beaten = sample_record(2, 1e-6, tile=2)
    outcome = evolve(beaten.outcome, beaten_by=digest)
    return [winner, duplicate, evolve(beaten, outcome=outcome)]


def write_earlier(path: Path) -> None:
    """A file as the last version before today's digests wrote it."""
    with open_database(path) as database:
        for record in records():
            database.append_record(record)
        database.append_baseline(sample_baseline(0.5, created=1e9))
        logged = {"logs": [[records()[0].candidate.digest, 1.0]]}
        database.start_run(sample_run(checkpoint=logged))
    earlier = {
        WORKLOAD.digest: WORKLOAD.spelling,
        **{record.candidate.digest: record.candidate.spelling for record in records()},
    }
    with connected(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN")
        connection.execute("DROP TABLE former_digests")
        for table in COLUMNS:
            if table == "former_digests":
                continue
            for row in select(connection, table, "TRUE"):
                texts = {name: text for name, text in row.items() if isinstance(text, str)}
                for now, then in earlier.items():
                    texts = {name: text.replace(now, then) for name, text in texts.items()}
                replace(connection, table, row, texts)
        connection.execute(f"PRAGMA user_version = {BEFORE}")
        connection.execute("COMMIT")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_earlier(tmp_path / "records.db")
    return tmp_path / "records.db"


@pytest.mark.parametrize("read_only", [False, True])
def test_everything_is_found_by_its_digest(path: Path, read_only: bool) -> None:
    before = path.read_bytes()
    winner, duplicate, beaten = records()
    with open_database(path, read_only=read_only, warn=pytest.fail) as database:
        assert list(database.records()) == records()
        for record in (winner, duplicate, beaten):
            assert database.lookup(record.candidate.digest, KEY) == record
        assert database.lookup_program("same", WORKLOAD.digest, KEY) == winner
        assert database.best(RecordFilter(workload=WORKLOAD.digest)) == winner
        assert database.baselines(RecordFilter(workload=WORKLOAD.digest)) != []
        run = database.run("run-1")
        assert run == sample_run(checkpoint={"logs": [[winner.candidate.digest, 1.0]]})
        assert database.find_run(sample_run().identity) == run
        assert database.runs(WORKLOAD.spelling) == [run]
        database.check()
    assert (path.read_bytes() == before) is read_only


def test_digests_that_were_told_before_still_find_it(path: Path) -> None:
    winner = records()[0]
    with open_database(path) as database:
        for where in (
            RecordFilter(candidate=winner.candidate.spelling),
            RecordFilter(candidate=winner.candidate.spelling, run_id="run-1"),
            RecordFilter(workload=WORKLOAD.spelling, candidate=winner.candidate.digest),
        ):
            assert list(database.records(where)) == [winner]
            assert database.count(where) == 1
        assert database.best(RecordFilter(workload=WORKLOAD.spelling)) == winner
        assert len(database.baselines(RecordFilter(workload=WORKLOAD.spelling))) == 1


def test_a_change_of_a_winner_reaches_its_duplicates(path: Path) -> None:
    winner, duplicate, _ = records()
    with open_database(path) as database:
        database.amend("run-1", winner.candidate.digest, Outcome("crash"))
        found = list(database.records())
    assert [record.outcome.status for record in found] == ["crash", "crash", "ok"]
    assert found[1].outcome.duplicate_of == winner.candidate.digest
    assert found[1].candidate.digest == duplicate.candidate.digest


def test_copies_are_of_the_present(path: Path) -> None:
    with open_database(path):
        pass
    with connected(path) as connection:
        for copy in select(connection, "copies", "origin = 'workloads'"):
            values = json.loads(copy["content"])
            (row,) = select(connection, "workloads", "id = ?", (values[0],))
            assert list(row.values()) == values


def test_doing_it_again_changes_nothing(path: Path) -> None:
    with open_database(path):
        pass
    with connected(path) as connection:
        before = list(connection.iterdump())
        redigest(connection)
        assert list(connection.iterdump()) == before


def test_a_file_made_today_keeps_no_former_digests(tmp_path: Path) -> None:
    with open_database(tmp_path / "new.db") as database:
        database.append_record(sample_record())
    with connected(tmp_path / "new.db") as connection:
        redigest(connection)
        assert select(connection, "former_digests", "TRUE") == []


def test_rows_that_contradict_themselves_do_not_become_true(path: Path) -> None:
    with connected(path) as connection:
        row = select(connection, "records", "id = 1")[0]
        replace(connection, "records", row, {"candidate": "f" * 16})
        other = select(connection, "records", "id = 3")[0]
        replace(connection, "records", other, {"workload": "e" * 16})
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert database.lookup(records()[0].candidate.digest, KEY) is None
        assert database.lookup(records()[2].candidate.digest, KEY) is None
        assert database.count(RecordFilter(candidate="f" * 16)) == 1
    assert any("row 3 of records" in it and "not the one that it is found by" in it for it in said)


def test_a_damaged_row_stays_damaged(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("UPDATE records SET latency = 3e-9 WHERE id = 2")
    with open_database(path, read_only=True, warn=lambda _: None) as database:
        assert database.lookup(records()[0].candidate.digest, KEY) == records()[0]
        with pytest.raises(DatabaseDamaged):
            database.check()
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert [record.trial for record in database.records()] == [0, 2]
        assert database.lookup(records()[0].candidate.digest, KEY) == records()[0]
    assert any("at least 1 records are lost" in text for text in said)


def test_what_is_recovered_of_an_earlier_file_is_found(path: Path) -> None:
    """A damaged header hides the version; the rows themselves tell what their digests cover."""
    data = bytearray(path.read_bytes())
    data[16:100] = bytes(84)
    path.write_bytes(data)
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert list(database.records()) == records()
        assert database.lookup(records()[0].candidate.digest, KEY) == records()[0]
        assert database.count(RecordFilter(candidate=records()[0].candidate.spelling)) == 1
    assert any("3 records" in text for text in said)


def test_a_step_that_is_missing_here_keeps_its_record(path: Path) -> None:
    with connected(path) as connection:
        for row in select(connection, "sketches", "id = 1"):
            content = json.loads(row["content"])
            content["steps"][0]["step"] = "of_a_plugin"
            replace(connection, "sketches", row, {"content": json.dumps(content)})
        copies = select(connection, "copies", "origin = 'sketches'")
        for copy in copies:
            connection.execute("DELETE FROM copies WHERE id = ?", (copy["id"],))
    with open_database(path, warn=lambda _: None) as database:
        assert database.count() == 3
    with connected(path) as connection:
        (found,) = {row["workload"] for row in select(connection, "records", "TRUE")}
    assert found == WORKLOAD.digest


def test_nobody_goes_on_with_earlier_digests(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of an earlier version has the file open: it would write what is not found."""
    monkeypatch.setattr(opening, "BUSY_SECONDS", 0.05)
    script = (
        "import sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA journal_mode = WAL')\n"
        "connection.execute('SELECT count(*) FROM records').fetchone()\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(DatabaseError, match="another process has it open; end that one"):
            open_database(path)
        with open_database(path, read_only=True) as database:
            assert database.lookup(records()[0].candidate.digest, KEY) == records()[0]
        process.stdin.close()
        assert process.wait(timeout=300) == 0
    with connected(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (BEFORE,)
    with open_database(path) as database:
        assert database.lookup(records()[0].candidate.digest, KEY) == records()[0]


def test_a_kill_within_the_migration_leaves_the_earlier_file(path: Path) -> None:
    script = (
        "import os, sys\n"
        "from autotune.store.sqlite import migrations, open_database\n"
        "def die(connection):\n"
        "    migrations._leave_names_out(connection)\n"
        "    connection.execute('PRAGMA cache_spill = 1')\n"
        "    os._exit(9)\n"
        "import autotune.store.sqlite.opening as opening\n"
        f"known = migrations.MIGRATIONS[:{BEFORE}]\n"
        "opening.migrate = lambda c: migrations.migrate(c, (*known, die))\n"
        "open_database(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], timeout=300, check=False)
    assert done.returncode == 9
    with open_database(path, warn=pytest.fail) as database:
        assert list(database.records()) == records()
        assert database.lookup(records()[0].candidate.digest, KEY) == records()[0]
    assert os.listdir(path.parent) == [path.name]


def test_an_earlier_process_cannot_read_the_file_any_more(path: Path) -> None:
    with open_database(path):
        pass
    with connected(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        migrate(connection, MIGRATIONS[:BEFORE])
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_records_of_a_real_run_of_0_1_are_found(tmp_path: Path) -> None:
    path = Path(shutil.copy(FILES / "records.db", tmp_path / "records.db"))
    workload = gemm(m=32, n=32, k=32)
    with open_database(path, warn=pytest.fail) as database:
        found = list(database.records())
        assert all(record.candidate.digest != record.candidate.spelling for record in found)
        for record in found:
            same = database.lookup(record.candidate.digest, record.key)
            assert same is not None and same.candidate == record.candidate
            former = RecordFilter(candidate=record.candidate.spelling, run_id=record.run_id)
            assert record in list(database.records(former))
        best = database.best(RecordFilter(workload=workload.digest, backend="tvm"))
        assert best is not None and best.candidate.sketch.workload == workload
        finished = database.run("a224b0fda964")
        assert finished is not None and finished.checkpoint is not None
        entries = finished.checkpoint["progress"]["logs"][0]
        logged = {entry[0] for entry in entries}
        own = {
            it.candidate.digest for it in database.records(RecordFilter(run_id=finished.run_id))
        }
        assert logged == own
        database.check()


def test_lines_of_before_and_of_today_are_the_same_records(tmp_path: Path) -> None:
    with open_database(":memory:") as database:
        with (FILES / "records.jsonl").open("rb") as stream:
            import_lines(read_lines(stream), database, on_bad=pytest.fail)
        for record in database.records():
            assert isinstance(record.candidate, Candidate)
            where = RecordFilter(candidate=record.candidate.digest, run_id=record.run_id)
            assert list(database.records(where)) == [record]
            again = Record.from_json(json.loads(json.dumps(record.to_json())))
            assert database.append_missing([again]) == 0
