"""Recovery: a damaged file is moved aside, and a new one gets all that is readable.

A kill at any moment leaves the damaged file or the new one in place, never neither: the new file
is complete before the first step, and the next opener finishes what was begun.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import itertools
import json
import os
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from attrs import frozen

from autotune.errors import DatabaseError
from autotune.store.sqlite.encoding import read_baseline, read_record, read_run
from autotune.store.sqlite.guard import definitions, our_schema, restrict_to_reading
from autotune.store.sqlite.interned import Interned
from autotune.store.sqlite.migrations import MIGRATIONS, migrate, redigest
from autotune.store.sqlite.rows import NotUnderstood, Row, checked_row, put, select, to_json_text
from autotune.store.sqlite.schema import (
    COLUMNS,
    DAMAGE_NOTE,
    SCHEMA_VERSION,
    SHARED_TABLES,
    beside,
)
from autotune.store.sqlite.write_ahead_log import LogDamage, log_damage, mended_log

__all__ = [
    "Recovery",
    "alone",
    "finish",
    "has_sound_rows",
    "identity_of",
    "is_begun",
    "is_open_elsewhere",
    "is_open_here",
    "recover",
]

# Where SQLite locks a file for reading as long as it has it open with a write-ahead log.
_SHARED_BYTES = (510, 0x40000002)
# ``struct flock`` of Linux: kind, origin, start, length, process.
_LOCK = "hhqqi"
_PAUSE = 0.02
_DAMAGED = (
    "the file is damaged, and another process has it open; end that one, then repeat the command"
)
# A file of this program has rows in its first pages.
_SEARCHED_BYTES = 4 << 20


@frozen
class Recovery:
    """The recovery of a damaged file.

    Attributes:
        path: The file, which is sound now.
        quarantine: Where the damaged one is.
        records: Records that could be read.
        runs: Runs that could be read.
        baselines: Baselines that could be read.
        lost: How many records, runs and baselines could not be read, as far as their numbers
            tell; None where what is left does not say how many there were.
        log: What is wrong with the log, if anything.
    """

    path: str
    quarantine: str
    records: int
    runs: int
    baselines: int
    lost: Mapping[str, int] | None
    log: LogDamage | None = None

    def __str__(self) -> str:
        log = "" if self.log is None else f" ({self.log.reason})"
        return (
            f"database {self.path!r} was damaged{log}: {self.records} records, "
            f"{self.runs} runs and {self.baselines} baselines were recovered, "
            f"{self._missing()}; the damaged file is {self.quarantine!r}"
        )

    def _missing(self) -> str:
        if self.lost is None:
            return "and how many are lost is not known"
        counts = [f"{count} {table}" for table, count in self.lost.items() if count]
        return f"at least {' and '.join(counts)} are lost" if counts else "no record is missed"


def has_sound_rows(path: Path) -> bool:
    """Tell if a file has rows that this program has written, whatever else is wrong with it."""
    with path.open("rb") as file:
        data = file.read(_SEARCHED_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        found = _salvaged(Path(folder) / "copy.db", data, _logs_of(path))
    return any(found.rows.values())


def recover(
    path: Path, identity: tuple[int, int], wait: float, check: Callable[[Path], None]
) -> Recovery | None:
    """Move a damaged file aside and put what can be read of it into a new one.

    Args:
        path: The file.
        identity: Device and number of the file that was found damaged.
        wait: Seconds to wait for others to close it.
        check: Raises when a file, of which nobody else knows, is damaged. What was found while
            others used the file counts for nothing; a copy is judged while nobody does.

    Returns:
        What happened; None when the file is sound, or another process has replaced it meanwhile.

    Raises:
        DatabaseError: another process has the file open; nothing was changed.
        sqlite3.Error: the new file cannot be written; nothing was changed.
        OSError: likewise.
    """
    with alone(path, wait):
        if identity_of(path) != identity:
            return None
        with path.open("r+b") as file:
            _lock(file.fileno(), path, wait)
            data, logs, log = file.read(), _logs_of(path), log_damage(path)
            if log is None and _is_sound(path, data, logs, check):
                return None
            rows, newest = _salvaged(beside(path, "-recovering"), data, logs)
            counts = _write_complete(_with_copies(rows), path)
            quarantine = _exchange(path)
    numbered = {table: counts[table] for table in ("records", "runs", "baselines")}
    lost = _lost(rows, newest, numbered, log is None or log.whole)
    return Recovery(str(path), str(quarantine), **numbered, lost=lost, log=log)


def _lost(
    rows: Rows, newest: Mapping[str, int] | None, counts: Mapping[str, int], whole: bool
) -> dict[str, int] | None:
    """Number of lost rows of each table, at least; None where that cannot be known.

    Nothing is lost where the numbers that SQLite has noted are those of the newest rows, and all
    before them are there. Where it has noted none, or the log was cut short, that proves nothing.
    """
    newest = newest or {}
    found = {
        table: max([newest.get(table, 0), *rows[table]]) - count for table, count in counts.items()
    }
    agrees = all(newest.get(table, 0) == max(rows[table], default=0) for table in counts)
    is_known = any(found.values()) or (whole and bool(newest) and agrees)
    return found if is_known else None


def finish(path: Path, wait: float) -> None:
    """Finish a recovery whose process was killed, if there is one."""
    if is_begun(path):
        with alone(path, wait):
            if is_begun(path):
                _exchange(path)


def is_begun(path: Path) -> bool:
    """Return whether a new file is complete and not in place yet."""
    return beside(path, "-recovered").exists()


def is_open_here(path: Path) -> bool:
    """Return whether this process has the file open, with another connection for instance."""
    identity = identity_of(path)
    for descriptor in os.listdir("/dev/fd"):
        # The folder itself was among them and is closed again.
        with contextlib.suppress(OSError):
            status = os.fstat(int(descriptor))
            if (status.st_dev, status.st_ino) == identity:
                return True
    return False


def is_open_elsewhere(path: Path) -> bool:
    """Return whether another process has the file open.

    This process must not have it open: looking gives up its locks.
    """
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _SHARED_BYTES[1], _SHARED_BYTES[0], 0)
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, asked)
    except OSError:
        # A file system without locks does not tell.
        return True
    return bool(struct.unpack(_LOCK, answer)[0] != fcntl.F_UNLCK)


def identity_of(path: Path) -> tuple[int, int]:
    """Device and number of a file; zeros where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _logs_of(path: Path) -> dict[str, bytes]:
    """The logs beside a file, by suffix, with all that was written to them."""
    found: dict[str, bytes] = {}
    for suffix in ("-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            found[suffix] = beside(path, suffix).read_bytes()
    if "-wal" in found:
        found["-wal"] = mended_log(found["-wal"])
    return found


@contextlib.contextmanager
def alone(path: Path, wait: float, why: str = _DAMAGED) -> Iterator[None]:
    """Only one process at a time recovers files of a folder, or brings them up to date.

    Args:
        path: The file.
        wait: Seconds to wait for another process.
        why: What the error says.

    Raises:
        DatabaseError: another process does so all that time.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _wait_for(lambda: fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB), path, wait, why)
        yield
    finally:
        os.close(folder)


def _lock(descriptor: int, path: Path, wait: float) -> None:
    """Keep others from opening the file, once no process has it open."""
    _wait_for(
        lambda: fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, *_SHARED_BYTES), path, wait
    )


def _wait_for(lock: Callable[[], None], path: Path, wait: float, why: str = _DAMAGED) -> None:
    end = time.monotonic() + wait
    while True:
        try:
            return lock()
        except (BlockingIOError, PermissionError):
            if time.monotonic() > end:
                raise DatabaseError(f"database {str(path)!r}: {why}") from None
        time.sleep(_PAUSE)


@contextlib.contextmanager
def _copied(copy: Path, data: bytes, logs: Mapping[str, bytes]) -> Iterator[Path]:
    """A file and its logs; SQLite would give up our locks of the file itself on closing it."""
    try:
        for suffix, content in {"": data, **logs}.items():
            beside(copy, suffix).write_bytes(content)
        yield copy
    finally:
        _remove(copy)


def _is_sound(
    path: Path, data: bytes, logs: Mapping[str, bytes], check: Callable[[Path], None]
) -> bool:
    """Return whether there is no damage."""
    try:
        with _copied(beside(path, "-recovering"), data, logs) as copy:
            check(copy)
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    except DatabaseError:
        # It is sound, and cannot be used; the next opening of the file itself says why.
        return True
    return True


def _salvaged(copy: Path, data: bytes, logs: Mapping[str, bytes]) -> Salvaged:
    """Rows of a file as SQLite reads it, and of one whose tables are where new ones are."""
    rows: Rows = {table: {} for table in COLUMNS}
    newest: dict[str, int] | None = None
    # Rows of the first version have no checksums to tell sound ones by.
    new = (with_new_schema(data, version) for version in range(2, SCHEMA_VERSION + 1))
    for content in (*new, data):
        with _copied(copy, content, logs):
            found = salvage(copy)
        for table in COLUMNS:
            rows[table].update(found.rows[table])
        if found.newest is not None:
            newest = {**(newest or {}), **found.newest}
    return Salvaged(rows, newest)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        beside(path, suffix).unlink(missing_ok=True)


def _exchange(path: Path) -> Path:
    """Put the new file in place, which stands beside it; returns where the damaged one is.

    It may be repeated from any point: the new file under its own name says that there is
    something left to do, and moving it is the last step.
    """
    quarantine = _quarantine_of(path)
    if path.exists() and not quarantine.exists():
        os.link(path, quarantine)
    # A log left behind would be taken for the new file's.
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(beside(path, suffix), beside(quarantine, suffix))
    beside(path, DAMAGE_NOTE).unlink(missing_ok=True)
    _flush_folder(path.parent)
    os.replace(beside(path, "-recovered"), path)
    _flush_folder(path.parent)
    return quarantine


def _quarantine_of(path: Path) -> Path:
    """A new name, or the one that the file has got before its process was killed."""
    for other in sorted(path.parent.glob(f"{glob.escape(path.name)}.corrupt-*")):
        if path.exists() and other.samefile(path):
            return other
    stem = f"{path.name}.corrupt-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(other for name in names if not (other := path.with_name(name)).exists())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _with_copies(rows: Rows) -> Rows:
    """Fill in lost rows that others refer to from their copies, and copy those without one."""
    copies: dict[str, dict[int, Row]] = {table: {} for table in SHARED_TABLES}
    for copy in rows["copies"].values():
        row = dict(zip(COLUMNS[copy["origin"]], json.loads(copy["content"]), strict=True))
        copies[copy["origin"]][row["id"]] = row
    shared = {table: {**copies[table], **rows[table]} for table in SHARED_TABLES}
    contents = [
        {"origin": table, "content": to_json_text(list(row.values()))}
        for table, content in shared.items()
        for row in content.values()
    ]
    numbered = {number: {"id": number, **row} for number, row in enumerate(contents, 1)}
    return {**rows, **shared, "copies": numbered}


def _write_complete(rows: Rows, path: Path) -> dict[str, int]:
    """Put a complete new file beside ``path``; or nothing, where there is no room for it."""
    growing = beside(path, "-recovering")
    try:
        counts = _write(rows, growing)
        os.replace(growing, beside(path, "-recovered"))
    finally:
        _remove(growing)
    return counts


def _write(rows: Rows, path: Path) -> dict[str, int]:
    """Make a file of the rows that lack nothing; returns how many, by table."""
    _remove(path)
    readers: dict[str, Callable[[Row, Interned], object]] = {
        "sketches": lambda row, interned: interned.row("workloads", row["workload_id"]),
        "records": read_record,
        "baselines": read_baseline,
        "runs": read_run,
    }
    counts = dict.fromkeys(COLUMNS, 0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        migrate(connection)
        interned = Interned(connection)
        # What others refer to comes first in the order of the tables.
        for table in COLUMNS:
            read = readers.get(table, lambda row, interned: None)
            for _, row in sorted(rows[table].items()):
                if _can(read, row, interned) and _holds(connection, table, row):
                    counts[table] += 1
        # The damaged file may have been one of an earlier version.
        redigest(connection)
        connection.execute("COMMIT")
    return counts


def _holds(connection: sqlite3.Connection, table: str, row: Row) -> bool:
    """Put a row into the new file, unless it would come back as another: a number as a text."""
    put(connection, table, row)
    try:
        select(connection, table, "id = ?", (row["id"],))
    except sqlite3.DatabaseError:
        connection.execute(f"DELETE FROM {table} WHERE id = ?", (row["id"],))
        return False
    return True


def _can(read: Callable[[Row, Interned], object], row: Row, interned: Interned) -> bool:
    """Return whether a row has all that it refers to, understood here or not."""
    try:
        read(row, interned)
    except NotUnderstood:
        return True
    except sqlite3.DatabaseError:
        return False
    return True


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
