"""Damage in indexes of files that are too large to be checked whenever they are opened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from thinning import thinned

from autotune.errors import DatabaseDamaged, DatabaseError
from autotune.store.database import RecordFilter
from autotune.store.sqlite import open_database
from autotune.testing.sample_records import sample_record

RUNS, RECORDS = 5, 400
PAGE = 4096
INDEX_PAGES = (0x02, 0x0A)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "records.db"
    with open_database(path) as database:
        records = (
            sample_record(trial, lowered=f"{trial:x}", run_id=f"run-{trial % RUNS}")
            for trial in range(RECORDS)
        )
        database.append_missing(list(records))
    return path.read_bytes()


def answers(path: Path) -> list[int]:
    """Counts with an index and without one."""
    with open_database(path, read_only=True) as database:
        runs = [database.count(RecordFilter(run_id=f"run-{run}")) for run in range(RUNS)]
        return [database.count(), len(database.best_of_each()), *runs]


@pytest.mark.parametrize("seed", thinned(range(70), 10, 3))
def test_a_check_finds_what_would_give_wrong_answers(
    tmp_path: Path, sound: bytes, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.store.sqlite.opening._CHECKED_ROWS_BYTES", 0)
    monkeypatch.setattr("autotune.store.sqlite.opening._CHECKED_BYTES", 0)
    path = tmp_path / "records.db"
    rng = random.Random(seed)
    data = bytearray(sound)
    starts = [at for at in range(PAGE, len(data), PAGE) if data[at] in INDEX_PAGES]
    place = rng.choice(starts) + rng.randrange(PAGE)
    data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    try:
        is_right = answers(path) == [RECORDS, 1, *[RECORDS // RUNS] * RUNS]
    except DatabaseError:
        is_right = False
    said = False
    try:
        with open_database(path, read_only=True) as database:
            database.check()
    except DatabaseDamaged:
        said = True
    assert said or is_right
    # What was found is noted for the next command that writes: it makes the indexes anew.
    told: list[str] = []
    with open_database(path, warn=told.append) as database:
        assert len(told) == said
        database.check()
    assert is_right or told
    if told:
        assert answers(path) == [RECORDS, 1, *[RECORDS // RUNS] * RUNS]
