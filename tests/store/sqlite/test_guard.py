"""Database files that somebody else has made so that opening them does something."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from pathlib import Path

import pytest

from autotune.errors import DatabaseError
from autotune.store.sqlite import SQLiteDatabase, guard, open_database
from autotune.store.sqlite.schema import SCHEMA_VERSION
from autotune.testing.sample_records import sample_record

PAGE = 4096
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"

HOSTILE = {
    "trigger": "CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM runs; END",
    "view": "CREATE VIEW evil AS SELECT load_extension('/tmp/evil.so')",
    "cyclic views": "CREATE VIEW evil AS SELECT * FROM other; "
    "CREATE VIEW other AS SELECT * FROM evil",
    "endless view": f"CREATE VIEW evil AS {ENDLESS} SELECT i FROM n",
    "table that is a view": "ALTER TABLE records RENAME TO hidden; "
    f"CREATE VIEW records AS {ENDLESS} SELECT i AS id FROM n",
    "virtual table": "CREATE VIRTUAL TABLE evil USING rtree(id, low, high)",
    "generated column": "ALTER TABLE records ADD COLUMN evil AS (abs(latency))",
    "default": "ALTER TABLE runs ADD COLUMN evil TEXT DEFAULT (hex(zeroblob(1000000)))",
    "expression index": "CREATE INDEX evil ON records (abs(latency))",
    "partial index": "DROP INDEX records_by_run; "
    "CREATE INDEX records_by_run ON records (run_id) WHERE abs(trial) > 1",
    "table": "CREATE TABLE evil (x)",
    "statistics": "ANALYZE",
}


def make(path: Path, statements: str = "", records: int = 3) -> bytes:
    """A file of ours in which somebody else has then done something; returns its content."""
    with open_database(path) as database:
        for trial in range(records):
            database.append_record(sample_record(trial))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
        # Nothing but the file itself is left.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_schema_that_is_not_ours(tmp_path: Path, kind: str, read_only: bool) -> None:
    path = tmp_path / "foreign.db"
    before = make(path, HOSTILE[kind])
    with pytest.raises(DatabaseError, match="schema is not one of this program: it has") as error:
        open_database(path, read_only=read_only)
    assert "\n" not in str(error.value)
    assert {item.name for item in tmp_path.iterdir()} == {"foreign.db"}
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_damaged_file_whose_schema_is_not_ours(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "foreign.db"
    data = bytearray(make(path, HOSTILE[kind], records=200))
    last = len(data) - PAGE
    data[last:] = bytes(PAGE)
    path.write_bytes(data)
    with (
        contextlib.suppress(DatabaseError),
        open_database(path, warn=lambda message: None) as ours,
    ):
        # What was recovered is in a file of ours.
        assert isinstance(ours, SQLiteDatabase)
        guard.check_schema(ours._connection, str(path), SCHEMA_VERSION)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO copies (origin, content, checksum) VALUES ('', '', 0)",
        "DELETE FROM records",
        "UPDATE records SET trial = 7",
        "CREATE TABLE evil (x)",
        "CREATE TEMP TABLE evil (x)",
        "DROP TABLE records",
        "ALTER TABLE records RENAME TO evil",
        "ATTACH ':memory:' AS evil",
        "VACUUM",
        "REINDEX",
        "ANALYZE",
        "PRAGMA user_version = 7",
        "PRAGMA writable_schema = TRUE",
        "PRAGMA query_only = FALSE",
        "PRAGMA trusted_schema = TRUE",
        "PRAGMA wal_checkpoint",
        "PRAGMA journal_mode = DELETE",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT hex(zeroblob(1000))",
        "SELECT * FROM pragma_table_info('records')",
        f"{ENDLESS} SELECT i FROM n LIMIT 3",
    ],
)
def test_a_reader_can_do_nothing_but_read(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "records.db"
    make(path)
    with open_database(path, read_only=True) as database:
        assert isinstance(database, SQLiteDatabase)
        with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited|denied"):
            database._connection.execute(statement)
        assert len(list(database.records())) == 3


def test_a_damaged_definition_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    data = bytearray(make(path))
    place = data.index(b"CREATE INDEX records_by_run ON records") + len("CREATE INDEX ")
    data[place] ^= 0x20
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match="the file is damaged"):
        open_database(path, read_only=True)
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert database.count() == 3
    assert len(said) == 1


# Python has no limits of SQLite's before.
@pytest.mark.needs("Python 3.11")
def test_a_text_that_is_too_long_for_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    make(path, "UPDATE records SET outcome = hex(zeroblob(300000)) WHERE id = 2")
    monkeypatch.setattr(guard, "_MOST_TEXT", 1 << 18)
    with (
        open_database(path, read_only=True) as database,
        pytest.raises(DatabaseError, match="too big"),
    ):
        list(database.records())


def hot_journal(path: Path, other: Path | None) -> bytes:
    """A journal that takes back a change to the first page, and to ``other`` too if given."""
    data = path.read_bytes()
    first = data[:PAGE]
    checksum = 1 + sum(first[at] for at in range(PAGE - 200, 0, -200))
    header = JOURNAL_MAGIC + struct.pack(">5I", 1, 1, len(data) // PAGE, 512, PAGE)
    record = struct.pack(">I", 1) + first + struct.pack(">I", checksum)
    journal = header.ljust(512, b"\0") + record
    if other is None:
        return journal
    name = str(other).encode()
    lock_page = 0x40000000 // PAGE + 1
    ends = struct.pack(">II", len(name), sum(name)) + JOURNAL_MAGIC
    return journal + struct.pack(">I", lock_page) + name + ends


def without_log(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_journal_does_not_remove_files_of_others(tmp_path: Path, read_only: bool) -> None:
    path, thesis = tmp_path / "foreign.db", tmp_path / "thesis.txt"
    make(path)
    without_log(path)
    thesis.write_text("years of work\n")
    (tmp_path / "foreign.db-journal").write_bytes(hot_journal(path, thesis))
    with pytest.raises(DatabaseError, match="names another file"):
        open_database(path, read_only=read_only)
    assert thesis.read_text() == "years of work\n"


def test_a_reader_takes_no_change_back(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    make(path)
    without_log(path)
    journal = tmp_path / "records.db-journal"
    journal.write_bytes(hot_journal(path, None))
    with pytest.raises(DatabaseError, match="open it for writing once"):
        open_database(path, read_only=True)
    assert journal.exists()
    with open_database(path, warn=pytest.fail) as database:
        assert database.count() == 3
    assert not journal.exists()
