"""The tables of the SQLite file, by version.

A version, once released, is never edited: the next one is a migration. A file of every version
is kept under ``tests/store/sqlite`` and opened by the tests.

Digests of earlier versions, which covered names, replaced by those of today.

What was told an earlier digest still finds the record: the file keeps which one became which.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Sketch
from autotune.store.sqlite.interned import Interned
from autotune.store.sqlite.rows import (
    Row,
    add_copy,
    insert,
    read_json,
    replace,
    select,
    to_json_text,
)
from autotune.store.sqlite.schema import APPLICATION_ID, COLUMNS, SHARED_TABLES, row_checksum

__all__ = ["MIGRATIONS", "Migration", "current_digest", "migrate", "redigest"]

_PAGE = 256
_DIGEST = re.compile(r"\b[0-9a-f]{16}\b")
# What rows may have that this version does not understand, or nobody has written.
_NOT_READ = (AutotuneError, sqlite3.Error, LookupError, TypeError, ValueError, RecursionError)


def current_digest(connection: sqlite3.Connection, digest: str) -> str:
    """Digest that a workload or a candidate has by now."""
    found = select(connection, "former_digests", "former = ?", (digest,))
    return str(found[0]["digest"]) if found else digest


def redigest(connection: sqlite3.Connection) -> None:
    """Give every row today's digests, within a transaction; doing so again changes nothing.

    A row that is damaged, contradicts itself, or names what this version does not know is left as
    it is: it is treated as before when it is read.
    """
    workloads = dict(_new_workloads(connection))
    changed = {**workloads, **dict(_new_candidates(connection))}
    for row in _rows(connection, "workloads"):
        if row["digest"] in workloads:
            replace(connection, "workloads", row, {"digest": workloads[row["digest"]]})
    for row in _rows(connection, "copies"):
        _replace_copy(connection, row, workloads)
    for row in _rows(connection, "records"):
        texts = ("workload", "candidate", "outcome", "duplicate_of")
        _replace_texts(connection, "records", row, texts, changed)
    for row in _rows(connection, "baselines"):
        _replace_texts(connection, "baselines", row, ("workload", "outcome"), changed)
    for row in _rows(connection, "runs"):
        _replace_texts(connection, "runs", row, ("checkpoint",), changed)
    for former, digest in changed.items():
        if current_digest(connection, former) == former:
            insert(connection, "former_digests", {"former": former, "digest": digest})


def _new_workloads(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Earlier and present digests of workloads that have changed."""
    for row in _rows(connection, "workloads"):
        try:
            workload = Workload.from_json(read_json("workloads", row, "content"))
        except _NOT_READ:
            continue
        if row["digest"] == workload.spelling != workload.digest:
            yield workload.spelling, workload.digest


def _new_candidates(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Earlier and present digests of candidates that have changed."""
    interned = Interned(connection)
    sketches: dict[int, Sketch | None] = {}
    for row in _rows(connection, "records"):
        number = row["sketch_id"]
        if number not in sketches:
            try:
                sketches[number] = interned.sketch(number)
            except _NOT_READ:
                sketches[number] = None
        sketch = sketches[number]
        if sketch is None:
            continue
        try:
            candidate = Candidate(sketch, tuple(json.loads(row["config"])))
        except _NOT_READ:
            continue
        if row["candidate"] == candidate.spelling != candidate.digest:
            yield candidate.spelling, candidate.digest


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[Row]:
    """The sound rows of a table, page by page, so that they may be replaced meanwhile."""
    last = 0
    while True:
        found = connection.execute(
            f"SELECT id FROM {table} WHERE id > ? ORDER BY id LIMIT ?", (last, _PAGE)
        ).fetchall()
        yield from _sound_rows(connection, table, [number for (number,) in found])
        if len(found) < _PAGE:
            return
        (last,) = found[-1]


def _sound_rows(connection: sqlite3.Connection, table: str, numbers: Sequence[int]) -> list[Row]:
    """The sound ones of these rows: all at once, or one by one where some are damaged."""
    if not numbers:
        return []
    try:
        return select(connection, table, "id BETWEEN ? AND ?", (numbers[0], numbers[-1]))
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        if len(numbers) == 1:
            return []
    middle = len(numbers) // 2
    halves = numbers[:middle], numbers[middle:]
    return [row for half in halves for row in _sound_rows(connection, table, half)]


def _replace_copy(connection: sqlite3.Connection, row: Row, workloads: Mapping[str, str]) -> None:
    """Put the present digest into the copy of a workload's row."""
    if row["origin"] != "workloads":
        return
    values: list[Any] = json.loads(row["content"])
    place = COLUMNS["workloads"].index("digest")
    if values[place] in workloads:
        values[place] = workloads[values[place]]
        replace(connection, "copies", row, {"content": to_json_text(values)})


def _replace_texts(
    connection: sqlite3.Connection,
    table: str,
    row: Row,
    columns: tuple[str, ...],
    changed: Mapping[str, str],
) -> None:
    """Put present digests in the place of earlier ones, wherever these stand in a text."""

    def present(found: re.Match[str]) -> str:
        return changed.get(found[0], found[0])

    texts = {column: row[column] for column in columns if isinstance(row[column], str)}
    new = {column: _DIGEST.sub(present, text) for column, text in texts.items()}
    changes = {column: text for column, text in new.items() if text != row[column]}
    if changes:
        replace(connection, table, row, changes)


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
