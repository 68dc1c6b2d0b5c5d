"""Records and runs in one SQLite file."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from attrs import evolve, frozen

from autotune.errors import DatabaseDamaged, DatabaseError, InvalidValueError, UnknownNameError
from autotune.plugins.guarded_parts import create_held_part
from autotune.plugins.manager import manager
from autotune.store.database import Database, DatabaseContext, RecordFilter
from autotune.store.records import (
    RETRIABLE_STATUSES,
    RUN_STATUSES,
    Baseline,
    MeasureKey,
    Outcome,
    Record,
    Run,
)
from autotune.store.sqlite.encoding import (
    baseline_row,
    outcome_columns,
    read_baseline,
    read_record,
    read_run,
    record_row,
    run_row,
)
from autotune.store.sqlite.interned import KEY_EQUALS, Interned, key_values
from autotune.store.sqlite.migrations import current_digest
from autotune.store.sqlite.opening import (
    Warn,
    check_everything,
    connect,
    move_log_into_file,
    reporting,
)
from autotune.store.sqlite.rows import BrokenRow, Row, insert, replace, select, to_json_text

__all__ = ["SQLiteDatabase", "make_sqlite_database", "open_database"]

Value = TypeVar("Value")

_PAGE = 256
# What may be the name of a part; one letter is that of a disk elsewhere.
_PART = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")
# So many rows that are skipped are named.
_NAMED = 20
# After so many rounds of a run the file itself has what its log has: two waits for the disk.
_CHECKPOINTS_IN_LOG = 4
_NOT_RETRIABLE = f"status NOT IN {RETRIABLE_STATUSES}"
# The second half is what the index is of.
_DUPLICATES = "duplicate_of = ? AND duplicate_of <> ''"


def open_database(
    path: str | os.PathLike[str], *, read_only: bool = False, warn: Warn | None = None
) -> Database:
    """Open the database at ``path``, which is made if it does not exist.

    A damaged file that is opened for writing is moved aside, beside itself, and replaced by one
    with every record, baseline and run that can be read of it.

    Args:
        path: A file, or ``:memory:`` for a database that ends with the process. One of another
            kind is called ``NAME:PATH``, with the name of a plugin's database.
        read_only: Write nothing; the file must exist.
        warn: Called with one sentence on what was recovered and lost of a damaged file, and where
            that is; by default Python's ``warnings`` are.

    Raises:
        DatabaseError: the path cannot be used; says why and what to do. Nothing was written.
        UnknownNameError: it is ``NAME:PATH``, but there is no such database, nor such a file.
    """
    name, colon, rest = str(path).partition(":")
    known = manager().names("database")
    if not (colon and rest and name in known):
        if rest and _PART.fullmatch(name) and not Path(path).exists():
            raise UnknownNameError("database", name, known, f"A file of that name is './{path}'.")
        return SQLiteDatabase(path, read_only=read_only, warn=warn)
    context = DatabaseContext(path=rest, read_only=read_only, warn=warn)
    database: Database = create_held_part("database", name, context)
    return database


def make_sqlite_database(context: DatabaseContext) -> SQLiteDatabase:
    """The database ``sqlite``; see :class:`SQLiteDatabase`."""
    return SQLiteDatabase(context.path, read_only=context.read_only, warn=context.warn)


class SQLiteDatabase(Database):
    """SQLite file with a write-ahead log; every outcome is a transaction of its own.

    A commit waits until the disk has it. An object belongs to the thread that made it; any
    number of processes may each have one for the same file.

    Args:
        path: A file, or ``:memory:``.
        read_only: Write nothing; the file must exist.
        warn: Called with what was recovered of a damaged file; see `open_database`.

    Raises:
        DatabaseError: the path cannot be used; nothing was written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        warn: Warn | None = None,
    ) -> None:
        self._location = os.fspath(path)
        self._warn = warn or _warn
        self._problems: list[str] = []
        self._skipped: set[str] = set()
        # What a reader is warned of is left as it is.
        warn_of = self._report if read_only else self._warn
        self._connection = connect(path, read_only=read_only, warn=warn_of)
        self._interned = Interned(self._connection)
        self._checkpoints = 0

    @property
    def location(self) -> str:
        return self._location

    def close(self) -> None:
        with reporting(self._location):
            self._connection.close()

    def append_record(self, record: Record) -> int:
        with self._transaction():
            return insert(self._connection, "records", record_row(record, self._interned))

    def append_missing(self, records: Sequence[Record]) -> int:
        with self._transaction():
            return sum(map(self._add_if_missing, records))

    def _add_if_missing(self, record: Record) -> bool:
        identity: tuple[str, ...]
        if record.baseline:
            table, row = "baselines", self._baseline_row(Baseline.of(record))
            identity = ("workload", "key_id", "run_id", "outcome", "created")
            condition = (
                "workload = ? AND key_id = ? AND run_id = ? AND outcome = ? AND created = ?"
            )
        else:
            table, row = "records", record_row(record, self._interned)
            identity = ("candidate", "key_id", "run_id", "trial")
            condition = "candidate = ? AND key_id = ? AND +run_id = ? AND trial = ?"
        if self._select(table, f"{condition} LIMIT 1", tuple(row[name] for name in identity)):
            return False
        insert(self._connection, table, row)
        return True

    def _baseline_row(self, baseline: Baseline) -> Row:
        return baseline_row(baseline, self._interned.add_key(baseline.key))

    def amend(
        self, run_id: str, candidate: str, outcome: Outcome, key: MeasureKey | None = None
    ) -> None:
        with self._transaction():
            condition = f"run_id = ? AND +candidate = ? AND {TIMED_HERE}"
            own = self._select("records", condition, (run_id, candidate))
            if key is not None:
                key_id = self._interned.find_key(key)
                own = [row for row in own if row["key_id"] == key_id]
            if not own:
                raise DatabaseError(
                    f"database {self._location!r}: run {run_id!r} has no record of candidate "
                    f"{candidate!r}"
                )
            for row in own:
                replace(self._connection, "records", row, outcome_columns(outcome))
            keys = {row["key_id"] for row in own}
            for row in self._select("records", _DUPLICATES, (candidate,)):
                if row["key_id"] in keys:
                    changes = outcome_columns(_of_duplicate(outcome, row))
                    replace(self._connection, "records", row, changes)

    def records(self, where: RecordFilter | None = None) -> Iterator[Record]:
        condition = condition_of(self._present(where))
        last = 0
        while True:
            # Page by page, so that a reader that takes its time holds nothing up.
            rows = self._select(
                "records",
                f"{condition.text} AND id > ? ORDER BY id LIMIT ?",
                (*condition.values, last, _PAGE),
            )
            for row in rows:
                if (record := self._record(row)) is not None:
                    yield record
            if len(rows) < _PAGE:
                return
            last = rows[-1]["id"]

    def count(self, where: RecordFilter | None = None) -> int:
        condition = condition_of(self._present(where))
        query = f"SELECT count(*) FROM records WHERE {condition.text}"
        return int(self._query(query, condition.values)[0][0])

    def fastest_of_each(self, where: RecordFilter | None = None) -> list[Record]:
        where = self._present(where)
        found = [self._record(row) or self._next_best(row, where) for row in self._fastest(where)]
        return [record for record in found if record is not None]

    def lookup(self, candidate: str, key: MeasureKey) -> Record | None:
        row = self._latest({"candidate": candidate}, key, TIMED_HERE)
        record = None if row is None else self._record(row)
        if row is not None and record is not None and record.candidate.digest != candidate:
            # Another candidate's outcome would be taken for this one's.
            self._skip(f"row {row['id']} of records: it is found by another candidate")
            return None
        return record

    def lookup_program(self, program: str, workload: str, key: MeasureKey) -> Record | None:
        if not program:
            raise InvalidValueError("a program is looked up by its digest, which is not empty")
        rows = [
            self._latest(
                {"workload": workload, column: program},
                key,
                f"{column} <> '' AND duplicate_of = '' AND {TIMED_HERE}",
            )
            for column in ("lowered", "binary")
        ]
        found = [row for row in rows if row is not None]
        return self._record(max(found, key=lambda row: int(row["id"]))) if found else None

    def append_baseline(self, baseline: Baseline) -> None:
        with self._transaction():
            insert(self._connection, "baselines", self._baseline_row(baseline))

    def baselines(self, where: RecordFilter | None = None) -> list[Baseline]:
        condition = baselines_of(self._present(where))
        rows = self._select(
            "baselines", f"{condition.text} AND {_NOT_RETRIABLE}", condition.values
        )
        latest: dict[tuple[str, MeasureKey, str, bool], Baseline] = {}
        for row in sorted(rows, key=itemgetter("id")):
            found = self._read(partial(read_baseline, row, self._interned))
            if found is not None:
                place = (found.workload, found.key, found.name, found.outcome.imported)
                latest.pop(place, None)
                latest[place] = found
        return list(latest.values())

    def start_run(self, run: Run) -> None:
        _check_status(run.status)
        with self._transaction():
            if self._query("SELECT 1 FROM runs WHERE run_id = ?", (run.run_id,)):
                raise DatabaseError(
                    f"database {self._location!r}: there is a run {run.run_id!r} already"
                )
            insert(self._connection, "runs", run_row(run, self._interned))

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
            changes["checkpoint"] = to_json_text(dict(checkpoint))
        with self._transaction():
            replace(self._connection, "runs", self._run_row(run_id), changes)
        if checkpoint is not None:
            self._checkpoints += 1
            if self._checkpoints % _CHECKPOINTS_IN_LOG == 0:
                with reporting(self._location):
                    move_log_into_file(self._connection)

    def claim_run(self, run: Run, checkpoint: Mapping[str, Any]) -> bool:
        with self._transaction():
            row = self._run_row(run.run_id)
            state = None if run.checkpoint is None else to_json_text(dict(run.checkpoint))
            if (row["status"], row["checkpoint"]) != (run.status, state):
                return False
            changes = {"status": "running", "checkpoint": to_json_text(dict(checkpoint))}
            replace(self._connection, "runs", row, changes)
        return True

    def run(self, run_id: str) -> Run | None:
        return next(iter(self._runs("run_id = ?", run_id)), None)

    def find_run(self, identity: str) -> Run | None:
        found = self._runs("identity = ? ORDER BY id DESC LIMIT 1", identity)
        return next(iter(found), None)

    def runs(self, workload: str | None = None) -> list[Run]:
        if workload is None:
            return self._runs("TRUE ORDER BY id")
        return self._runs("workload = ? ORDER BY id", workload)

    def runs_of_network(self, network: str) -> Iterator[Run]:
        # The option as it is written. SQLite passes over states, most of a row, without reading.
        written = f'"network":{to_json_text(network)}'
        query = "SELECT id FROM runs WHERE instr(options, ?) ORDER BY id DESC"
        for row in self._query(query, (written,)):
            yield from (run for run in self._runs("id = ?", *row) if run.network == network)

    def check(self) -> None:
        with reporting(self._location):
            check_everything(self._connection)
        super().check()
        if self._problems:
            raise DatabaseDamaged(self._problems[0])

    def _report(self, problem: str) -> None:
        self._problems.append(problem)
        self._warn(problem)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with reporting(self._location):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # Whatever ends it, an interrupt too: what was written must not stay open.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _query(self, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        with reporting(self._location):
            return self._connection.execute(query, values).fetchall()

    def _present(self, where: RecordFilter | None) -> RecordFilter:
        """A filter whose digests, which an earlier version may have told, are those of today."""
        if where is None:
            return RecordFilter()
        with reporting(self._location):
            workload, candidate = (
                None if digest is None else current_digest(self._connection, digest)
                for digest in (where.workload, where.candidate)
            )
        return evolve(where, workload=workload, candidate=candidate)

    def _select(self, table: str, condition: str, values: tuple[Any, ...] = ()) -> list[Row]:
        with reporting(self._location):
            return select(self._connection, table, condition, values)

    def _fastest(self, where: RecordFilter) -> list[Row]:
        """The fastest rows of each workload under each key, in the order of their numbers."""
        if where.status not in (None, "ok"):
            return []
        query = fastest_of_each(where)
        numbers = sorted(row[0] for row in self._query(query.text, query.values) if row[0])
        return [row for number in numbers for row in self._select("records", "id = ?", (number,))]

    def _latest(self, equal: Mapping[str, str], key: MeasureKey, also: str) -> Row | None:
        """The most recent record's row that is not retriable."""
        with reporting(self._location):
            key_id = self._interned.find_key(key)
            if key_id is None:
                return None
            condition = " AND ".join(f"{column} = ?" for column in equal)
            rows = select(
                self._connection,
                "records",
                f"{condition} AND key_id = ? AND {also} AND {_NOT_RETRIABLE} "
                "ORDER BY id DESC LIMIT 1",
                (*equal.values(), key_id),
            )
            for row in rows:
                # A damaged index may lead to another row.
                if any(row[column] != value for column, value in equal.items()):
                    raise sqlite3.DatabaseError("an index of records leads to another row")
        return rows[0] if rows else None

    def _run_row(self, run_id: str) -> Row:
        rows = self._select("runs", "run_id = ?", (run_id,))
        if not rows:
            raise DatabaseError(f"database {self._location!r}: there is no run {run_id!r}")
        return rows[0]

    def _next_best(self, broken: Row, where: RecordFilter) -> Record | None:
        """The best of a workload under a key where the fastest row is none of a record."""
        condition = condition_of(where)
        for page in itertools.count():
            rows = self._select(
                "records",
                f"{condition.text} AND workload = ? AND key_id = ? AND +status = 'ok' "
                f"ORDER BY {RANK} LIMIT ? OFFSET ?",
                (*condition.values, broken["workload"], broken["key_id"], _PAGE, page * _PAGE),
            )
            found = (self._record(row) for row in rows)
            if (record := next(filter(None, found), None)) is not None or len(rows) < _PAGE:
                return record
        raise AssertionError("pages do not end")

    def _record(self, row: Row) -> Record | None:
        return self._read(lambda: read_record(row, self._interned))

    def _runs(self, condition: str, *values: Any) -> list[Run]:
        rows = self._select("runs", condition, values)
        found = [self._read(partial(read_run, row, self._interned)) for row in rows]
        return [run for run in found if run is not None]

    def _read(self, read: Callable[[], Value]) -> Value | None:
        """Read a row; None where the row has what no record has, which is said."""
        try:
            return read()
        except BrokenRow as error:
            self._skip(str(error))
            return None
        except (sqlite3.Error, UnicodeDecodeError):
            with reporting(self._location):
                raise

    def _skip(self, problem: str) -> None:
        """Say once that a row is passed over; of very many rows, how many are not named."""
        if problem in self._skipped:
            return
        self._skipped.add(problem)
        if len(self._skipped) <= _NAMED:
            self._report(f"database {self._location!r} is not as it was made: {problem}; skipped")
        elif len(self._skipped) == _NAMED + 1:
            self._report(f"database {self._location!r}: more rows are skipped and not named")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def _of_duplicate(outcome: Outcome, row: Row) -> Outcome:
    """The outcome of another candidate with the same program."""
    return evolve(
        outcome, lowered=row["lowered"], binary=row["binary"], duplicate_of=row["duplicate_of"]
    )


