from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import opening_races
import pytest
from python_processes import run_python

from autotune.errors import DatabaseError
from autotune.store.sqlite import open_database, opening
from autotune.store.sqlite.recovery import recover
from autotune.testing.sample_records import sample_record

ROUNDS = {"new": 96, "empty": 40, "old": 40}
PAGE = 4096
LEAF_OF_A_TABLE = 0x0D


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROUNDS)
def test_processes_that_open_a_file_at_once(tmp_path: Path, kind: str) -> None:
    command = (opening_races.__file__, kind, str(tmp_path), str(ROUNDS[kind]))
    # A process with threads cannot be forked safely.
    assert int(run_python(*command, OPENBLAS_NUM_THREADS="1")) == ROUNDS[kind]


class InterruptedConnection(sqlite3.Connection):
    """Has something done by others before one of its statements."""

    left = 0
    others: Any = None

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        cls = InterruptedConnection
        cls.left -= 1
        if cls.left == 0:
            cls.others()
        return super().execute(*arguments)


@pytest.mark.parametrize("kind", opening_races.KINDS)
def test_another_uses_the_file_between_any_two_statements(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another makes or migrates the file, appends a record, takes the log away again, or waits."""
    monkeypatch.setattr(opening, "BUSY_SECONDS", 0.02)
    prepare, earlier = opening_races.KINDS[kind]
    connect = sqlite3.connect
    appended = 0

    def connect_interrupted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, factory=InterruptedConnection, **options)

    for statement in itertools.count(1):
        path = tmp_path / str(statement) / "records.db"
        path.parent.mkdir()
        prepare(path)
        others: list[str] = []

        def use(path: Path = path, others: list[str] = others) -> None:
            try:
                with open_database(path, warn=opening_races.fail) as database:
                    database.append_record(sample_record(0, run_id="other"))
            except DatabaseError as error:
                assert "kept it locked" in str(error)
            else:
                others.append("other")

        InterruptedConnection.others = use
        with monkeypatch.context() as patch:
            patch.setattr(opening.sqlite3, "connect", connect_interrupted)
            InterruptedConnection.left = statement
            with open_database(path, warn=opening_races.fail) as database:
                is_past_the_last = InterruptedConnection.left > 0
                InterruptedConnection.left = 0
                database.append_record(sample_record(0, run_id="own"))
                found = [record.run_id for record in database.records()][earlier:]
        assert found == [*others, "own"]
        assert [item.name for item in path.parent.iterdir()] == [path.name]
        appended += len(others)
        if is_past_the_last:
            break
    assert appended >= 4


def test_what_looks_damaged_while_others_use_it_is_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    check = opening._check_tree
    alarms = 2

    def check_wrongly(connection: sqlite3.Connection, thorough: bool) -> None:
        nonlocal alarms
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        if file == str(path) and alarms:
            alarms -= 1
            raise sqlite3.DatabaseError("malformed")
        check(connection, thorough)

    with open_database(path) as database:
        database.append_record(sample_record(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_check_tree", check_wrongly)
        with open_database(path, warn=opening_races.fail) as database:
            assert database.count() == 1
        alarms = 10
        with pytest.raises(DatabaseError, match=r"the file is damaged; .*malformed"):
            open_database(path, warn=opening_races.fail)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [None, "disk I/O error", "malformed"])
def test_a_file_that_is_replaced_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str | None
) -> None:
    """A connection to a file that was moved aside would lose what it is given, if it opens."""
    path = tmp_path / "records.db"
    with open_database(path) as database:
        database.append_record(sample_record(0))
    connect = opening._connect_file
    seen: list[str] = []

    def damaged(copy: Path) -> None:
        raise sqlite3.DatabaseError("malformed")

    def connect_late(path: Path, read_only: bool) -> sqlite3.Connection:
        connection = connect(path, read_only)
        if not seen:
            seen.append(str(recover(path, opening.identity_of(path), 0, damaged)))
            if error is not None:
                connection.close()
                raise sqlite3.OperationalError(error)
        return connection

    monkeypatch.setattr(opening, "_connect_file", connect_late)
    with open_database(path) as database:
        assert "1 records" in seen[0]
        database.append_record(sample_record(1))
    with open_database(path) as database:
        assert [record.trial for record in database.records()] == [0, 1]


def test_an_opener_finishes_what_was_begun_while_it_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.db"
    recovered, later = tmp_path / "records.db-recovered", tmp_path / "later.db"
    for trial, place in enumerate((later, path)):
        with open_database(place) as database:
            database.append_record(sample_record(trial))
    connect = opening._connect_file

    def connect_late(path: Path, read_only: bool) -> sqlite3.Connection:
        if later.exists():
            later.rename(recovered)
        return connect(path, read_only)

    monkeypatch.setattr(opening, "_connect_file", connect_late)
    with open_database(path) as database:
        assert [record.trial for record in database.records()] == [0]
    assert not recovered.exists()


def test_a_file_that_this_process_has_open_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with open_database(path) as database:
        for trial in range(100):
            database.append_record(sample_record(trial))
    with open_database(path) as database:
        data = bytearray(path.read_bytes())
        starts = [at for at in range(0, len(data), PAGE) if data[at] == LEAF_OF_A_TABLE]
        # A page that the next record changes would be written anew.
        lost = starts[len(starts) // 2]
        data[lost : lost + PAGE] = bytes(PAGE)
        opener = "import sys; open(sys.argv[1], 'r+b').write(sys.stdin.buffer.read())"
        subprocess.run([sys.executable, "-c", opener, str(path)], input=data, check=True)
        with pytest.raises(DatabaseError, match="the file is damaged"):
            open_database(path, warn=opening_races.fail)
        database.append_record(sample_record(100))
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert database.count() > 90
    assert len(said) == 1
