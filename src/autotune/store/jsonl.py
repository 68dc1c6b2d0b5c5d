"""Records as JSON lines, every line self-contained; files that are there completely or not."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from attrs import evolve, frozen

from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.store.database import Database
from autotune.store.records import Record
from autotune.store.records.validity import (
    check_baseline,
    check_config,
    check_content,
    check_key,
    check_lengths,
    check_outcome,
    check_trial,
)
from autotune.targets import Target

__all__ = [
    "BadLine",
    "ImportReport",
    "MOST_BYTES",
    "import_lines",
    "read_lines",
    "record_line",
    "replacing",
    "write_lines",
]

MOST_BYTES = 64 << 20
"""A longer line is no record, and is not kept in memory to find out."""


@frozen
class BadLine:
    """A line that holds no record.

    Attributes:
        number: Its number in the file, from 1.
        reason: What is wrong with it, on one line.
    """

    number: int
    reason: str


def record_line(record: Record) -> bytes:
    """A record as one line, with its end.

    Raises:
        InvalidValueError: it holds a number that JSON has no form for.
    """
    try:
        text = json.dumps(record.to_json(), separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InvalidValueError(f"record {record.name} cannot be written: {error}") from error
    return text.encode() + b"\n"


def write_lines(records: Iterable[Record], stream: BinaryIO) -> Iterator[int]:
    """Write records one by one; gives how many were written, after each.

    Raises:
        InvalidValueError: a record cannot be written.
    """
    for count, record in enumerate(records, start=1):
        stream.write(record_line(record))
        yield count


def read_lines(stream: BinaryIO) -> Iterator[Record | BadLine]:
    """The records of a stream, and the lines that are none; empty lines are passed over."""
    number = 0
    while line := stream.readline(MOST_BYTES):
        number += 1
        if len(line) == MOST_BYTES and not line.endswith(b"\n"):
            _skip_line(stream)
            yield BadLine(number, f"it is longer than {MOST_BYTES} bytes")
        elif line.strip():
            yield _read(number, line)


def _skip_line(stream: BinaryIO) -> None:
    while (piece := stream.readline(1 << 20)) and not piece.endswith(b"\n"):
        pass


def _read(number: int, line: bytes) -> Record | BadLine:
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        torn = "" if line.endswith(b"\n") else "; the file ends within this line"
        return BadLine(number, f"not JSON: {_reason(error)}{torn}")
    try:
        check_content(data)
        for name in ("sketch", "workload") if isinstance(data, dict) else ():
            check_lengths(name, data.get(name))
        return _checked(Record.from_json(data))
    except AutotuneError as error:
        return BadLine(number, _reason(error))
    # Code that reads what programs wrote trips over what is of another shape altogether.
    except (AttributeError, IndexError, OverflowError, RecursionError) as error:
        return BadLine(number, f"not a record: {_reason(error)}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _reason(error: Exception) -> str:
    return one_line(str(error), 300) or type(error).__name__


def _checked(record: Record) -> Record:
    """A record whose numbers are of the ranges that a measurement can have.

    Raises:
        InvalidValueError: a part is not; names it.
    """
    check_trial(record.trial)
    check_key(record.key)
    check_outcome(record.outcome)
    candidate = record.candidate
    check_baseline(record)
    check_config(candidate.sketch, candidate.values)
    Target.from_json(record.target)
    return record


# What a new file would have, were it not made under another name first.
_MODE = 0o666


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that replaces ``path`` when the block ends without an exception.

    It is on the disk by then. After an exception, ``path`` is what it was before. What is no
    plain file, such as a pipe or ``/dev/stdout``, is written to as it is.

    Raises:
        InvalidValueError: the path cannot be written to.
    """
    try:
        # Through links: the file that a link names is replaced, and not the link.
        final = Path(os.path.realpath(path))
        if final.is_dir():
            raise InvalidValueError(f"{str(path)!r} is a folder; name a file in it")
        if final.exists() and not final.is_file():
            with final.open("wb") as stream:
                yield stream
            return
        with _beside(final) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidValueError(
            f"{os.fspath(path)!r} cannot be written: {error.strerror or error}"
        ) from error


@contextlib.contextmanager
def _beside(final: Path) -> Iterator[BinaryIO]:
    if final.exists() and not os.access(final, os.W_OK, effective_ids=True):
        raise PermissionError(0, "it is read-only")
    mode = stat.S_IMODE(final.stat().st_mode) if final.exists() else _MODE & ~_umask()
    descriptor, name = tempfile.mkstemp(prefix=f".{final.name}.", dir=final.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        os.replace(name, final)
    except BaseException:
        # Whatever ends it, an interrupt too: nothing half written stays behind.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_BATCH = 256


@frozen
class ImportReport:
    """Report on the import of a file.

    Attributes:
        added: Records that are in the database now and were not before.
        known: Records that the database had already.
        bad: Lines that hold no record.
    """

    added: int
    known: int
    bad: int

    @property
    def records(self) -> int:
        """Number of records that were read."""
        return self.added + self.known


def import_lines(
    lines: Iterable[Record | BadLine],
    database: Database,
    on_bad: Callable[[BadLine], None],
    on_progress: Callable[[int], None] = lambda records: None,
) -> ImportReport:
    """Store the records that a database lacks, a few hundred at once.

    They are marked as imported. What was stored stays when a later line cannot be read, or when
    the process ends; doing the same again adds the rest.

    Args:
        lines: Records and bad lines, in the order of the file.
        database: Where to.
        on_bad: Called with every bad line.
        on_progress: Called with the number of records read, after each batch.

    Raises:
        DatabaseError: the database cannot be written.
    """
    added = records = bad = 0
    batch: list[Record] = []
    for line in lines:
        if isinstance(line, BadLine):
            bad += 1
            on_bad(line)
            continue
        # Whatever the line says of it: what others have timed is a claim here.
        batch.append(evolve(line, outcome=evolve(line.outcome, imported=True)))
        if len(batch) == _BATCH:
            added += database.append_missing(batch)
            records += len(batch)
            on_progress(records)
            batch.clear()
    added += database.append_missing(batch)
    records += len(batch)
    return ImportReport(added, records - added, bad)