def _check_status(status: str) -> None:
    if status not in RUN_STATUSES:
        raise InvalidValueError(f"no run is {status!r}; statuses: {', '.join(RUN_STATUSES)}")


# A filter is a condition on the rows of `records`. The plus signs keep SQLite from using the
# index of such a column: rows are read in the order of their numbers, page by page. Only a
# candidate has so few records that its index is better than any order.
_OF_NAMED_WORKLOAD = (
    "sketch_id IN (SELECT sketches.id FROM sketches JOIN workloads "
    "ON workloads.id = workload_id WHERE workloads.name = ?)"
)
# Few rows have these; the fastest that lacks them is among the first of the index.
# A row of others may have no JSON at all.
_GIVEN = "CASE WHEN json_valid(outcome) THEN json_extract(outcome, '$.{}') END"
_IMPORTED = _GIVEN.format("imported")
_BEATEN = _GIVEN.format("beaten_by")
TIMED_HERE = f"{_IMPORTED} IS NULL"
"""The condition on rows of ``records`` that were timed here, and not imported."""

RANK = f"{_IMPORTED} IS NOT NULL, {_BEATEN} IS NOT NULL, latency, id"
"""Order of rows of valid records, the best first."""


@frozen
class Condition:
    """A WHERE clause, and the values of its placeholders."""

    text: str
    values: tuple[Any, ...]


