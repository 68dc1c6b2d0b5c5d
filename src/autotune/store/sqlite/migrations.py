"""The tables of the SQLite file, by version.

A version, once released, is never edited: the next one is a migration. A file of every version
is kept under ``tests/database`` and opened by the tests.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from autotune.store.sqlite.redigest import redigest
from autotune.store.sqlite.rows import add_copy
from autotune.store.sqlite.schema import (
    APPLICATION_ID,
    SHARED_TABLES,
    row_checksum,
)

__all__ = ["MIGRATIONS", "Migration", "migrate"]

Migration = Callable[[sqlite3.Connection], None]

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

# Imported programs are texts of many kilobytes that all records of a task share. Digests of
# programs are columns, so that what was measured for an equal program is found.
_VERSION_2 = (
    """
    CREATE TABLE programs (
        id INTEGER PRIMARY KEY,
        content_digest TEXT NOT NULL UNIQUE,
        content TEXT NOT NULL,
        checksum INTEGER NOT NULL
    )
    """,
    # Thousands of records depend on one row of what is stored once: a second copy of each such
    # row, on other pages, outlives the loss of a page.
    """
    CREATE TABLE copies (
        id INTEGER PRIMARY KEY,
        origin TEXT NOT NULL,
        content TEXT NOT NULL,
        checksum INTEGER NOT NULL
    )
    """,
    "ALTER TABLE records ADD COLUMN program_id INTEGER REFERENCES programs (id)",
    "ALTER TABLE records ADD COLUMN lowered TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE records ADD COLUMN binary TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE records ADD COLUMN duplicate_of TEXT NOT NULL DEFAULT ''",
    """
    CREATE INDEX records_by_lowered ON records (workload, key_id, lowered)
    WHERE lowered <> '' AND duplicate_of = ''
    """,
    """
    CREATE INDEX records_by_binary ON records (workload, key_id, binary)
    WHERE binary <> '' AND duplicate_of = ''
    """,
    "CREATE INDEX records_by_original ON records (duplicate_of) WHERE duplicate_of <> ''",
    "CREATE INDEX runs_by_workload ON runs (workload)",
)

# Digests cover no names any more. Those of before are kept beside those that they became: results
# and logs name candidates by them.
_VERSION_3 = """
    CREATE TABLE former_digests (
        id INTEGER PRIMARY KEY,
        former TEXT NOT NULL UNIQUE,
        digest TEXT NOT NULL,
        checksum INTEGER NOT NULL
    )
"""


def _create_version_1(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _add_programs_and_checksums(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_2:
        connection.execute(statement)
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    for table in (*SHARED_TABLES, "records", "baselines", "runs"):
        if table != "programs":
            connection.execute(
                f"ALTER TABLE {table} ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0"
            )
        # Those of the file: what later versions add is not there yet.
        columns = ", ".join(_columns(connection, table))
        connection.execute(f"UPDATE {table} SET checksum = row_checksum('{table}', {columns})")
        if table in SHARED_TABLES:
            rows = connection.execute(f"SELECT {columns} FROM {table} ORDER BY id").fetchall()
            for values in rows:
                add_copy(connection, table, values)


def _leave_names_out(connection: sqlite3.Connection) -> None:
    connection.execute(_VERSION_3)
    redigest(connection)


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [row[1] for row in rows if row[1] != "checksum"]


MIGRATIONS: tuple[Migration, ...] = (
    _create_version_1,
    _add_programs_and_checksums,
    _leave_names_out,
)
"""``MIGRATIONS[n]`` makes version ``n + 1`` out of version ``n``; an empty file is version 0."""


def migrate(
    connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS
) -> None:
    """Bring a file up to the version that ``migrations`` lead to, within a transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number in range(version, len(migrations)):
        migrations[number](connection)
        connection.execute(f"PRAGMA user_version = {number + 1}")
