"""A damaged database gives no wrong record, and says what it lost."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from attack_cases import sampled
from damaged_files import (
    FILE_DAMAGES,
    IN_FILE,
    LOG_DAMAGES,
    RECORDS,
    Truth,
    check,
    killed_files,
    sound_file,
)

from autotune.errors import DatabaseError
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import sample_record

pytestmark = pytest.mark.attack("file damage")

SEEDS = 20
OF_ANOTHER = ("flip_bytes", "flip_header")
CASES = {
    f"{damage.__name__} {seed}": (damage, least)
    for seed in range(SEEDS)
    for damage, least in FILE_DAMAGES.items()
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Truth]:
    """A file with many records, and what is in it."""
    path = tmp_path_factory.mktemp("sound") / "records.db"
    truth = sound_file(path)
    return path.read_bytes(), truth


@pytest.mark.parametrize("name", sampled(CASES.keys(), now=16, slow=60, least=250))
@pytest.mark.promise(
    "a database file that is damaged anywhere",
    "no record is wrong or there twice, and none is lost without a word",
)
def test_a_damaged_file(
    name: str, sound: tuple[bytes, Truth], tmp_path: Path, verdict: Callable[[str], None]
) -> None:
    damage, least = CASES[name]
    content, truth = sound
    data = bytearray(content)
    damage(data, random.Random(name))
    path = tmp_path / "records.db"
    path.write_bytes(data)
    with suppress(DatabaseError), open_database(path, read_only=True) as database:
        found = list(database.records())
        check(found, truth)
        assert len(found) == RECORDS
    said: list[str] = []
    try:
        with open_database(path, warn=said.append) as database:
            records = list(database.records())
            check(records, truth)
            assert len(records) >= least
            assert said or len(records) == RECORDS
            assert database.append_record(sample_record(0, run_id="after")) > len(records)
    except DatabaseError as error:
        # The header says that it is of another program, or of a later version.
        assert damage.__name__ in OF_ANOTHER and path.read_bytes() == bytes(data), error
        verdict("refused")
        return
    with open_database(path) as database:
        assert database.count() == len(records) + 1
    aside = [item for item in tmp_path.iterdir() if item != path]
    assert len(aside) == len(said) <= 1
    for item in aside:
        assert item.name.startswith("records.db.corrupt-2")
        assert item.read_bytes() == bytes(data)
        assert str(item) in said[0] and f"{len(records)} records" in said[0]
        assert len(records) == RECORDS or "no record is missed" not in said[0]
    verdict("recovered" if said else "unharmed")


LOG_CASES = {
    f"log {name} {seed}": damage for seed in range(30) for name, damage in LOG_DAMAGES.items()
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A folder as a killed process leaves it, and what was recorded."""
    return killed_files(tmp_path_factory.mktemp("killed"))


def contents(folder: Path) -> dict[str, bytes]:
    return {item.name: item.read_bytes() for item in folder.iterdir()}


def sqlite_reads(folder: Path) -> int:
    """Count the records that SQLite itself finds in a copy, without a word on the others."""
    copy = shutil.copytree(folder, folder.with_name("copy"))
    with closing(sqlite3.connect(copy / "records.db")) as connection:
        (count,) = connection.execute("SELECT count(*) FROM records").fetchone()
    return int(count)


@pytest.mark.parametrize("name", sampled(LOG_CASES.keys(), now=9, slow=42, least=200))
@pytest.mark.promise(
    "a damaged log of a process that was killed",
    "what can be read of it is recovered, and nothing is lost without a word",
)
def test_a_damaged_log(
    name: str,
    killed: tuple[Path, list[Record]],
    tmp_path: Path,
    verdict: Callable[[str], None],
) -> None:
    folder, truth = killed
    path = shutil.copytree(folder, tmp_path / "files") / "records.db"
    LOG_CASES[name](path, random.Random(name))
    before = contents(path.parent)
    left = max(IN_FILE, sqlite_reads(path.parent))
    said: list[str] = []
    # Pages of before the damage and of after it may contradict each other.
    with (
        suppress(DatabaseError),
        open_database(path, read_only=True, warn=said.append) as database,
    ):
        found = list(database.records())
        assert found == truth[: len(found)] and len(found) >= left
        assert said or found == truth
    if "without index" not in name:
        assert contents(path.parent) == before
    told: list[str] = []
    with open_database(path, warn=told.append) as database:
        found = list(database.records())
        assert all(record == truth[record.trial] for record in found)
        # What comes before the damage is there; often what comes behind it too. A page of zeros
        # stands in the place of what the file itself has of that page.
        assert "zero" in name or {record.trial for record in found} >= set(range(left))
        assert len(told) == len(said) <= 1
        assert told or found == truth
        if len(found) < len(truth):
            assert "no record is missed" not in told[0]
        database.append_record(sample_record(0, run_id="after"))
    with open_database(path, warn=told.append) as database:
        assert database.count() == len(found) + 1
    assert len(told) == len(said)
    verdict("recovered" if told else "unharmed")
