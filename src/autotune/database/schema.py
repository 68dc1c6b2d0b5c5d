"""The tables of the SQLite file, by version.

A version, once released, is never edited: the next one is a migration. A file of every version
is kept under ``tests/database`` and opened by the tests.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

SCHEMA_VERSION = 1

APPLICATION_ID = 0x4154554E
"""Marks a SQLite file as ours ("ATUN"), in its header."""

# Workloads, sketches and targets are stored once, under the digest of their JSON text, because
# thousands of records share them. Whatever is searched for is a column; the rest is JSON.
_VERSION_1 = (
    """
    CREATE TABLE workloads (
        id INTEGER PRIMARY KEY,
        content_digest TEXT NOT NULL UNIQUE,
        content TEXT NOT NULL,
        digest TEXT NOT NULL,
        name TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE sketches (
        id INTEGER PRIMARY KEY,
        content_digest TEXT NOT NULL UNIQUE,
        content TEXT NOT NULL,
        workload_id INTEGER NOT NULL REFERENCES workloads (id)
    )
    """,
    """
    CREATE TABLE targets (
        id INTEGER PRIMARY KEY,
        content_digest TEXT NOT NULL UNIQUE,
        content TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE measure_keys (
        id INTEGER PRIMARY KEY,
        target TEXT NOT NULL,
        backend TEXT NOT NULL,
        backend_version TEXT NOT NULL,
        compiler_version TEXT NOT NULL,
        threads INTEGER NOT NULL,
        protocol TEXT NOT NULL,
        UNIQUE (target, backend, backend_version, compiler_version, threads, protocol)
    )
    """,
    """
    CREATE TABLE records (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL,
        trial INTEGER NOT NULL,
        workload TEXT NOT NULL,
        candidate TEXT NOT NULL,
        sketch_id INTEGER NOT NULL REFERENCES sketches (id),
        config TEXT NOT NULL,
        key_id INTEGER NOT NULL REFERENCES measure_keys (id),
        target_id INTEGER NOT NULL REFERENCES targets (id),
        space TEXT NOT NULL,
        status TEXT NOT NULL,
        latency REAL,
        outcome TEXT NOT NULL,
        created REAL NOT NULL,
        elapsed REAL NOT NULL
    )
    """,
    "CREATE INDEX records_by_run ON records (run_id)",
    "CREATE INDEX records_by_candidate ON records (candidate, key_id)",
    "CREATE INDEX records_by_latency ON records (workload, key_id, latency) WHERE status = 'ok'",
    """
    CREATE TABLE baselines (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL,
        workload TEXT NOT NULL,
        key_id INTEGER NOT NULL REFERENCES measure_keys (id),
        status TEXT NOT NULL,
        outcome TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
    "CREATE INDEX baselines_by_workload ON baselines (workload, key_id)",
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL UNIQUE,
        identity TEXT NOT NULL,
        workload TEXT NOT NULL,
        key_id INTEGER NOT NULL REFERENCES measure_keys (id),
        space TEXT NOT NULL,
        strategy TEXT NOT NULL,
        options TEXT NOT NULL,
        seed INTEGER NOT NULL,
        trials INTEGER NOT NULL,
        status TEXT NOT NULL,
        created REAL NOT NULL,
        checkpoint TEXT
    )
    """,
    "CREATE INDEX runs_by_identity ON runs (identity)",
)

Migration = Callable[[sqlite3.Connection], None]


def _create_version_1(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


MIGRATIONS: tuple[Migration, ...] = (_create_version_1,)
"""``MIGRATIONS[n]`` makes version ``n + 1`` out of version ``n``; an empty file is version 0."""


def migrate(
    connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS
) -> None:
    """Bring a file up to the version that ``migrations`` lead to, within a transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number in range(version, len(migrations)):
        migrations[number](connection)
        connection.execute(f"PRAGMA user_version = {number + 1}")
