"""Records as JSON lines: every line is self-contained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NoReturn

from attrs import frozen

from autotune.errors import AutotuneError, InvalidValueError, one_line
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

__all__ = ["MOST_BYTES", "BadLine", "read_lines", "record_line", "write_lines"]

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