def condition_of(where: RecordFilter) -> Condition:
    """The condition on rows of ``records``."""
    given = {
        "candidate = ?": where.candidate,
        "+workload = ?": where.workload,
        "run_id = ?" if where.candidate is None else "+run_id = ?": where.run_id,
        "+status = ?": where.status,
        _OF_NAMED_WORKLOAD: where.workload_name,
    }
    parts = {text: value for text, value in given.items() if value is not None}
    keys = _keys(where)
    texts = [*parts, *_origin(where), *([f"+key_id IN ({keys.text})"] if keys.values else [])]
    return Condition(" AND ".join(texts) or "TRUE", (*parts.values(), *keys.values))


def _origin(where: RecordFilter) -> list[str]:
    if where.imported is None:
        return []
    return [f"{_IMPORTED} IS NOT NULL" if where.imported else TIMED_HERE]


def baselines_of(where: RecordFilter) -> Condition:
    """The condition on rows of ``baselines``; what is said of candidates is left out."""
    given = {
        "workload = ?": where.workload,
        "+run_id = ?": where.run_id,
        "workload IN (SELECT digest FROM workloads WHERE name = ?)": where.workload_name,
    }
    parts = {text: value for text, value in given.items() if value is not None}
    keys = _keys(where)
    texts = [*parts, *([f"key_id IN ({keys.text})"] if keys.values else [])]
    return Condition(" AND ".join(texts) or "TRUE", (*parts.values(), *keys.values))


