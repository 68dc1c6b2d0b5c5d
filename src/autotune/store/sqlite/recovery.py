"""A damaged file moved aside, and a new one with what could be read of it.

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
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from autotune.errors import DatabaseError
from autotune.store.sqlite.encoding import NotUnderstood, read_outcome, read_record, read_run
from autotune.store.sqlite.interned import Interned
from autotune.store.sqlite.migrations import migrate
from autotune.store.sqlite.pages import PAGE_SIZES, Value, apply_log, page_size_of, read_rows
from autotune.store.sqlite.rows import Row, put, to_json_text
from autotune.store.sqlite.schema import COLUMNS, REAL_COLUMNS, SHARED_TABLES, row_checksum

__all__ = [
    "Recovery",
    "finish",
    "has_sound_rows",
    "identity_of",
    "is_begun",
    "is_open_here",
    "recover",
]

Rows = dict[str, dict[int, Row]]
"""Rows by table and number."""

RawRow = tuple[int, list[Value]]
"""The number and the values of a row in a file."""

# Where SQLite locks a file for reading as long as it has it open with a write-ahead log.
_SHARED_BYTES = (510, 0x40000002)
_PAUSE = 0.02
# A file of this program has rows in its first pages.
_SEARCHED_BYTES = 4 << 20


@frozen
class Recovery:
    """What became of a damaged file.

    Attributes:
        path: The file, which is sound now.
        quarantine: Where the damaged one is.
        records: Records that could be read.
        lost: Records that could not be, as far as numbers of records tell.
        runs: Runs that could be read.
        baselines: Baselines that could be read.
    """

    path: str
    quarantine: str
    records: int
    lost: int
    runs: int
    baselines: int

    def __str__(self) -> str:
        lost = f"at least {self.lost} records are lost" if self.lost else "no record is missed"
        return (
            f"database {self.path!r} was damaged: {self.records} records, {self.runs} runs and "
            f"{self.baselines} baselines were recovered, {lost}; the damaged file is "
            f"{self.quarantine!r}"
        )


def has_sound_rows(path: Path) -> bool:
    """Whether a file has rows that this program has written, whatever else is wrong with it."""
    with path.open("rb") as file:
        data = file.read(_SEARCHED_BYTES)
    log = _bytes_beside(path, "-wal")
    return any(True for _ in _sound_rows(_raw_rows(data, log)))


def recover(
    path: Path, identity: tuple[int, int], wait: float, check: Callable[[Path], None]
) -> Recovery | None:
    """Move a damaged file aside and put what can be read of it into a new one.

    Args:
        path: The file.
        identity: Device and number of the file that was found damaged.
        wait: Seconds to wait for others to let go of it.
        check: Raises when a file, of which nobody else knows, is damaged. What was found while
            others used the file counts for nothing; a copy is judged while nobody does.

    Returns:
        What happened; None when the file is sound, or another process has replaced it meanwhile.

    Raises:
        DatabaseError: another process has the file open; nothing was changed.
        sqlite3.Error: the new file cannot be written; nothing was changed.
        OSError: likewise.
    """
    with _alone(path, wait):
        if identity_of(path) != identity:
            return None
        with path.open("r+b") as file:
            _lock(file.fileno(), path, wait)
            data, log = file.read(), _bytes_beside(path, "-wal")
            if _is_sound(path, data, log, check):
                return None
            raw = list(_raw_rows(data, log))
            rows = _with_copies(_collect(raw))
            counts = _write_complete(rows, path)
            quarantine = _exchange(path)
    return Recovery(
        str(path),
        str(quarantine),
        counts["records"],
        max([0, *rows["records"], *_newest(raw)]) - counts["records"],
        counts["runs"],
        counts["baselines"],
    )


def finish(path: Path, wait: float) -> None:
    """Finish a recovery whose process was killed, if there is one."""
    if is_begun(path):
        with _alone(path, wait):
            if is_begun(path):
                _exchange(path)


def is_begun(path: Path) -> bool:
    """Whether a new file is complete and not in place yet."""
    return _beside(path, "-recovered").exists()


def is_open_here(path: Path) -> bool:
    """Whether this process has the file open, with another connection for instance."""
    identity = identity_of(path)
    for descriptor in os.listdir("/dev/fd"):
        # The folder itself was among them and is closed again.
        with contextlib.suppress(OSError):
            status = os.fstat(int(descriptor))
            if (status.st_dev, status.st_ino) == identity:
                return True
    return False


def identity_of(path: Path) -> tuple[int, int]:
    """Device and number of a file; zeros where there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _bytes_beside(path: Path, suffix: str) -> bytes:
    try:
        return _beside(path, suffix).read_bytes()
    except FileNotFoundError:
        return b""


