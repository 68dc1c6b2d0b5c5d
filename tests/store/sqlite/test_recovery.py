from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from damaged_files import INVALID_BASELINE, PAGE, RECORDS, Truth, check, sound_file
from python_processes import start_python

from autotune.errors import DatabaseError
from autotune.ir.workloads import gemm
from autotune.store.database import RecordFilter
from autotune.store.sqlite import SQLiteDatabase, open_database
from autotune.store.sqlite.recovery import recover
from autotune.store.sqlite.rows import replace, select
from autotune.testing.sample_records import KEY, sample_record

GOLDEN = Path(__file__).parent / "schema_1.db"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Truth]:
    """A file with 500 records of seven runs, and what is in it."""
    path = tmp_path_factory.mktemp("sound") / "records.db"
    truth = sound_file(path)
    return path.read_bytes(), truth


def test_a_damaged_file_and_what_is_only_in_its_log(
    tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    _, truth = sound
    source, path = tmp_path / "source.db", tmp_path / "records.db"
    with open_database(source) as database:
        for record in list(truth.values())[:60]:
            database.append_record(record)
        # The log has everything: the file itself is still empty.
        path.write_bytes(b"\0" * len(source.read_bytes()))
        shutil.copy(tmp_path / "source.db-wal", tmp_path / "records.db-wal")
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert list(database.records()) == list(truth.values())[:60]


def test_a_damaged_file_that_a_link_names(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    _, truth = sound
    source, path = tmp_path / "source.db", tmp_path / "records.db"
    with open_database(source) as database:
        for record in list(truth.values())[:60]:
            database.append_record(record)
    with open_database(source) as database:
        for record in list(truth.values())[60:70]:
            database.append_record(record)
        path.write_bytes(bytes(PAGE) + source.read_bytes()[PAGE:])
        shutil.copy(tmp_path / "source.db-wal", tmp_path / "records.db-wal")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)
    said: list[str] = []
    with open_database(link, warn=said.append) as database:
        assert list(database.records()) == list(truth.values())[:70]
    assert link.is_symlink() and len(said) == 1 and "no record is missed" in said[0]


def test_everything_else_is_recovered_too(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    content, _ = sound
    path = tmp_path / "records.db"
    path.write_bytes(bytes(PAGE) + content[PAGE:])
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        workload = gemm(m=8, n=8, k=8).digest
        assert database.baselines() == [INVALID_BASELINE]
        run = database.run("run-1")
        assert run is not None
        assert run.checkpoint == {"state": list(range(450, 3000))}
        best = database.best(RecordFilter(workload=workload, key=KEY))
        assert best is not None
        assert best.trial == 0
    assert "500 records, 1 runs and 1 baselines were recovered, no record is missed" in said[0]


@pytest.mark.parametrize(
    ("table", "left", "said"),
    [
        ("records", 0, "0 records, .* recovered, at least 500 records are lost"),
        ("sqlite_sequence", RECORDS, "500 records, .* and how many are lost is not known"),
    ],
)
def test_a_table_that_has_lost_its_root(
    tmp_path: Path, sound: tuple[bytes, Truth], table: str, left: int, said: str
) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
    data = bytearray(sound[0])
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    told: list[str] = []
    with open_database(path, warn=told.append) as database:
        assert database.count() == left
    assert re.search(said, told[0])


def test_where_no_number_is_noted_nothing_proves_that_no_record_is_missed(
    tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM sqlite_sequence")
        connection.commit()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'records'"
        ).fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[(root - 1) * PAGE : root * PAGE] = bytes(PAGE)
    path.write_bytes(data)
    told: list[str] = []
    with open_database(path, warn=told.append) as database:
        assert database.count() == 0
    assert "0 records, 1 runs" in told[0] and "how many are lost is not known" in told[0]


def test_rows_between_two_damaged_pages(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    data = bytearray(sound[0])
    with_records = [at for at in range(0, len(data), PAGE) if b"samples" in data[at : at + PAGE]]
    for start in (with_records[10], with_records[20]):
        data[start : start + PAGE] = bytes(PAGE)
    path = tmp_path / "records.db"
    path.write_bytes(data)
    told: list[str] = []
    with open_database(path, warn=told.append) as database:
        trials = {record.trial for record in database.records()}
    lost = sorted(set(range(RECORDS)) - trials)
    assert 0 < len(lost) < 40
    assert min(lost) > 0 and not set(range(min(lost), max(lost))) <= set(lost)
    assert f"at least {len(lost)} records are lost" in told[0]


def test_a_text_that_has_become_binary(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    with contextlib.closing(sqlite3.connect(path)) as connection:
        # As one changed bit in the header of a row does.
        connection.execute("UPDATE records SET space = CAST(space AS BLOB) WHERE id = 7")
        connection.commit()
    with (
        open_database(path, read_only=True) as database,
        pytest.raises(DatabaseError, match="row 7 of records is not what was written"),
    ):
        list(database.records())
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert database.count() == RECORDS - 1
    assert len(said) == 1


@pytest.mark.parametrize("table", ["workloads", "sketches", "targets", "measure_keys"])
def test_rows_that_others_name_and_that_are_gone(
    table: str, tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    content, truth = sound
    path = tmp_path / "records.db"
    path.write_bytes(content)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DELETE FROM {table}")
    with (
        open_database(path, read_only=True) as database,
        pytest.raises(DatabaseError, match=f"names a row of {table} that is missing"),
    ):
        database.check()
    with pytest.warns(RuntimeWarning, match=r"was damaged: 500 records.*no record is missed"):
        database = open_database(path)
    with database:
        found = list(database.records())
    check(found, truth)
    assert len(found) == len(truth)


def test_by_default_python_warns(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0][:-PAGE])
    with pytest.warns(RuntimeWarning, match="was damaged"):
        open_database(path).close()
    open_database(path).close()


def test_reading_changes_nothing_and_says_what_writing_would_do(
    tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    path = tmp_path / "records.db"
    data = bytes(PAGE) + sound[0][PAGE:]
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match=r"damaged; the next command that writes .* recovers"):
        open_database(path, read_only=True)
    assert path.read_bytes() == data
    assert [item.name for item in tmp_path.iterdir()] == ["records.db"]


def test_damage_that_is_found_while_reading_is_noted_for_the_next_opener(
    tmp_path: Path, sound: tuple[bytes, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As for a file that is too large to be read through whenever it is opened.
    monkeypatch.setattr("autotune.store.sqlite.opening._CHECKED_ROWS_BYTES", 0)
    monkeypatch.setattr("autotune.store.sqlite.opening._CHECKED_BYTES", 0)
    data = bytearray(sound[0])
    data[data.index(b'"samples":[0.0015') + 12] = ord("7")
    path = tmp_path / "records.db"
    path.write_bytes(data)
    said: list[str] = []
    with (
        open_database(path, warn=said.append) as database,
        pytest.raises(DatabaseError, match="is not what was written"),
    ):
        list(database.records())
    assert not said
    assert (tmp_path / "records.db-damaged").exists()
    with open_database(path, warn=said.append) as database:
        assert database.count() == RECORDS - 1
    assert "at least 1 records are lost" in said[0]
    assert not (tmp_path / "records.db-damaged").exists()


def test_a_note_about_a_sound_file_is_taken_away(
    tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    (tmp_path / "records.db-damaged").touch()
    with open_database(path) as database:
        assert database.count() == RECORDS
    assert [item.name for item in tmp_path.iterdir()] == ["records.db"]


def test_damaged_twice_within_a_second(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    path = tmp_path / "records.db"
    said: list[str] = []
    for _ in range(3):
        path.write_bytes(sound[0][:-PAGE])
        open_database(path, warn=said.append).close()
    assert len(said) == 3
    assert len(list(tmp_path.iterdir())) == 4


def test_a_damaged_file_without_checksums_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    data = bytearray(GOLDEN.read_bytes())
    data[512:] = b"\xa5" * (len(data) - 512)
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match="schema 1 have no checksums"):
        open_database(path)
    assert path.read_bytes() == bytes(data)
    assert [item.name for item in tmp_path.iterdir()] == ["records.db"]


def test_a_damaged_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.executemany("INSERT INTO bookmarks VALUES (?)", [("x" * 100,)] * 500)
        connection.commit()
    data = bytearray(path.read_bytes())
    data[100:PAGE] = b"\xa5" * (PAGE - 100)
    path.write_bytes(data)
    with pytest.raises(DatabaseError, match="another program"):
        open_database(path)
    assert path.read_bytes() == bytes(data)
    assert [item.name for item in tmp_path.iterdir()] == ["records.db"]


def test_a_damaged_file_that_another_process_has_open(
    tmp_path: Path, sound: tuple[bytes, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.store.sqlite.opening.BUSY_SECONDS", 0.1)
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    holder = "\n".join(
        (
            "import sys",
            "from autotune.store.sqlite import open_database",
            "database = open_database(sys.argv[1])",
            "print(database.count(), flush=True)",
            "sys.stdin.read()",
        )
    )
    with start_python("-c", holder, str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "500\n"
        with path.open("r+b") as file:
            file.seek(10 * PAGE)
            file.write(bytes(PAGE))
        with pytest.raises(DatabaseError, match="another process has it open"):
            open_database(path)
        process.communicate()
    said: list[str] = []
    open_database(path, warn=said.append).close()
    assert len(said) == 1


def test_a_disk_that_gives_back_something_else_ends_it(
    tmp_path: Path, sound: tuple[bytes, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(connection: sqlite3.Connection, thorough: bool) -> None:
        raise sqlite3.DatabaseError("malformed")

    monkeypatch.setattr("autotune.store.sqlite.opening._check_tree", check)
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    said: list[str] = []
    with pytest.raises(DatabaseError, match="the file is damaged"):
        open_database(path, warn=said.append)
    assert len(said) == 1


def test_what_means_nothing_here_is_kept(tmp_path: Path, sound: tuple[bytes, Truth]) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    with open_database(path) as database:
        assert isinstance(database, SQLiteDatabase)
        row = select(database._connection, "records", "id = 1")[0]
        # As a later version might write it.
        replace(database._connection, "records", row, {"outcome": '{"status": "melted"}'})
    data = path.read_bytes()
    path.write_bytes(bytes(PAGE) + data[PAGE:])
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        assert database.count() == RECORDS
        with pytest.raises(DatabaseError, match=r"plugin that is missing .*row 1 of records"):
            list(database.records())
    assert len(said) == 1
    open_database(path, warn=said.append).close()
    assert len(said) == 1


def test_rows_that_no_file_holds_are_not_carried_along(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    kept = sample_record(0)
    with open_database(path) as database:
        assert isinstance(database, SQLiteDatabase)
        database.append_missing([kept, sample_record(1, workload=gemm(m=4, n=4, k=4))])
        connection = database._connection
        (row,) = select(connection, "workloads", "id = 2")
        # SQLite gives the number back as a text, for which the checksum does not hold.
        replace(connection, "workloads", row, {"name": 7})
        (copy,) = select(connection, "copies", "origin = 'workloads' AND content LIKE '[2,%'")
        content = json.dumps([*row.values()][:-1] + [7], separators=(",", ":"))
        replace(connection, "copies", copy, {"content": content})
    data = path.read_bytes()
    path.write_bytes(bytes(PAGE) + data[PAGE:])
    said: list[str] = []
    for _ in range(2):
        with open_database(path, warn=said.append) as database:
            assert list(database.records()) == [kept]
    assert len(said) == 1 and "at least 1 records are lost" in said[0]


def test_recovering_what_another_process_has_replaced_does_nothing(
    tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(sound[0])
    assert recover(path, (1, 1), 0.1, lambda copy: None) is None
    assert [item.name for item in tmp_path.iterdir()] == ["records.db"]


@pytest.mark.slow
@pytest.mark.promise(
    "several processes that find the same damage",
    "it is recovered once, and every record is there",
)
def test_several_processes_find_the_damage_at_once(
    tmp_path: Path, sound: tuple[bytes, Truth]
) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(bytes(PAGE) + sound[0][PAGE:])
    opener = (
        "import sys, time; from autotune.store.sqlite import open_database\n"
        "from autotune.testing.sample_records import sample_record\n"
        "while time.time() < float(sys.argv[2]): pass\n"
        "said = []\n"
        "with open_database(sys.argv[1], warn=said.append) as database:\n"
        "    database.append_record(sample_record(0, run_id=sys.argv[3]))\n"
        "print(len(said), database.location)\n"
    )
    start = str(time.time() + 3)
    processes = [
        start_python("-c", opener, str(path), start, f"opener-{number}") for number in range(4)
    ]
    said = [int(process.communicate(timeout=300)[0].split()[0]) for process in processes]
    assert sum(said) == 1
    with open_database(path) as database:
        assert database.count() == RECORDS + 4
    assert len(list(tmp_path.iterdir())) == 2
