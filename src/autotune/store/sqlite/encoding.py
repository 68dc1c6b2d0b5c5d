"""Records, baselines and runs as rows, and back."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from typing import TypeVar

from autotune.errors import AutotuneError, InvalidValueError
from autotune.sketches import UNTUNED, Candidate
from autotune.store.records import (
    OUTCOME_STATUSES,
    RUN_STATUSES,
    Baseline,
    Outcome,
    Record,
    Run,
)
from autotune.store.records.validity import (
    INT64,
    check_config,
    check_content,
    check_counts_as,
    check_outcome,
)
from autotune.store.sqlite.interned import Interned
from autotune.store.sqlite.rows import BrokenRow, NotUnderstood, Row, reason_of, to_json_text

__all__ = [
    "baseline_row",
    "outcome_columns",
    "read_baseline",
    "read_record",
    "read_run",
    "record_row",
    "run_row",
]

Value = TypeVar("Value")

_INFINITE = math.inf
# What configurations nearly always are: their values need no further look.
_WHOLE_NUMBERS = re.compile(r"\[(?:[0-9]{1,18}(?:,[0-9]{1,18})*)?\]").fullmatch
# As ``json.loads``, without asking each time what it was given.
_decode = json.JSONDecoder().decode
# Code that reads what programs wrote trips over what is of another shape altogether.
_NOT_READ = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
    AutotuneError,
)


def record_row(record: Record, interned: Interned) -> Row:
    """The row of a record; shared content is interned on the way."""
    sketch = record.candidate.sketch
    return {
        "run_id": record.run_id,
        "trial": record.trial,
        "workload": sketch.workload.digest,
        "candidate": record.candidate.digest,
        "sketch_id": interned.add_sketch(sketch),
        "config": to_json_text(list(record.candidate.values)),
        "key_id": interned.add_key(record.key),
        "target_id": interned.add_target(dict(record.target)),
        "space": record.space,
        "created": float(record.created),
        "elapsed": float(record.elapsed),
        "program_id": interned.add_program(record.program),
        **outcome_columns(record.outcome),
    }


def outcome_columns(outcome: Outcome) -> Row:
    """The outcome columns of a row of ``records``.

    Raises:
        InvalidValueError: the latency is not a finite number.
    """
    latency = outcome.latency
    if latency is not None and not math.isfinite(latency):
        raise InvalidValueError(f"a latency of {latency} seconds cannot be stored")
    return {
        "status": outcome.status,
        "latency": None if latency is None else float(latency),
        "outcome": to_json_text({**outcome.to_json(), **_origin(outcome)}),
        "lowered": outcome.lowered,
        "binary": outcome.binary,
        "duplicate_of": outcome.duplicate_of,
    }


def _origin(outcome: Outcome) -> dict[str, bool]:
    """Facts that this database knows beside the outcome itself."""
    return {"imported": True} if outcome.imported else {}


def read_record(row: Row, interned: Interned) -> Record:
    """The record of a row.

    Raises:
        BrokenRow: it contradicts itself, or has values that no record has.
        NotUnderstood: it is no record to this version.
        sqlite3.Error: it, or what it refers to, cannot be read.
    """
    number = row["sketch_id"]

    def read() -> Record:
        sketch = interned.sketch(number)
        text = row["config"]
        values = tuple(_decode(text))
        if 0 in values or not _WHOLE_NUMBERS(text):
            check_config(sketch, values)
        record = Record(
            row["run_id"],
            row["trial"],
            Candidate(sketch, values),
            interned.key(row["key_id"]),
            interned.target(row["target_id"]),
            row["space"],
            _outcome(row),
            row["created"],
            row["elapsed"],
            interned.program(row["program_id"]),
        )
        _check_columns(row, record)
        return record

    def is_known() -> bool:
        return _has_known_status(row) and interned.has_sketch(number)

    return _reading("records", row, read, is_known)


def _check_columns(row: Row, record: Record) -> None:
    """Raise unless what a record is found by is its own, and columns have their types."""
    outcome = record.outcome
    if (outcome.status, outcome.latency) != (row["status"], row["latency"]):
        raise ValueError("the outcome is not the one that it is found by")
    if record.candidate.sketch.workload.digest != row["workload"]:
        raise ValueError("the workload is not the one that it is found by")
    if not type(record.run_id) is type(record.space) is str:
        raise TypeError("the run or the space is no text")
    if type(record.trial) is not int or record.trial < 0:
        raise TypeError("the trial is no whole number")
    # Not a text either: those compare with no number.
    if not (-_INFINITE < record.created < _INFINITE and -_INFINITE < record.elapsed < _INFINITE):
        raise ValueError("a time is no finite number")


def baseline_row(baseline: Baseline, key_id: int) -> Row:
    """The row of a baseline under the measure key with this number.

    What versions do not know that have untuned programs only is beside the outcome, where they
    pass over it: they still open the file, and this one opens theirs without writing to it.
    """
    more = {"name": baseline.name, "counts_as": baseline.counts_as, **_origin(baseline.outcome)}
    return {
        "run_id": baseline.run_id,
        "workload": baseline.workload,
        "key_id": key_id,
        "status": baseline.outcome.status,
        "outcome": to_json_text({**baseline.outcome.to_json(), **more}),
        "created": float(baseline.created),
    }


def read_baseline(row: Row, interned: Interned) -> Baseline:
    """The baseline of a row.

    Raises:
        BrokenRow: it has values that no outcome has.
        NotUnderstood: it means nothing to this version.
        sqlite3.Error: it, or what it refers to, cannot be read.
    """

    def read() -> Baseline:
        data = json.loads(row["outcome"])
        name, counts_as = data.get("name", UNTUNED), data.get("counts_as")
        if not type(name) is type(row["run_id"]) is type(row["workload"]) is str:
            raise TypeError("its name, run or workload is no text")
        if not -_INFINITE < row["created"] < _INFINITE:
            raise ValueError("created is no finite number")
        check_counts_as(counts_as)
        key = interned.key(row["key_id"])
        outcome = _outcome(row)
        return Baseline(
            row["run_id"], row["workload"], key, outcome, row["created"], name, counts_as
        )

    return _reading("baselines", row, read, lambda: _has_known_status(row))


def _has_known_status(row: Row) -> bool:
    """Return whether what is wrong with an outcome is not that a later version has written it."""
    names = [row["status"]]
    with contextlib.suppress(*_NOT_READ):
        names.append(json.loads(row["outcome"])["status"])
    return all(name in OUTCOME_STATUSES for name in names if isinstance(name, str))


def _outcome(row: Row) -> Outcome:
    text = row["outcome"]
    content = _decode(text)
    if "\\u" in text:
        # Half of a surrogate pair is no text.
        check_content(content)
    outcome = Outcome.from_json(content)
    check_outcome(outcome)
    return outcome


def run_row(run: Run, interned: Interned) -> Row:
    """The row of a run."""
    return {
        "run_id": run.run_id,
        "identity": run.identity,
        "workload": run.workload,
        "key_id": interned.add_key(run.key),
        "space": run.space,
        "strategy": run.strategy,
        "options": to_json_text(dict(run.options)),
        "seed": run.seed,
        "trials": run.trials,
        "status": run.status,
        "created": float(run.created),
        "checkpoint": None if run.checkpoint is None else to_json_text(dict(run.checkpoint)),
    }


def read_run(row: Row, interned: Interned) -> Run:
    """The run of a row.

    Raises:
        BrokenRow: it has values that no run has.
        NotUnderstood: it means nothing to this version.
        sqlite3.Error: it, or what it refers to, cannot be read.
    """

    def read() -> Run:
        _check_run(row)
        checkpoint = row["checkpoint"]
        return Run(
            row["run_id"],
            row["identity"],
            row["workload"],
            interned.key(row["key_id"]),
            row["space"],
            row["strategy"],
            json.loads(row["options"]),
            row["seed"],
            row["trials"],
            row["status"],
            row["created"],
            None if checkpoint is None else json.loads(checkpoint),
        )

    return _reading("runs", row, read, lambda: row["status"] in RUN_STATUSES)


def _check_run(row: Row) -> None:
    """Raise unless the columns of a run have values of their types."""
    for column in ("run_id", "identity", "workload", "space", "strategy", "status"):
        if not isinstance(row[column], str):
            raise TypeError(f"{column} is no text")
    for column, least in (("seed", -INT64), ("trials", 0)):
        if not isinstance(row[column], int) or row[column] < least:
            raise TypeError(f"{column} is no whole number of {least} or more")
    if not -_INFINITE < row["created"] < _INFINITE:
        raise ValueError("created is no finite number")


def _reading(
    table: str,
    row: Row,
    read: Callable[[], Value],
    is_known: Callable[[], bool] = lambda: False,
) -> Value:
    """Read a row.

    Args:
        table: Its table.
        row: The row.
        read: Reads it.
        is_known: Whether all that it names is known, so that it is itself at fault.

    Raises:
        BrokenRow: the row has values that this program does not write.
        NotUnderstood: it may name what is missing here.
    """
    try:
        return read()
    except BrokenRow as error:
        raise BrokenRow(f"row {row['id']} of {table}: {reason_of(error)}") from error
    except _NOT_READ as error:
        reason = reason_of(error)
        if is_known():
            raise BrokenRow(f"row {row['id']} of {table}: {reason}") from error
        raise NotUnderstood(f"row {row['id']} of {table} means nothing here: {reason}") from error
