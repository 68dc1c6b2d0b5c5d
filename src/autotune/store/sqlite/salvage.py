"""Rows of a damaged file that SQLite itself can still read."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from autotune.store.sqlite.guard import definitions, our_schema, restrict_to_reading
from autotune.store.sqlite.migrations import MIGRATIONS, migrate
from autotune.store.sqlite.rows import Row, checked_row
from autotune.store.sqlite.schema import COLUMNS, SCHEMA_VERSION

__all__ = ["Rows", "Salvaged", "salvage", "with_new_schema"]

Rows = dict[str, dict[int, Row]]
"""Rows by table and number."""

_LAST = 2**62
# Where the header has the number of pages and the list of free ones; zero is "not known".
_COUNTS = slice(28, 40)


class Salvaged(NamedTuple):
    """Sound rows, and the number of each table's newest row where the file tells."""

    rows: Rows
    newest: dict[str, int] | None


def salvage(path: Path) -> Salvaged:
    """Every row of an unshared file that can be read and whose checksum holds."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # A file that was cut short is read as far as it goes.
        connection.execute("PRAGMA writable_schema = TRUE")
        connection.execute("PRAGMA trusted_schema = FALSE")
        restrict_to_reading(connection)
        connection.text_factory = lambda data: data.decode(errors="replace")
        ours = _own_tables(connection)
        rows: Rows = {
            table: {row["id"]: row for row in _sound(connection, table)} if table in ours else {}
            for table in COLUMNS
        }
        newest: dict[str, int] | None = None
        with contextlib.suppress(sqlite3.DatabaseError):
            noted = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            newest = {name: number for name, number in noted if isinstance(number, int)}
    return Salvaged(rows, newest)


def _own_tables(connection: sqlite3.Connection) -> set[str]:
    """Tables that are defined as ours are: reading another may run what its definition says."""
    try:
        found = set(definitions(connection))
    except sqlite3.DatabaseError:
        return set()
    versions = range(1, SCHEMA_VERSION + 1)
    return {
        name
        for version in versions
        for kind, name, *_ in found & our_schema(version)
        if kind == "table"
    }


def _sound(connection: sqlite3.Connection, table: str) -> Iterator[Row]:
    """Rows up to a page that cannot be read, and those behind it, found in ever longer steps."""
    low, step = 1, 1
    while low < _LAST:
        start = low
        try:
            for row in _between(connection, table, low, _LAST, "ASC"):
                low = row["id"] + 1
                yield row
            return
        except sqlite3.DatabaseError:
            step = 1 if low > start else 2 * step
            start, low = low, low + step
        # Back to the other end of the damage, over which the step may have gone.
        with contextlib.suppress(sqlite3.DatabaseError):
            yield from _between(connection, table, start, low - 1, "DESC")


def _between(
    connection: sqlite3.Connection, table: str, low: int, high: int, order: str
) -> Iterator[Row]:
    """Sound rows with numbers in a window, until SQLite raises."""
    query = (
        f"SELECT {', '.join(COLUMNS[table])}, checksum FROM {table} "
        f"WHERE id BETWEEN ? AND ? ORDER BY id {order}"
    )
    for values in connection.execute(query, (low, high)):
        with contextlib.suppress(sqlite3.DatabaseError):
            yield checked_row(table, values)


def with_new_schema(data: bytes, version: int) -> bytes:
    """A file whose header and definitions of tables are those of a new one of this version.

    They stand in its first pages; without them SQLite finds none of the others.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            migrate(connection, MIGRATIONS[:version])
            connection.execute("COMMIT")
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        new = bytearray(path.read_bytes())
    new[_COUNTS] = bytes(_COUNTS.stop - _COUNTS.start)
    content = bytearray(data)
    for start in range(0, min(len(new), len(data)), size):
        # Behind the eight bytes at its head, the page of a table without rows is empty.
        if any(new[start + 8 : start + size]):
            content[start : start + size] = new[start : start + size]
    return bytes(content)
