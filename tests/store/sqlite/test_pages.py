from __future__ import annotations

import contextlib
import random
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.store.sqlite.pages import PAGE_SIZES, apply_log, page_size_of, read_rows

INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.builds(
    lambda text, times: text * times, st.text("aé", min_size=1, max_size=3), st.integers(1, 3000)
)
VALUES = st.none() | INTEGERS | st.floats(allow_nan=False) | TEXTS
ROWS = st.dictionaries(st.integers(-(2**62), 2**62), st.tuples(VALUES, VALUES), max_size=60)


def write(path: Path, rows: dict[int, tuple[object, object]], page_size: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, one, two, mark TEXT)")
        connection.executemany(
            "INSERT INTO things VALUES (?, ?, ?, 'mark')",
            [(number, *values) for number, values in rows.items()],
        )
        connection.commit()


@given(rows=ROWS, page_size=st.sampled_from(PAGE_SIZES))
def test_reads_what_sqlite_has_written(
    rows: dict[int, tuple[object, object]], page_size: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "things.db"
        write(path, rows, page_size)
        data = path.read_bytes()
    assert page_size_of(data, b"") == page_size
    found = {
        number: tuple(values[1:3])
        for number, values in read_rows(data, page_size)
        if len(values) == 4 and values[3] == "mark"
    }
    assert found == rows
    kinds = [tuple(map(type, values)) for _, values in sorted(found.items())]
    assert kinds == [tuple(map(type, values)) for _, values in sorted(rows.items())]


@pytest.mark.parametrize("seed", range(20))
def test_a_log_is_applied_as_sqlite_does(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path, copy = tmp_path / "things.db", tmp_path / "copy.db"
    log_path = tmp_path / "things.db-wal"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {rng.choice(PAGE_SIZES)}")
        connection.execute("CREATE TABLE things (id INTEGER PRIMARY KEY, one TEXT)")
        connection.execute("PRAGMA journal_mode = WAL")
        for number in range(rng.randint(1, 60)):
            connection.execute("INSERT INTO things VALUES (?, ?)", (number, "x" * number**2))
            if rng.random() < 0.1:
                connection.execute("DELETE FROM things WHERE id < ?", (rng.randrange(60),))
            if rng.random() < 0.05:
                # The log is begun anew: what follows in it is of an earlier one.
                connection.execute("PRAGMA wal_checkpoint")
        data, log = path.read_bytes(), bytearray(log_path.read_bytes())
    if seed % 2 and len(log) > 40:
        log[rng.randrange(32, len(log))] ^= 16
    copy.write_bytes(data)
    copy.with_name("copy.db-wal").write_bytes(log)
    size = page_size_of(data, log)
    assert size is not None
    applied = apply_log(data, bytes(log), size)
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        wanted = dict(connection.execute("SELECT id, one FROM things").fetchall())
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found = {n: values[1] for n, values in read_rows(applied, size) if len(values) == 2}
    assert found == wanted
    assert applied == copy.read_bytes()


def test_the_size_of_a_page_is_in_the_log_too() -> None:
    log = bytes.fromhex("377f0682 002de218 00001000") + bytes(20)
    assert page_size_of(bytes(4096), log) == 4096
    assert page_size_of(bytes(4096), b"") is None


@pytest.mark.parametrize("seed", range(50))
def test_reads_noise_without_an_error(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(rng.randbytes(8 * 512))
    for page in range(8):
        data[page * 512 : page * 512 + 5] = b"\x0d\0\0\0\x30"
    for number, values in read_rows(bytes(data), 512):
        assert isinstance(number, int)
        assert all(isinstance(value, (int, float, str, type(None))) for value in values)
    assert apply_log(bytes(data), rng.randbytes(100), 512) == bytes(data)
