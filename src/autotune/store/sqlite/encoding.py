"""Records, baselines and runs as rows, and back."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from typing import TypeVar

from autotune.errors import AutotuneError, InvalidValueError
from autotune.sketches import UNTUNED, Candidate
from autotune.store.records import Baseline, Outcome, Record, Run
from autotune.store.sqlite.interned import Interned
from autotune.store.sqlite.rows import Row, to_json_text

__all__ = [
    "NotUnderstood",
    "baseline_row",
    "outcome_columns",
    "read_baseline",
    "read_record",
    "read_run",
    "record_row",
    "run_row",
]

Value = TypeVar("Value")


class NotUnderstood(sqlite3.DatabaseError):
    """A row is what was written, but means nothing here: a part that it names may be missing."""


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
    """What this database knows beside the outcome itself."""
    return {"imported": True} if outcome.imported else {}


def read_record(row: Row, interned: Interned) -> Record:
    """The record of a row.

    Raises:
        NotUnderstood: it is no record to this version, or contradicts itself.
        sqlite3.Error: it, or what it refers to, cannot be read.
    """

    def read() -> Record:
        record = Record(
            row["run_id"],
            row["trial"],
            Candidate(interned.sketch(row["sketch_id"]), tuple(json.loads(row["config"]))),
            interned.key(row["key_id"]),
            interned.target(row["target_id"]),
            row["space"],
            Outcome.from_json(json.loads(row["outcome"])),
            row["created"],
            row["elapsed"],
            interned.program(row["program_id"]),
        )
        outcome = record.outcome
        if (outcome.status, outcome.latency) != (row["status"], row["latency"]):
            raise ValueError("the outcome is not the one that it is found by")
        return record

    return _reading("records", row, read)


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
        NotUnderstood: it means nothing to this version.
        sqlite3.Error: it, or what it refers to, cannot be read.
    """

    def read() -> Baseline:
        data = json.loads(row["outcome"])
        return Baseline(
            row["run_id"],
            row["workload"],
            interned.key(row["key_id"]),
            Outcome.from_json(data),
            row["created"],
            str(data.get("name", UNTUNED)),
            data.get("counts_as"),
        )

    return _reading("baselines", row, read)


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
        NotUnderstood: it means nothing to this version.
        sqlite3.Error: it, or what it refers to, cannot be read.
    """

    def read() -> Run:
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

    return _reading("runs", row, read)


def _reading(table: str, row: Row, read: Callable[[], Value]) -> Value:
    try:
        return read()
    except (LookupError, TypeError, ValueError, AutotuneError) as error:
        raise NotUnderstood(f"row {row['id']} of {table} means nothing here: {error}") from error