def fastest_of_each(where: RecordFilter) -> Condition:
    """A query for the numbers of the fastest records of each workload under each key.

    Those that were timed here come first, and of these those that nobody has beaten. Only records
    of a run or of a candidate are read through; otherwise the index has each of them first. Where
    a workload has no such record under a key, the number is NULL.
    """
    if where.run_id is not None or where.candidate is not None:
        condition = condition_of(where)
        text = (
            "SELECT id FROM (SELECT id, row_number() OVER "
            f"(PARTITION BY workload, key_id ORDER BY {RANK}) AS place "
            f"FROM records WHERE status = 'ok' AND {condition.text}) WHERE place = 1"
        )
        return Condition(text, condition.values)
    named = "" if where.workload_name is None else f"AND {_OF_NAMED_WORKLOAD} "
    names = () if where.workload_name is None else (where.workload_name,)
    if where.workload is not None:
        workloads = Condition("SELECT ? AS digest", (where.workload,))
    elif where.workload_name is not None:
        workloads = Condition("SELECT DISTINCT digest FROM workloads WHERE name = ?", names)
    else:
        workloads = Condition("SELECT DISTINCT digest FROM workloads", ())
    keys = _keys(where)
    wishes = (f"{TIMED_HERE} AND {_BEATEN} IS NULL", TIMED_HERE, "TRUE")
    origin = "".join(f"AND {text} " for text in _origin(where))
    tried = [
        "(SELECT id FROM records WHERE workload = wanted.digest AND key_id = wanted_keys.id "
        f"AND status = 'ok' {named}{origin}AND {wish} ORDER BY latency, id LIMIT 1)"
        for wish in wishes
    ]
    text = (
        f"SELECT coalesce({', '.join(tried)}) "
        f"FROM ({workloads.text}) AS wanted, ({keys.text}) AS wanted_keys"
    )
    return Condition(text, (*names * len(tried), *workloads.values, *keys.values))


def _keys(where: RecordFilter) -> Condition:
    """A query for the numbers of the measure keys that a filter allows."""
    given = {
        "target = ?": where.target,
        "backend = ?": where.backend,
        "threads = ?": where.threads,
        "protocol = ?": where.protocol,
    }
    parts = {text: value for text, value in given.items() if value is not None}
    texts, values = list(parts), tuple(parts.values())
    if where.key is not None:
        texts.append(KEY_EQUALS)
        values += key_values(where.key)
    text = f"SELECT id FROM measure_keys WHERE {' AND '.join(texts) or 'TRUE'}"
    return Condition(text, values)
