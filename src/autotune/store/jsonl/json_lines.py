"""Records as JSON lines: every line is self-contained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

from attrs import frozen

from autotune.errors import AutotuneError, InvalidValueError
from autotune.store.records import Record
from autotune.targets import Target

__all__ = ["MOST_BYTES", "BadLine", "read_lines", "record_line", "write_lines"]

MOST_BYTES = 64 << 20
"""A longer line is no record, and is not kept in memory to find out."""

_INT64 = 1 << 63


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
        name = f"{record.run_id}/{record.trial}"
        raise InvalidValueError(f"record {name} cannot be written: {error}") from error
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
        return BadLine(number, f"not JSON: {_one_line(error)}{torn}")
    try:
        return _checked(Record.from_json(data))
    except AutotuneError as error:
        return BadLine(number, _one_line(error))
    # Code that reads what programs wrote trips over what is of another shape altogether.
    except (AttributeError, IndexError, OverflowError, RecursionError) as error:
        return BadLine(number, f"not a record: {_one_line(error)}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _checked(record: Record) -> Record:
    """A record of which every number is one that a database can hold.

    Raises:
        InvalidValueError: a part is not; names it.
    """
    outcome = record.outcome
    for name, count in {"trial": record.trial, "key.threads": record.key.threads}.items():
        _require(0 <= count < _INT64, name, "a whole number", count)
    for name, seconds in {"created": record.created, "elapsed": record.elapsed}.items():
        _require(math.isfinite(seconds), name, "a number", seconds)
    if outcome.latency is not None:
        positive = math.isfinite(outcome.latency) and outcome.latency > 0
        _require(positive, "outcome.latency", "a number above 0", outcome.latency)
    numbers = [*outcome.samples, *outcome.timings.values(), outcome.drift]
    numbers += [reading for reading in outcome.readings.values() if reading is not None]
    _require(all(map(math.isfinite, numbers)), "outcome", "made of numbers", numbers)
    _require(
        all(-_INT64 <= value < _INT64 for value in record.candidate.values),
        "config",
        "made of 64-bit numbers",
        record.candidate.config,
    )
    Target.from_json(record.target)
    return record


def _require(holds: bool, name: str, kind: str, value: Any) -> None:
    if not holds:
        raise InvalidValueError(f"not a record: {name} is not {kind}: {str(value)[:80]}")
