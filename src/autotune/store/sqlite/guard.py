"""Guard of a file that somebody else may have made: SQLite may only read its tables.

After https://www.sqlite.org/security.html#untrusted_sqlite_database_files.
"""

from __future__ import annotations

import functools
import sqlite3
import sys
from collections.abc import Set

from autotune.errors import DatabaseError
from autotune.store.sqlite.migrations import MIGRATIONS, migrate

__all__ = [
    "Definition",
    "check_schema",
    "definitions",
    "our_schema",
    "restrict",
    "restrict_to_reading",
]

Definition = tuple[str, str, str, str]
"""Type, name, table and SQL text of what a file defines."""

# Larger texts are none of ours: programs of whole networks have a few MiB.
_MOST_TEXT = 1 << 28
# A file of ours has two dozen definitions.
_MOST_DEFINITIONS = 200
# Damaged texts keep their length and nearly all of their letters.
_FEW = 4

_PRAGMAS = {
    "application_id",
    "foreign_key_check",
    "integrity_check",
    "page_count",
    "page_size",
    "quick_check",
    "user_version",
}
_FUNCTIONS = {
    "coalesce",
    "count",
    "instr",
    "json_extract",
    "json_valid",
    "max",
    "min",
    "row_checksum",
    "row_number",
}


def restrict(connection: sqlite3.Connection) -> None:
    """Have SQLite distrust a file: it looks at every cell, and runs no code that its schema names.

    Functions with effects, such as ``load_extension``, are then refused in views, triggers,
    defaults, generated columns and indexes.
    """
    for setting in ("trusted_schema = FALSE", "cell_size_check = TRUE", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_TEXT)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)


def restrict_to_reading(connection: sqlite3.Connection) -> None:
    """Refuse every statement but those that read tables by themselves."""
    connection.execute("PRAGMA query_only = TRUE")
    connection.set_authorizer(_authorize)


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, within: str | None
) -> int:
    """Allow the reading of tables, and questions about the file; nothing within a view."""
    allowed = {
        sqlite3.SQLITE_SELECT: True,
        sqlite3.SQLITE_TRANSACTION: True,
        sqlite3.SQLITE_READ: database in (None, "main"),
        sqlite3.SQLITE_PRAGMA: first in _PRAGMAS and second in (None, "1"),
        sqlite3.SQLITE_FUNCTION: second in _FUNCTIONS,
    }
    is_allowed = within is None and allowed.get(action, False)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


@functools.cache
def our_schema(version: int) -> Set[Definition]:
    """Definitions in a file of a version of the schema."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection, MIGRATIONS[:version])
        return frozenset(definitions(connection))
    finally:
        connection.close()


def check_schema(connection: sqlite3.Connection, location: str, version: int) -> None:
    """Raise unless a file defines what files of its version do, and nothing else.

    Nothing of its schema has been used by then: neither a table nor an index.

    Raises:
        DatabaseError: somebody has made or changed its schema.
        sqlite3.DatabaseError: it is damaged.
    """
    found, ours = set(definitions(connection)), our_schema(version)
    missing = ours - found
    for definition in sorted(found - ours):
        if not any(_is_nearly(definition, other) for other in missing):
            kind, name, table, _ = definition
            of = "" if name == table else f" of {table!r}"
            raise DatabaseError(
                f"database {location!r}: its schema is not one of this program: it has {kind} "
                f"{name!r}{of}, which is not read; export its records where it was made, "
                "and import them"
            )
    if missing:
        raise sqlite3.DatabaseError(f"the definition of {min(missing)[1]} is damaged")


def definitions(connection: sqlite3.Connection) -> list[Definition]:
    """Definitions in a file."""
    query = f"SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT {_MOST_DEFINITIONS}"
    rows = connection.execute(query).fetchall()
    return [
        (str(kind), str(name), str(table), "" if sql is None else str(sql))
        for kind, name, table, sql in rows
    ]


def _is_nearly(found: Definition, ours: Definition) -> bool:
    """Return whether a few letters differ, as after damage."""
    one, other = "\0".join(found), "\0".join(ours)
    changed = sum(mine != its for mine, its in zip(one, other, strict=False))
    return len(one) == len(other) and changed <= _FEW
