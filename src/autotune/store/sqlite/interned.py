"""Interned content that records share: workloads, sketches, targets, keys."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.sketches import Sketch
from autotune.store.records import MeasureKey
from autotune.store.records.validity import check_key, check_lengths
from autotune.store.sqlite.rows import (
    BrokenRow,
    Row,
    insert_shared,
    read_json,
    reason_of,
    select,
    to_json_text,
)
from autotune.store.sqlite.schema import COLUMNS
from autotune.targets import Target

__all__ = ["KEY_COLUMNS", "KEY_EQUALS", "Interned", "key_values"]

KEY_COLUMNS = COLUMNS["measure_keys"][1:]
KEY_EQUALS = " AND ".join(f"measure_keys.{column} = ?" for column in KEY_COLUMNS)


class Interned:
    """Rows that others refer to by number, each of which is read and checked once.

    Every method raises ``sqlite3.Error``, also for a row that is damaged or missing. What is read
    raises an `AutotuneError`, a ``ValueError`` or the like where it is not what it should be.

    Args:
        connection: The open file.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._sketches: dict[int, Sketch] = {}
        self._keys: dict[int, MeasureKey] = {}
        self._targets: dict[int, tuple[dict[str, Any], list[str]]] = {}
        self._programs: dict[int, str] = {}

    def add_sketch(self, sketch: Sketch) -> int:
        """The number of a sketch, which is added if it is not there."""
        workload = sketch.workload
        columns = {"digest": workload.digest, "name": workload.name}
        workload_id = self._add_object("workloads", workload.to_json(), columns)
        # The same steps over the same computation under another name are another row.
        content = {"workload": workload_id, **sketch.to_json()}
        return self._add_object("sketches", content, {"workload_id": workload_id})

    def sketch(self, number: int) -> Sketch:
        """The sketch with this number."""
        if number not in self._sketches:
            row = self.row("sketches", number)
            workload = self.row("workloads", row["workload_id"])
            content = read_json("sketches", row, "content")
            with _breaking("sketches", number):
                check_lengths("sketch", content)
            of = Workload.from_json(read_json("workloads", workload, "content"))
            self._sketches[number] = Sketch.from_json(content, of)
        return self._sketches[number]

    def has_sketch(self, number: int) -> bool:
        """Tell if the sketch with this number was read, and is none that means nothing here."""
        return number in self._sketches

    def add_target(self, target: Mapping[str, Any]) -> int:
        """The number of a target's description, which is added if it is not there."""
        return self._add_object("targets", target, {})

    def target(self, number: int) -> dict[str, Any]:
        """A copy of the description with this number."""
        if number not in self._targets:
            content = read_json("targets", self.row("targets", number), "content")
            with _breaking("targets", number):
                Target.from_json(content)
            lists = [name for name, value in content.items() if isinstance(value, (list, dict))]
            self._targets[number] = content, lists
        content, lists = self._targets[number]
        description: dict[str, Any] = content.copy()
        for name in lists:
            description[name] = _copied(content[name])
        return description

    def add_program(self, program: str | None) -> int | None:
        """The number of a program's text, which is added if it is not there."""
        if program is None:
            return None
        digest = hashlib.sha256(program.encode()).hexdigest()
        return self._add("programs", {"content_digest": digest, "content": program})

    def program(self, number: int | None) -> str | None:
        """The text with this number."""
        if number is not None and number not in self._programs:
            text = self.row("programs", number)["content"]
            if not isinstance(text, str):
                raise BrokenRow(f"row {number} of programs: {text[:40]!r} is no text")
            self._programs[number] = text
        return None if number is None else self._programs[number]

    def add_key(self, key: MeasureKey) -> int:
        """The number of a measure key, which is added if it is not there."""
        number = self.find_key(key)
        if number is None:
            row = dict(zip(KEY_COLUMNS, key_values(key), strict=True))
            number = insert_shared(self._connection, "measure_keys", row)
        return number

    def find_key(self, key: MeasureKey) -> int | None:
        """The number of a measure key, if the file has it."""
        query = f"SELECT id FROM measure_keys WHERE {KEY_EQUALS}"
        row = self._connection.execute(query, key_values(key)).fetchone()
        return None if row is None else int(row[0])

    def key(self, number: int) -> MeasureKey:
        """The measure key with this number."""
        if number not in self._keys:
            row = self.row("measure_keys", number)
            key = MeasureKey(*(row[column] for column in KEY_COLUMNS))
            with _breaking("measure_keys", number):
                check_key(key)
            self._keys[number] = key
        return self._keys[number]

    def row(self, table: str, number: int) -> Row:
        """The row of a shared table with this number."""
        found = select(self._connection, table, "id = ?", (number,))
        if not found:
            raise sqlite3.DatabaseError(f"row {number} of {table} is missing")
        return found[0]

    def _add_object(
        self, table: str, content: Mapping[str, Any], columns: Mapping[str, Any]
    ) -> int:
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        row = {"content_digest": digest, "content": to_json_text(content), **columns}
        return self._add(table, row)

    def _add(self, table: str, row: Mapping[str, Any]) -> int:
        query = f"SELECT id FROM {table} WHERE content_digest = ?"
        found = self._connection.execute(query, (row["content_digest"],)).fetchone()
        return insert_shared(self._connection, table, row) if found is None else int(found[0])


def _copied(value: Any) -> Any:
    """A copy of a JSON value."""
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    return value


@contextlib.contextmanager
def _breaking(table: str, number: int) -> Iterator[None]:
    try:
        yield
    except AutotuneError as error:
        raise BrokenRow(f"row {number} of {table}: {reason_of(error)}") from error


def key_values(key: MeasureKey) -> tuple[Any, ...]:
    """The values of `KEY_COLUMNS`."""
    return tuple(getattr(key, column) for column in KEY_COLUMNS)