@contextlib.contextmanager
def _alone(path: Path, wait: float) -> Iterator[None]:
    """Only one process at a time recovers files of a folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _wait_for(lambda: fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB), path, wait)
        yield
    finally:
        os.close(folder)


def _lock(descriptor: int, path: Path, wait: float) -> None:
    """Keep others from opening the file, once nobody has it open."""
    _wait_for(
        lambda: fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, *_SHARED_BYTES), path, wait
    )


def _wait_for(lock: Callable[[], None], path: Path, wait: float) -> None:
    end = time.monotonic() + wait
    while True:
        try:
            return lock()
        except (BlockingIOError, PermissionError):
            if time.monotonic() > end:
                raise DatabaseError(
                    f"database {str(path)!r}: the file is damaged, and another process has it "
                    "open; end that one, then repeat the command"
                ) from None
        time.sleep(_PAUSE)


def _is_sound(path: Path, data: bytes, log: bytes, check: Callable[[Path], None]) -> bool:
    """Whether there is no damage, judged by a copy.

    SQLite would give up our locks of the file itself when it closes it.
    """
    copy = _beside(path, "-recovering")
    try:
        journal = _bytes_beside(path, "-journal")
        for suffix, content in {"": data, "-wal": log, "-journal": journal}.items():
            _beside(copy, suffix).write_bytes(content)
        check(copy)
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    except DatabaseError:
        # It is sound, and cannot be used; the next opening of the file itself says why.
        return True
    finally:
        _remove(copy)
    return True


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        _beside(path, suffix).unlink(missing_ok=True)


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
            os.rename(_beside(path, suffix), _beside(quarantine, suffix))
    _beside(path, "-damaged").unlink(missing_ok=True)
    _flush_folder(path.parent)
    os.replace(_beside(path, "-recovered"), path)
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


def _raw_rows(data: bytes, log: bytes) -> Iterator[RawRow]:
    """What can be read of a file, whatever it is."""
    stated = page_size_of(data, log)
    for size in PAGE_SIZES if stated is None else (stated,):
        yield from read_rows(apply_log(data, log, size), size)


def _newest(raw: Iterable[RawRow]) -> Iterator[int]:
    """Numbers of the newest record, as SQLite has noted them in its own table."""
    for _, values in raw:
        if len(values) == 2 and values[0] == "records" and isinstance(values[1], int):
            yield values[1]


def _sound_rows(raw: Iterable[RawRow]) -> Iterator[tuple[str, Row]]:
    """Every row whose checksum holds, with the name of its table."""
    for number, values in raw:
        for table, columns in COLUMNS.items():
            # The number is not among the values that a row has in the file; the checksum is.
            if len(values) == len(columns) + 1:
                content = [number, *_as_columns(columns, values[1:-1])]
                if row_checksum(table, *content) == values[-1]:
                    yield table, dict(zip(columns, content, strict=True))


def _as_columns(columns: Sequence[str], values: Sequence[Value]) -> Iterator[Value]:
    for column, value in zip(columns[1:], values, strict=True):
        is_whole = column in REAL_COLUMNS and isinstance(value, int)
        yield float(value) if is_whole and value is not None else value


def _collect(raw: Iterable[RawRow]) -> Rows:
    """Sound rows by table and number; a number that several different rows have is left out."""
    found: Rows = {table: {} for table in COLUMNS}
    doubtful: set[tuple[str, int]] = set()
    for table, row in _sound_rows(raw):
        if found[table].setdefault(row["id"], row) != row:
            doubtful.add((table, row["id"]))
    for table, number in doubtful:
        del found[table][number]
    return found


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
    growing = _beside(path, "-recovering")
    try:
        counts = _write(rows, growing)
        os.replace(growing, _beside(path, "-recovered"))
    finally:
        _remove(growing)
    return counts


def _write(rows: Rows, path: Path) -> dict[str, int]:
    """Make a file of the rows that lack nothing; returns how many, by table."""
    _remove(path)
    readers: dict[str, Callable[[Row, Interned], object]] = {
        "records": read_record,
        "baselines": lambda row, interned: (read_outcome(row), interned.key(row["key_id"])),
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
                if _can(read, row, interned):
                    put(connection, table, row)
                    counts[table] += 1
        connection.execute("COMMIT")
    return counts


def _can(read: Callable[[Row, Interned], object], row: Row, interned: Interned) -> bool:
    """Whether a row has all that it refers to, understood here or not."""
    try:
        read(row, interned)
    except NotUnderstood:
        return True
    except sqlite3.DatabaseError:
        return False
    return True
