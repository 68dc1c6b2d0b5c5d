"""Limits of the texts and numbers of records, wherever they come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from autotune.errors import InvalidValueError
from autotune.sketches import Factor, Sketch, baseline_candidate
from autotune.store.records.outcome import Outcome
from autotune.store.records.record import MeasureKey, Record

__all__ = [
    "INT64",
    "MOST_DEPTH",
    "MOST_PARTS",
    "check_baseline",
    "check_config",
    "check_content",
    "check_counts_as",
    "check_key",
    "check_outcome",
    "check_lengths",
    "check_trial",
]

INT64 = 1 << 63
"""Integers of records are smaller, and at least as large as its negative."""

MOST_DEPTH = 200
"""Lists and objects within each other. Expressions of programs have a few dozen."""

MOST_PARTS = 4096
"""Sketches have a few dozen steps, those of whole networks hundreds; the same holds for
parameters, their values, constraints and stages."""


def check_content(data: object) -> None:
    """Check that a database can hold each of the texts and numbers, and programs can read them.

    Raises:
        InvalidValueError: lists are too deep, a number is infinite or has more than 64 bits, or a
            text has half of a surrogate pair.
    """
    level = [data]
    depth = 0
    while level:
        if depth > MOST_DEPTH:
            raise InvalidValueError(f"not a record: it is deeper than {MOST_DEPTH} lists")
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inside += item.keys()
                inside += item.values()
            elif isinstance(item, list):
                inside += item
            elif (problem := _problem(item)) is not None:
                raise InvalidValueError(f"not a record: {ascii(item)[:80]} {problem}")
        level = inside
        depth += 1


def _problem(item: object) -> str | None:
    """Describe the fault of a text or a number."""
    if isinstance(item, str) and not item.isascii():
        try:
            item.encode()
        except UnicodeEncodeError:
            return "is no text: it has half of a surrogate pair"
    if isinstance(item, int) and not -INT64 <= item < INT64:
        return "has more than 64 bits: a record has 64-bit numbers"
    if isinstance(item, float) and not math.isfinite(item):
        return "is no finite number"
    return None


def check_lengths(owner: str, data: object) -> None:
    """Check how many parts a sketch or a workload in JSON has before any is read.

    Args:
        owner: What it is called in messages.
        data: The JSON.

    Raises:
        InvalidValueError: there are too many.
    """
    if not isinstance(data, dict):
        return
    for name in ("steps", "params", "constraints", "stages"):
        _check_length(f"its {owner} has", name, data.get(name))
    params = data.get("params")
    for param in params if isinstance(params, list) else ():
        for values in param if isinstance(param, list) else ():
            _check_length("a parameter has", "values", values)


def _check_length(owner: str, name: str, parts: object) -> None:
    if isinstance(parts, list) and len(parts) > MOST_PARTS:
        raise InvalidValueError(
            f"not a record: {owner} {len(parts)} {name}, more than {MOST_PARTS}"
        )


def check_trial(trial: int) -> None:
    """Check the position of a record in its run.

    Raises:
        InvalidValueError: it is negative.
    """
    _require(trial >= 0, "trial", "a whole number", trial)


def check_key(key: MeasureKey) -> None:
    """Check that names are texts, and that there is a thread.

    Raises:
        InvalidValueError: it is not so.
    """
    for name, value in attrs.asdict(key).items():
        kind, what = (int, "a whole number") if name == "threads" else (str, "a text")
        _require(type(value) is kind, f"key.{name}", what, value)
    _require(key.threads >= 1, "key.threads", "a whole number above 0", key.threads)


def check_outcome(outcome: Outcome) -> None:
    """Check that seconds and rates are those that a clock can show.

    Raises:
        InvalidValueError: a number is not; names it.
    """
    latency, samples, timings = outcome.latency, outcome.samples, outcome.timings
    if latency is not None:
        _require(0 < latency < math.inf, "outcome.latency", "a number above 0", latency)
    if samples and not (min(samples) > 0 and max(samples) < math.inf):
        wrong = next(item for item in samples if not 0 < item < math.inf)
        _require(False, "outcome.samples", "made of numbers above 0", wrong)
    if timings and not 0 <= min(timings.values()) <= max(timings.values()) < math.inf:
        phase, wrong = next(item for item in timings.items() if not 0 <= item[1] < math.inf)
        _require(False, f"outcome.timings.{phase}", "0 or more", wrong)
    if (beside := outcome.reference) is not None:
        _require(0 < beside < math.inf, "outcome.reference", "a number above 0", beside)
    _require(0 < outcome.drift < math.inf, "outcome.drift", "a number above 0", outcome.drift)


def check_counts_as(seconds: object) -> None:
    """Check the seconds of a winner that a baseline counts as.

    Raises:
        InvalidValueError: they are none that a clock can show.
    """
    if seconds is not None:
        is_latency = isinstance(seconds, (int, float)) and 0 < seconds < math.inf
        _require(is_latency, "counts_as", "a number above 0", seconds)


def check_baseline(record: Record) -> None:
    """Check that a record of a baseline has the candidate of that baseline.

    Raises:
        InvalidValueError: it has another, or counts as no latency.
    """
    if record.baseline:
        candidate = record.candidate
        untuned = baseline_candidate(candidate.sketch.workload, record.baseline)
        _require(candidate == untuned, "sketch", f"that of {record.baseline}", candidate.sketch)
        check_counts_as(record.counts_as)


def check_config(sketch: Sketch, values: Sequence[int]) -> None:
    """Check that a record has a whole number of 64 bits for each parameter, none too small.

    Args:
        sketch: The sketch.
        values: Values in the order of its parameters, as many.

    Raises:
        InvalidValueError: a value is not; names it.
    """
    for param, value in zip(sketch.params, values, strict=True):
        least = 1 if isinstance(param, Factor) else min((0, *(param.values or ())))
        name = f"config.{param.name}"
        _require(type(value) is int and value < INT64, name, "a whole number of 64 bits", value)
        _require(value >= least, name, f"{least} or more", value)


def _require(holds: bool, name: str, kind: str, value: Any) -> None:
    if not holds:
        raise InvalidValueError(f"not a record: {name} is not {kind}: {str(value)[:80]}")
