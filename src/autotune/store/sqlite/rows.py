"""Rows and their checksums."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import InvalidValueError, one_line
from autotune.store.records.validity import check_content
from autotune.store.sqlite.schema import COLUMNS, row_checksum

__all__ = [
    "BrokenRow",
    "NotUnderstood",
    "Row",
    "checked_row",
    "insert",
    "insert_shared",
    "put",
    "read_json",
    "reason_of",
    "replace",
    "select",
    "to_json_text",
]

Row = dict[str, Any]
"""Values by column, in the order of `COLUMNS`; without the checksum."""

_MOST_LETTERS = 300


class NotUnderstood(sqlite3.DatabaseError):
    """A row is what was written, but means nothing here: a part that it names may be missing."""


class BrokenRow(NotUnderstood):
    """A row is what was written, but has values that no version of this program writes."""


def select(
    connection: sqlite3.Connection, table: str, condition: str, values: Sequence[Any] = ()
) -> list[Row]:
    """The rows of a table for which a condition holds, with verified checksums.

    Args:
        connection: The open file.
        table: Name of the table.
        condition: What follows WHERE.
        values: Values of its question marks.

    Raises:
        sqlite3.DatabaseError: a row is not what was written.
    """
    query = f"SELECT {', '.join(COLUMNS[table])}, checksum FROM {table} WHERE {condition}"
    return [checked_row(table, row) for row in connection.execute(query, values).fetchall()]


def checked_row(table: str, values: Sequence[Any]) -> Row:
    """A row from its values in order, the last of which is its checksum.

    Raises:
        sqlite3.DatabaseError: the row is not what was written.
    """
    *content, checksum = values
    if row_checksum(table, *content) != checksum:
        raise sqlite3.DatabaseError(f"row {content[0]} of {table} is not what was written")
    return dict(zip(COLUMNS[table], content, strict=True))


def insert(connection: sqlite3.Connection, table: str, content: Mapping[str, Any]) -> int:
    """Add a row with its checksum, within a transaction; returns its number.

    Args:
        connection: The open file.
        table: Name of the table.
        content: Values of all its columns but ``id``.
    """
    (number,) = connection.execute(f"SELECT coalesce(max(id), 0) + 1 FROM {table}").fetchone()
    row = {"id": number, **content}
    put(connection, table, {column: row.pop(column) for column in COLUMNS[table]})
    if row:
        raise ValueError(f"{table} has no column {next(iter(row))!r}")
    return int(number)


def insert_shared(connection: sqlite3.Connection, table: str, content: Mapping[str, Any]) -> int:
    """Add a row that others will refer to, and its copy; returns its number."""
    number = insert(connection, table, content)
    add_copy(connection, table, (number, *(content[column] for column in COLUMNS[table][1:])))
    return number


def add_copy(connection: sqlite3.Connection, table: str, values: Sequence[Any]) -> None:
    """Add the copy of a row, given by its values in order."""
    content = to_json_text(list(values))
    insert(connection, "copies", {"origin": table, "content": content})


def put(connection: sqlite3.Connection, table: str, row: Row) -> None:
    """Add a row that has its number, within a transaction."""
    values = tuple(row.values())
    marks = ", ".join("?" * (len(values) + 1))
    statement = f"INSERT INTO {table} ({', '.join(row)}, checksum) VALUES ({marks})"
    connection.execute(statement, (*values, row_checksum(table, *values)))


def replace(
    connection: sqlite3.Connection, table: str, row: Row, changes: Mapping[str, Any]
) -> None:
    """Change a row and its checksum, within a transaction.

    Args:
        connection: The open file.
        table: Name of the table.
        row: The row as it is.
        changes: New values by column.
    """
    values = {**row, **changes}
    assignments = ", ".join(f"{column} = ?" for column in (*changes, "checksum"))
    connection.execute(
        f"UPDATE {table} SET {assignments} WHERE id = ?",
        (*changes.values(), row_checksum(table, *values.values()), values["id"]),
    )


def read_json(table: str, row: Row, column: str) -> Any:
    """The content of a column of JSON text.

    Raises:
        BrokenRow: it is no JSON, or has texts, numbers or depths that no record has.
    """
    try:
        content = json.loads(row[column])
        check_content(content)
    except (TypeError, ValueError, RecursionError, InvalidValueError) as error:
        raise BrokenRow(f"row {row['id']} of {table}: {reason_of(error)}") from error
    return content


def reason_of(error: Exception) -> str:
    """The beginning of a message that may quote a file, on one line."""
    return one_line(str(error), _MOST_LETTERS) or type(error).__name__


def to_json_text(value: Any) -> str:
    """The JSON text of a value, without spaces."""
    return json.dumps(value, separators=(",", ":"))
