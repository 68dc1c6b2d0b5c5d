"""Files whose process was killed, and whose log was damaged after that."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from damaged_files import PAGE, ROUND, ROUNDS, flip_log, killed_files, log_of
from python_processes import start_python

from autotune.errors import DatabaseError
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.store.sqlite.write_ahead_log import log_damage, mended_log
from autotune.testing.sample_records import sample_record, sample_run

FRAME = 24 + PAGE


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A folder as a killed process leaves it, and what was recorded."""
    return killed_files(tmp_path_factory.mktemp("killed"))


def index_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-shm")


def contents(folder: Path) -> dict[str, bytes]:
    return {item.name: item.read_bytes() for item in folder.iterdir()}


def test_an_undamaged_log_of_a_killed_process(
    tmp_path: Path, killed: tuple[Path, list[Record]]
) -> None:
    folder, truth = killed
    for without_index in (False, True):
        path = shutil.copytree(folder, tmp_path / str(without_index)) / "records.db"
        if without_index:
            index_of(path).unlink()
        before = contents(path.parent)
        for read_only in (True, True, False):
            with open_database(path, read_only=read_only, warn=pytest.fail) as database:
                assert list(database.records()) == truth
            if read_only and not without_index:
                assert contents(path.parent) == before
        assert [item.name for item in path.parent.iterdir()] == ["records.db"]


def test_the_file_itself_has_tables_at_once_and_records_every_few_rounds(tmp_path: Path) -> None:
    path, copy = tmp_path / "records.db", tmp_path / "copy.db"
    held = []
    with open_database(path) as database:
        for rounds in range(9):
            shutil.copy(path, copy)
            with open_database(copy, read_only=True) as copied:
                held.append(copied.count())
            if rounds == 0:
                database.start_run(sample_run("run-1"))
            database.append_record(sample_record(rounds))
            database.update_run("run-1", checkpoint={"trials": rounds})
    assert held == [0, 0, 0, 0, 4, 4, 4, 4, 8]


def test_mending_a_sound_log_changes_nothing(killed: tuple[Path, list[Record]]) -> None:
    log = log_of(killed[0] / "records.db").read_bytes()
    own = mended_log(log)
    # Behind the last commit are frames of before the log began anew.
    assert own == log[: len(own)] and len(own) > FRAME
    assert mended_log(own) == own


def test_a_mended_log_is_read_to_its_end(
    tmp_path: Path, killed: tuple[Path, list[Record]]
) -> None:
    path = shutil.copytree(killed[0], tmp_path / "files") / "records.db"
    frames = len(mended_log(log_of(path).read_bytes())) // FRAME
    data = bytearray(log_of(path).read_bytes())
    for place in (3, 20, 32 + 3 * FRAME + 9, 32 + 5 * FRAME + 17, 32 + 6 * FRAME + 1000):
        data[place] ^= 1
    log_of(path).write_bytes(mended_log(bytes(data)))
    index_of(path).unlink()
    assert log_damage(path) is None
    with contextlib.closing(sqlite3.connect(path)) as connection:
        _, logged, _ = connection.execute("PRAGMA wal_checkpoint").fetchone()
    assert logged == frames


@pytest.mark.parametrize("content", [b"", b"short", b"notes\n" * 900, bytes(3 * FRAME)])
def test_what_is_no_log_is_not_mended(content: bytes) -> None:
    assert mended_log(content) == content


def test_a_page_number_beyond_all_pages_is_not_made(killed: tuple[Path, list[Record]]) -> None:
    log = bytearray(log_of(killed[0] / "records.db").read_bytes())
    whole = len(mended_log(bytes(log)))
    log[32] ^= 0x40
    assert len(mended_log(bytes(log))) == whole - FRAME


def test_a_log_that_others_are_writing_is_not_judged(
    tmp_path: Path, killed: tuple[Path, list[Record]]
) -> None:
    path = shutil.copytree(killed[0], tmp_path / "files") / "records.db"
    holder = "\n".join(
        (
            "import sys",
            "from autotune.store.sqlite import open_database",
            "with open_database(sys.argv[1]) as database:",
            "    print(database.count(), flush=True)",
            "    sys.stdin.read()",
        )
    )
    with start_python("-c", holder, str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{ROUNDS * ROUND}\n"
        flip_log(path, random.Random(0))
        for read_only in (True, False):
            with open_database(path, read_only=read_only, warn=pytest.fail) as database:
                assert database.count() == ROUNDS * ROUND
        process.communicate()


def test_a_file_of_another_program_with_a_damaged_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        for _ in range(20):
            connection.execute("INSERT INTO bookmarks VALUES ('x')")
        (tmp_path / "left").mkdir()
        for item in list(tmp_path.glob("bookmarks.db*")):
            shutil.copy(item, tmp_path / "left")
    path = tmp_path / "left" / "bookmarks.db"
    flip_log(path, random.Random(1))
    with pytest.raises(DatabaseError, match="belongs to another program"):
        open_database(path, warn=lambda message: None)
    assert not list(path.parent.glob("*.corrupt-*"))


@pytest.mark.parametrize("pages", [1, 2, 3, 5, 8, 13, 20])
def test_a_file_that_was_cut_short_does_not_claim_that_it_is_whole(
    tmp_path: Path, killed: tuple[Path, list[Record]], pages: int
) -> None:
    path = shutil.copytree(killed[0], tmp_path / "files") / "records.db"
    open_database(path).close()
    data = path.read_bytes()
    assert len(data) > 20 * PAGE
    path.write_bytes(data[: pages * PAGE])
    said: list[str] = []
    with open_database(path, warn=said.append) as database:
        lost = ROUNDS * ROUND - database.count()
    if lost:
        assert "is not known" in said[0] or "are lost" in said[0]
        assert "no record is missed" not in said[0]
