"""Writes ``schema_<version>.db``, once per schema version: ``python make_golden.py``."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from autotune.store.sqlite import open_database
from autotune.store.sqlite.schema import SCHEMA_VERSION
from autotune.testing.sample_records import sample_baseline, sample_record, sample_run

if __name__ == "__main__":
    path = Path(__file__).parent / f"schema_{SCHEMA_VERSION}.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")
    with open_database(path) as database:
        database.start_run(sample_run(checkpoint={"rng": [1, 2, 3]}))
        record = sample_record(0, lowered="lowered", binary="binary", program="def main(): ...\n")
        database.append_record(record)
        database.append_record(sample_record(1, status="timeout"))
        database.append_baseline(sample_baseline(0.5, created=1e9))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("VACUUM")
