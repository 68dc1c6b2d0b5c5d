"""Digests of earlier versions, which covered names, replaced by those of today.

What was told an earlier digest still finds the record: the file keeps which one became which.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Sketch
from autotune.store.sqlite.interned import Interned
from autotune.store.sqlite.rows import Row, insert, read_json, replace, select, to_json_text
from autotune.store.sqlite.schema import COLUMNS

__all__ = ["current_digest", "redigest"]

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
