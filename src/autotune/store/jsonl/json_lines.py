"""Records as JSON lines: every line is self-contained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn

from attrs import frozen

from autotune.errors import AutotuneError, InvalidValueError, one_line
from autotune.sketches import Factor, baseline_candidate
from autotune.store.jsonl.content import check_content
from autotune.store.records import Outcome, Record
from autotune.targets import Target

__all__ = ["MOST_BYTES", "MOST_STEPS", "BadLine", "read_lines", "record_line", "write_lines"]

MOST_BYTES = 64 << 20
"""A longer line is no record, and is not kept in memory to find out."""

MOST_STEPS = 4096
"""Sketches have a few dozen steps, those of whole networks hundreds."""


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
        _check_steps(data)
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


def _check_steps(data: Any) -> None:
    """Check the number of steps before any is read."""
    sketch = data.get("sketch") if isinstance(data, dict) else None
    steps = sketch.get("steps") if isinstance(sketch, dict) else None
    if isinstance(steps, list) and len(steps) > MOST_STEPS:
        raise InvalidValueError(
            f"not a record: its sketch has {len(steps)} steps, more than {MOST_STEPS}"
        )


def _checked(record: Record) -> Record:
    """A record whose numbers are of the ranges that a measurement can have.

    Raises:
        InvalidValueError: a part is not; names it.
    """
    _require(record.trial >= 0, "trial", "a whole number", record.trial)
    threads = record.key.threads
    _require(threads >= 1, "key.threads", "a whole number above 0", threads)
    _check_outcome(record.outcome)
    candidate = record.candidate
    if record.baseline:
        untuned = baseline_candidate(candidate.sketch.workload, record.baseline)
        _require(candidate == untuned, "sketch", f"that of {record.baseline}", candidate.sketch)
        counts_as = 1.0 if record.counts_as is None else record.counts_as
        _require(counts_as > 0, "counts_as", "a number above 0", counts_as)
    for param, value in zip(candidate.sketch.params, candidate.values, strict=True):
        least = 1 if isinstance(param, Factor) else 0
        _require(value >= least, f"config.{param.name}", f"{least} or more", value)
    Target.from_json(record.target)
    return record


def _check_outcome(outcome: Outcome) -> None:
    if outcome.latency is not None:
        _require(outcome.latency > 0, "outcome.latency", "a number above 0", outcome.latency)
    for seconds in outcome.samples:
        _require(seconds > 0, "outcome.samples", "made of numbers above 0", seconds)
    for phase, seconds in outcome.timings.items():
        _require(seconds >= 0, f"outcome.timings.{phase}", "0 or more", seconds)
    _require(outcome.drift > 0, "outcome.drift", "a number above 0", outcome.drift)


def _require(holds: bool, name: str, kind: str, value: Any) -> None:
    if not holds:
        raise InvalidValueError(f"not a record: {name} is not {kind}: {str(value)[:80]}")
