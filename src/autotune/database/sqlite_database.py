"""Records and runs in one SQLite file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.database.database import Database, RecordFilter
from autotune.database.opening import connect, reporting
from autotune.errors import DatabaseError, InvalidValueError
from autotune.records import RUN_STATUSES, MeasureKey, Outcome, Record, Run
from autotune.sketches import Candidate, Sketch
from autotune.workloads import Workload

_PAGE = 256
_RETRIABLE = "('crash', 'timeout')"
_KEY_COLUMNS = ("target", "backend", "backend_version", "compiler_version", "threads", "protocol")
_KEY = ", ".join(f"measure_keys.{column}" for column in _KEY_COLUMNS)
_SELECT = f"""
    SELECT records.id, run_id, trial, sketch_id, config, targets.content, space, outcome, created,
           elapsed, {_KEY}
    FROM records
    JOIN measure_keys ON measure_keys.id = records.key_id
    JOIN targets ON targets.id = records.target_id
"""
_SELECT_RUN = f"""
    SELECT run_id, identity, workload, space, strategy, options, seed, trials, status, created,
           checkpoint, {_KEY}
    FROM runs JOIN measure_keys ON measure_keys.id = runs.key_id
"""


def open_database(path: str | os.PathLike[str], *, read_only: bool = False) -> Database:
    """Open the database at ``path``, which is made if it does not exist.

    Args:
        path: A file, or ``:memory:`` for a database that ends with the process.
        read_only: Write nothing; the file must exist.

    Raises:
        DatabaseError: the path cannot be used; says why and what to do. Nothing was written.
    """
    return SQLiteDatabase(path, read_only=read_only)


class SQLiteDatabase(Database):
    """One SQLite file, with a write-ahead log; every outcome is a transaction of its own.

    A commit waits until the disk has it. An object belongs to the thread that made it; any
    number of processes may each have one for the same file.

    Args:
        path: A file, or ``:memory:``.
        read_only: Write nothing; the file must exist.

    Raises:
        DatabaseError: the path cannot be used; nothing was written.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self._location = os.fspath(path)
        self._connection = connect(path, read_only=read_only)
        self._sketches: dict[int, Sketch] = {}

    @property
    def location(self) -> str:
        return self._location

    def close(self) -> None:
        with reporting(self._location):
            self._connection.close()

    def append_record(self, record: Record) -> int:
        sketch = record.candidate.sketch
        outcome = record.outcome
        with self._transaction():
            row = {
                "run_id": record.run_id,
                "trial": record.trial,
                "workload": sketch.workload.digest,
                "candidate": record.candidate.digest,
                "sketch_id": self._sketch_id(sketch),
                "config": _json(list(record.candidate.values)),
                "key_id": self._key_id(record.key),
                "target_id": self._intern("targets", dict(record.target)),
                "space": record.space,
                "status": outcome.status,
                "latency": outcome.latency,
                "outcome": _json(outcome.to_json()),
                "created": record.created,
                "elapsed": record.elapsed,
            }
            return self._insert("records", row)

    def records(self, where: RecordFilter | None = None) -> Iterator[Record]:
        condition, values = _condition(where)
        last = 0
        while True:
            # Page by page, so that a reader that takes its time holds nothing up.
            query = f"{_SELECT} WHERE {condition} AND records.id > ? ORDER BY records.id LIMIT ?"
            rows = self._rows(query, (*values, last, _PAGE))
            for row in rows:
                yield self._record(row)
            if len(rows) < _PAGE:
                return
            last = rows[-1][0]

    def count(self, where: RecordFilter | None = None) -> int:
        condition, values = _condition(where)
        rows = self._rows(
            "SELECT count(*) FROM records "
            f"JOIN measure_keys ON measure_keys.id = records.key_id WHERE {condition}",
            values,
        )
        return int(rows[0][0])

    def best(self, where: RecordFilter) -> Record | None:
        condition, values = _condition(where)
        rows = self._rows(
            f"{_SELECT} WHERE {condition} AND records.status = 'ok' "
            "ORDER BY records.latency, records.id LIMIT 1",
            values,
        )
        return self._record(rows[0]) if rows else None

    def lookup(self, candidate: str, key: MeasureKey) -> Record | None:
        rows = self._rows(
            f"{_SELECT} WHERE candidate = ? AND {_KEY_EQUALS} AND status NOT IN {_RETRIABLE} "
            "ORDER BY records.id DESC LIMIT 1",
            (candidate, *_key_values(key)),
        )
        return self._record(rows[0]) if rows else None

    def append_baseline(
        self, run_id: str, workload: str, key: MeasureKey, outcome: Outcome, created: float
    ) -> None:
        with self._transaction():
            row = {
                "run_id": run_id,
                "workload": workload,
                "key_id": self._key_id(key),
                "status": outcome.status,
                "outcome": _json(outcome.to_json()),
                "created": created,
            }
            self._insert("baselines", row)

    def baseline(self, workload: str, key: MeasureKey) -> Outcome | None:
        rows = self._rows(
            "SELECT outcome FROM baselines JOIN measure_keys ON measure_keys.id = key_id "
            f"WHERE workload = ? AND {_KEY_EQUALS} AND status NOT IN {_RETRIABLE} "
            "ORDER BY baselines.id DESC LIMIT 1",
            (workload, *_key_values(key)),
        )
        return Outcome.from_json(json.loads(rows[0][0])) if rows else None

    def start_run(self, run: Run) -> None:
        _check_status(run.status)
        with self._transaction():
            if self._rows("SELECT 1 FROM runs WHERE run_id = ?", (run.run_id,)):
                raise DatabaseError(
                    f"database {self._location!r}: there is a run {run.run_id!r} already"
                )
            row = {
                "run_id": run.run_id,
                "identity": run.identity,
                "workload": run.workload,
                "key_id": self._key_id(run.key),
                "space": run.space,
                "strategy": run.strategy,
                "options": _json(dict(run.options)),
                "seed": run.seed,
                "trials": run.trials,
                "status": run.status,
                "created": run.created,
                "checkpoint": None if run.checkpoint is None else _json(dict(run.checkpoint)),
            }
            self._insert("runs", row)

    def update_run(
        self,
        run_id: str,
        *,
        status: str | None = None,
        trials: int | None = None,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:
        changes: dict[str, Any] = {}
        if status is not None:
            _check_status(status)
            changes["status"] = status
        if trials is not None:
            changes["trials"] = trials
        if checkpoint is not None:
            changes["checkpoint"] = _json(dict(checkpoint))
        # Also without changes: that the run exists is checked.
        assignments = ", ".join(f"{column} = ?" for column in changes) or "run_id = run_id"
        with self._transaction():
            cursor = self._connection.execute(
                f"UPDATE runs SET {assignments} WHERE run_id = ?", (*changes.values(), run_id)
            )
            if cursor.rowcount == 0:
                raise DatabaseError(f"database {self._location!r}: there is no run {run_id!r}")

    def run(self, run_id: str) -> Run | None:
        rows = self._rows(f"{_SELECT_RUN} WHERE run_id = ?", (run_id,))
        return _run(rows[0]) if rows else None

    def find_run(self, identity: str) -> Run | None:
        rows = self._rows(
            f"{_SELECT_RUN} WHERE identity = ? ORDER BY runs.id DESC LIMIT 1", (identity,)
        )
        return _run(rows[0]) if rows else None

    def runs(self, workload: str | None = None) -> list[Run]:
        condition = "TRUE" if workload is None else "workload = ?"
        values = () if workload is None else (workload,)
        rows = self._rows(f"{_SELECT_RUN} WHERE {condition} ORDER BY runs.id", values)
        return [_run(row) for row in rows]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with reporting(self._location):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _rows(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with reporting(self._location):
            return self._connection.execute(query, values).fetchall()

    def _insert(self, table: str, row: Mapping[str, Any]) -> int:
        marks = ", ".join("?" * len(row))
        cursor = self._connection.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())
        )
        return int(cursor.lastrowid or 0)

    def _sketch_id(self, sketch: Sketch) -> int:
        workload = sketch.workload
        columns = {"digest": workload.digest, "name": workload.name}
        workload_id = self._intern("workloads", workload.to_json(), columns)
        # The same steps over the same computation under another name are another row.
        content = {"workload": workload_id, **sketch.to_json()}
        return self._intern("sketches", content, {"workload_id": workload_id})

    def _key_id(self, key: MeasureKey) -> int:
        values = _key_values(key)
        rows = self._rows(f"SELECT id FROM measure_keys WHERE {_KEY_EQUALS}", values)
        if rows:
            return int(rows[0][0])
        return self._insert("measure_keys", dict(zip(_KEY_COLUMNS, values, strict=True)))

    def _intern(
        self, table: str, content: Mapping[str, Any], columns: Mapping[str, Any] | None = None
    ) -> int:
        """The row of ``table`` with this content, which is added if it is not there."""
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        rows = self._rows(f"SELECT id FROM {table} WHERE content_digest = ?", (digest,))
        if rows:
            return int(rows[0][0])
        row = {"content_digest": digest, "content": _json(content), **(columns or {})}
        return self._insert(table, row)

    def _sketch(self, sketch_id: int) -> Sketch:
        if sketch_id not in self._sketches:
            rows = self._rows(
                "SELECT sketches.content, workloads.content FROM sketches "
                "JOIN workloads ON workloads.id = workload_id WHERE sketches.id = ?",
                (sketch_id,),
            )
            content, workload = (json.loads(text) for text in rows[0])
            self._sketches[sketch_id] = Sketch.from_json(content, Workload.from_json(workload))
        return self._sketches[sketch_id]

    def _record(self, row: tuple[Any, ...]) -> Record:
        _, run_id, trial, sketch_id, config, target, space, outcome, created, elapsed, *key = row
        try:
            return Record(
                run_id,
                trial,
                Candidate(self._sketch(sketch_id), tuple(json.loads(config))),
                MeasureKey(*key),
                json.loads(target),
                space,
                Outcome.from_json(json.loads(outcome)),
                created,
                elapsed,
            )
        except (ValueError, IndexError, InvalidValueError) as error:
            raise DatabaseError(
                f"database {self._location!r}: record {row[0]} cannot be read: {error}"
            ) from error


