from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from python_processes import start_python
from thinning import thinned

from autotune.errors import DatabaseError
from autotune.store.database import RecordFilter
from autotune.store.sqlite import SQLiteDatabase, open_database, opening
from autotune.store.sqlite.migrations import MIGRATIONS, migrate
from autotune.store.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from autotune.testing.database_suite import DatabaseSuite, OpenDatabase
from autotune.testing.sample_records import KEY, sample_baseline, sample_record, sample_run

GOLDEN = Path(__file__).parent

WRITER = """
import sys
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import sample_record
with open_database(sys.argv[1]) as database:
    for trial in range(int(sys.argv[2])):
        database.append_record(sample_record(trial, run_id=sys.argv[3]))
        print(trial, flush=True)
"""


class TestSQLiteDatabase(DatabaseSuite):
    @pytest.fixture
    def open_database(self, tmp_path: Path) -> OpenDatabase:
        return lambda: SQLiteDatabase(tmp_path / "records.db")


def test_in_memory() -> None:
    with open_database(":memory:") as database:
        database.append_record(sample_record())
        assert database.count() == 1
        assert database.location == ":memory:"
    assert not Path(":memory:").exists()


def test_a_killed_writer_loses_nothing_that_it_reported(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with start_python("-c", WRITER, str(path), "100000", "killed") as writer:
        assert writer.stdout is not None
        for _ in range(20):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        reported = 20 + len(writer.stdout.read().splitlines())
    with open_database(path) as database:
        trials = [record.trial for record in database.records()]
        assert len(trials) in (reported, reported + 1)
        assert trials == list(range(len(trials)))
        database.append_record(sample_record(0, run_id="after"))
        assert database.count(RecordFilter(run_id="after")) == 1


@pytest.mark.parametrize("version", thinned([0, 1], 2))
def test_eight_processes_open_and_write_at_once(tmp_path: Path, version: int) -> None:
    path = tmp_path / "records.db"
    there = 0
    if version:
        # Whoever comes first migrates it.
        shutil.copy(GOLDEN / f"schema_{version}.db", path)
        there = 2
    names = [f"writer-{number}" for number in range(8)]
    count = "200" if version == 1 else "50"
    writers = [start_python("-c", WRITER, str(path), count, name) for name in names]
    reported = [writer.communicate(timeout=300)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    with open_database(path) as database:
        assert database.count() == there + sum(map(len, reported))
        for name, lines in zip(names, reported, strict=True):
            trials = [record.trial for record in database.records(RecordFilter(run_id=name))]
            assert trials == list(map(int, lines)) == list(range(len(lines)))
    assert [item.name for item in tmp_path.iterdir()] == ["records.db"]


class TestReadOnly:
    def test_reads(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        with open_database(path) as database:
            database.append_record(sample_record())
        before = path.read_bytes()
        with open_database(path, read_only=True) as database:
            assert database.count() == 1
            with pytest.raises(DatabaseError, match="read-only"):
                database.append_record(sample_record())
        assert path.read_bytes() == before
        assert [item.name for item in tmp_path.iterdir()] == ["records.db"]

    def test_sees_what_a_writer_has_written(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        with open_database(path) as writer, open_database(path, read_only=True) as reader:
            writer.append_record(sample_record())
            assert reader.count() == 1

    def test_needs_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(DatabaseError, match="no such file"):
            open_database(tmp_path / "records.db", read_only=True)
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder in which permissions mean something: root is put off for the test."""
    folder = Path(tempfile.mkdtemp(prefix="database-test-"))
    folder.chmod(0o755)
    is_root = os.geteuid() == 0
    if is_root:
        shutil.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        for path in [folder, *folder.iterdir()]:
            path.chmod(0o755)
        shutil.rmtree(folder)


class TestRefusals:
    def refused(self, path: Path, *words: str) -> None:
        before = {p.name: p.read_bytes() for p in path.parent.iterdir() if p.is_file()}
        with pytest.raises(DatabaseError) as caught:
            open_database(path)
        for word in (str(path), *words):
            assert word in str(caught.value)
        after = {p.name: p.read_bytes() for p in path.parent.iterdir() if p.is_file()}
        assert after == before

    def test_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(DatabaseError, match="there is no folder"):
            open_database(tmp_path / "nowhere" / "records.db")
        assert list(tmp_path.iterdir()) == []

    def test_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "records.db").mkdir()
        self.refused(tmp_path / "records.db", "it is a folder")

    def test_a_file_of_another_kind(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        path.write_text("some notes\n" * 100)
        self.refused(path, "another kind", "name another file")

    def test_the_database_of_another_program(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE bookmarks (url TEXT)")
        self.refused(path, "another program")

    def test_a_newer_schema(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        open_database(path).close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        self.refused(path, "newer version", "upgrade")

    def test_a_read_only_file(self, unprivileged_folder: Path) -> None:
        path = unprivileged_folder / "records.db"
        open_database(path).close()
        path.chmod(stat.S_IRUSR)
        self.refused(path, "read-only", "writable")
        with open_database(path, read_only=True) as database:
            assert database.count() == 0

    def test_a_read_only_folder(self, unprivileged_folder: Path) -> None:
        path = unprivileged_folder / "records.db"
        open_database(path).close()
        unprivileged_folder.chmod(0o555)
        self.refused(path, "folder is read-only")
        self.refused(unprivileged_folder / "new.db", "folder is read-only")
        with open_database(path, read_only=True) as database:
            assert database.count() == 0

    def test_a_file_that_cannot_be_read(self, unprivileged_folder: Path) -> None:
        path = unprivileged_folder / "records.db"
        open_database(path).close()
        path.chmod(0)
        with pytest.raises(DatabaseError, match="cannot be read"):
            open_database(path)

    def test_a_file_that_another_process_keeps_locked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("autotune.store.sqlite.opening.BUSY_SECONDS", 0.1)
        path = tmp_path / "records.db"
        with open_database(path) as database:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(DatabaseError, match="another process"):
                    database.append_record(sample_record())
            database.append_record(sample_record())


class TestSchema:
    def test_an_empty_file_becomes_a_database(self, tmp_path: Path) -> None:
        path = tmp_path / "records.db"
        path.touch()
        with open_database(path) as database:
            database.append_record(sample_record())
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
            assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    @pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
    def test_opens_a_file_of_every_version(self, tmp_path: Path, version: int) -> None:
        path = tmp_path / "records.db"
        shutil.copy(GOLDEN / f"schema_{version}.db", path)
        first = sample_record(0)
        if version > 1:
            program = "def main(): ...\n"
            first = sample_record(0, lowered="lowered", binary="binary", program=program)
        with open_database(path) as database:
            records = list(database.records())
            assert records == [first, sample_record(1, status="timeout")]
            assert database.run("run-1") == sample_run(checkpoint={"rng": [1, 2, 3]})
            workload = first.candidate.sketch.workload.digest
            assert database.baselines() == [sample_baseline(0.5, created=1e9)]
            assert database.lookup(first.candidate.digest, KEY) == first
            if version > 1:
                assert database.lookup_program("lowered", workload, KEY) == first
            database.append_record(sample_record(2))
            assert database.count() == 3

    @pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
    def test_an_old_file_is_found_and_not_changed_by_reading(
        self, tmp_path: Path, version: int
    ) -> None:
        path = tmp_path / "records.db"
        shutil.copy(GOLDEN / f"schema_{version}.db", path)
        with open_database(path, read_only=True) as database:
            assert [record.trial for record in database.records()] == [0, 1]
            digest = sample_record(0).candidate.digest
            found = database.lookup(digest, KEY)
            assert found is not None and found.candidate.digest == digest
            database.check()
            with pytest.raises(DatabaseError, match="it is read-only"):
                database.append_record(sample_record(2))
        assert path.read_bytes() == (GOLDEN / f"schema_{version}.db").read_bytes()
        assert [item.name for item in tmp_path.iterdir()] == [path.name]

    def test_migrations_run_in_order_and_once(self) -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            steps = (
                *MIGRATIONS,
                lambda c: c.execute("ALTER TABLE runs ADD COLUMN note TEXT"),
                lambda c: c.execute("UPDATE runs SET note = ''"),
            )
            migrate(connection)
            migrate(connection, steps)
            migrate(connection, steps)
            version = connection.execute("PRAGMA user_version").fetchone()
        assert version == (len(MIGRATIONS) + 2,)


def test_appending_takes_no_more_work_where_there_is_much_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [0]

    class Counting(sqlite3.Connection):
        """Counts the instructions of SQLite's machine by tens."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.set_progress_handler(self.count, 10)

        @staticmethod
        def count() -> None:
            steps[0] += 1

    connect = partial(sqlite3.connect, factory=Counting)
    monkeypatch.setattr(opening.sqlite3, "connect", connect)  # type: ignore[attr-defined]
    taken = []
    with open_database(tmp_path / "records.db") as database:
        for trial in range(300):
            before = steps[0]
            database.append_record(sample_record(trial))
            taken.append(steps[0] - before)
    assert 0 < max(taken[-50:]) <= 2 * max(taken[1:51])
    assert max(taken) < 500, "nothing is searched row by row"