_KEY_EQUALS = " AND ".join(f"measure_keys.{column} = ?" for column in _KEY_COLUMNS)


def _key_values(key: MeasureKey) -> tuple[Any, ...]:
    return tuple(getattr(key, column) for column in _KEY_COLUMNS)


def _condition(where: RecordFilter | None) -> tuple[str, tuple[Any, ...]]:
    """An SQL condition on records joined with measure keys, and its values."""
    where = where or RecordFilter()
    parts: dict[str, Any] = {
        "records.workload = ?": where.workload,
        "measure_keys.target = ?": where.target,
        "measure_keys.backend = ?": where.backend,
        "measure_keys.threads = ?": where.threads,
        "measure_keys.protocol = ?": where.protocol,
        "records.run_id = ?": where.run_id,
        "records.status = ?": where.status,
        "records.sketch_id IN (SELECT sketches.id FROM sketches JOIN workloads "
        "ON workloads.id = workload_id WHERE workloads.name = ?)": where.workload_name,
    }
    wanted = {part: value for part, value in parts.items() if value is not None}
    conditions, values = list(wanted), tuple(wanted.values())
    if where.key is not None:
        conditions.append(_KEY_EQUALS)
        values += _key_values(where.key)
    return " AND ".join(conditions) or "TRUE", values


def _run(row: tuple[Any, ...]) -> Run:
    (run_id, identity, workload, space, strategy, options, seed, trials, status, created) = row[
        :10
    ]
    checkpoint, *key = row[10:]
    return Run(
        run_id,
        identity,
        workload,
        MeasureKey(*key),
        space,
        strategy,
        json.loads(options),
        seed,
        trials,
        status,
        created,
        None if checkpoint is None else json.loads(checkpoint),
    )


def _check_status(status: str) -> None:
    if status not in RUN_STATUSES:
        raise InvalidValueError(f"no run is {status!r}; statuses: {', '.join(RUN_STATUSES)}")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
