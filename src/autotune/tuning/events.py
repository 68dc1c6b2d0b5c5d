"""Events of a run, as data: the only input of progress, logs and reports.

Events of a task name it: tasks that are tuned together are one run.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import field, frozen

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.sketches import UNTUNED, Candidate, Sketch
from autotune.store.records import (
    WRITTEN_WHEN_SET,
    Comparison,
    Confirmation,
    Contest,
    Outcome,
    Record,
    WarmSource,
)
from autotune.store.rejections import reject_reason

__all__ = [
    "EVENT_VERSION",
    "LATER",
    "AnsweredFromRecords",
    "BackendsCompared",
    "BaselineMeasured",
    "CheckpointSaved",
    "Event",
    "EventListener",
    "LeadersCompared",
    "NetworkLoaded",
    "NetworkTaskFacts",
    "PassFinished",
    "RoundStarted",
    "RunFailed",
    "RunFinished",
    "RunInterrupted",
    "RunStarted",
    "TrialFinished",
    "WarmStarted",
    "WarningRaised",
    "WinnerConfirmed",
    "WorkersReady",
    "event_from_json",
    "event_name",
    "event_to_json",
    "read_events",
]

LATER = "later"
"""Marks fields that came with a later version: they are written unless they have the default."""


@frozen
class PassFinished:
    """A pass over the graph of a network is done.

    Attributes:
        network: What a person calls the network.
        name: The pass.
        seconds: How long it took.
        note: What it changed; "" where nothing.
    """

    network: str
    name: str
    seconds: float
    note: str


@frozen
class NetworkTaskFacts:
    """Tasks of a network that compute the same.

    Attributes:
        name: Of the first of them, and of the task that is tuned.
        occurrences: Calls in one inference.
        flop: Of one call.
        tunable: Whether it is to be tuned; the search space may still refuse it.
    """

    name: str
    occurrences: int
    flop: float
    tunable: bool


@frozen
class NetworkLoaded:
    """A network was read and cut into tasks; the events of its tasks follow."""

    network: str
    tasks: tuple[NetworkTaskFacts, ...]


@frozen
class RunStarted:
    """A task's run begins, or continues after ``resumed_trials`` of its trials.

    Attributes:
        run_id: The run, as stored in the database.
        task: What a person calls the task, such as ``gemm m=512 n=512 k=512 float32``.
        workload: Digest of the workload.
        flop: Arithmetic operations of one execution.
        trials: The budget in trials, of all tasks of the run together, if there is one.
        seconds: The budget in seconds, if there is one.
        resumed_trials: Trials of this run that were done before.
        resumed_outcomes: How they ended: trials by outcome status.
        resumed_rejections: Rejected trials, by class: ``rejections.reject_reason``.
        resumed_best: Best latency among them in seconds, if any.
        resumed_seconds: Seconds that this run had taken before.
        database: Where the records go.
        sketches: Number of sketches in the space.
        configurations: Number of feasible configurations in the space.
    """

    run_id: str
    task: str
    workload: str
    flop: int
    trials: int | None
    seconds: float | None
    resumed_trials: int
    resumed_outcomes: Mapping[str, int]
    resumed_rejections: Mapping[str, int]
    resumed_best: float | None
    resumed_seconds: float
    database: str
    sketches: int
    configurations: int


@frozen
class WorkersReady:
    """The measuring workers have imported the compiler, ``seconds`` after the session began."""

    task: str
    seconds: float


@frozen
class WarmStarted:
    """A new run begins with what is recorded of equal and similar programs."""

    task: str
    sources: tuple[WarmSource, ...]


@frozen
class BaselineMeasured:
    """A baseline was built and timed, or found in the records.

    Attributes:
        task: The task.
        outcome: Its outcome.
        name: What it is called: that it is untuned, or the backend's default schedule.
    """

    task: str
    outcome: Outcome
    name: str = field(default=UNTUNED, metadata={LATER: True})


@frozen
class RoundStarted:
    """A round of ``candidates`` proposals goes to be measured; ``trial`` is the next trial."""

    task: str
    round: int
    trial: int
    candidates: int


@frozen
class TrialFinished:
    """Event of a candidate that has an outcome.

    Attributes:
        task: The task.
        trial: Position among the task's trials, from 0.
        candidate: What was measured.
        outcome: Its outcome.
        best: Best latency of the task so far in seconds, if any.
        improved: Whether this trial is that best one.
        elapsed: Seconds since the run began, earlier sessions of it included.
        reason: Why it was rejected, as a class: ``rejections.reject_reason`` of the outcome.
    """

    task: str
    trial: int
    candidate: Candidate
    outcome: Outcome
    best: float | None
    improved: bool
    elapsed: float
    reason: str = field(init=False)

    @reason.default
    def _reason_of_outcome(self) -> str:
        return reject_reason(self.outcome)


@frozen
class LeadersCompared:
    """A candidate that may be the best was timed in turns with the one that was.

    Attributes:
        task: The task.
        leader: Digest of the best candidate so far.
        challenger: Digest of the candidate that was compared with it.
        comparison: The challenger against the leader.
        replaced: Whether the challenger is the best candidate now.
    """

    task: str
    leader: str
    challenger: str
    comparison: Comparison
    replaced: bool


@frozen
class WinnerConfirmed:
    """The best candidate was timed again on other inputs, beside those it has beaten."""

    task: str
    confirmation: Confirmation


@frozen
class BackendsCompared:
    """The best candidates of several backends for one program were timed in turns.

    Attributes:
        program: What a person calls the program; the tasks are called ``PROGRAM on BACKEND``.
        contest: What came of it.
    """

    program: str
    contest: Contest


@frozen
class WarningRaised:
    """Something the user should know; the run continues."""

    task: str
    message: str


@frozen
class CheckpointSaved:
    """The run can be resumed from after ``trials`` trials.

    Attributes:
        run_id: The run.
        trials: Trials of all tasks.
        seconds: Wall seconds of the run so far, by activity.
    """

    run_id: str
    trials: int
    seconds: Mapping[str, float]


@frozen
class AnsweredFromRecords:
    """The run had been finished before: nothing was searched."""

    run_id: str
    task: str
    trials: int
    best: Record | None


@frozen
class RunInterrupted:
    """The run was stopped after ``trials`` trials; the same call resumes it."""

    run_id: str
    trials: int


@frozen
class RunFailed:
    """An error ended the run after ``trials`` trials; the caller gets it as an exception.

    The same call resumes the run.

    Attributes:
        run_id: The run.
        trials: Trials of all tasks.
        message: Kind of the error, and what it says.
    """

    run_id: str
    trials: int
    message: str


@frozen
class RunFinished:
    """A task's run ended; ``reason`` says why: budget used up, time over, space exhausted."""

    run_id: str
    task: str
    trials: int
    reason: str
    best: Record | None


Event: TypeAlias = (
    PassFinished
    | NetworkLoaded
    | RunStarted
    | WarmStarted
    | WorkersReady
    | BaselineMeasured
    | RoundStarted
    | TrialFinished
    | LeadersCompared
    | WinnerConfirmed
    | BackendsCompared
    | WarningRaised
    | CheckpointSaved
    | AnsweredFromRecords
    | RunInterrupted
    | RunFailed
    | RunFinished
)
EventListener = Callable[[Event], None]


EVENT_VERSION = 1
"""Grows when a field of an event changes its meaning or goes away."""

Sketches = dict[str, Sketch]
"""Sketches by digest: the last one that was written or read, whatever its names."""


def event_name(kind: type[Any]) -> str:
    """``"trial_finished"`` for ``TrialFinished``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def event_to_json(event: Event, time: float, sketches: Sketches | None = None) -> dict[str, Any]:
    """A JSON object that :func:`event_from_json` reads back.

    Args:
        event: What happened.
        time: When, in Unix seconds.
        sketches: Those that earlier objects of a sequence carry; new ones are added. Without it
            the object is self-contained.
    """
    known = {} if sketches is None else sketches
    fields = {
        item.name: _write(getattr(event, item.name), known)
        for item in attrs.fields(type(event))
        if not (item.metadata.get(LATER) and getattr(event, item.name) == item.default)
    }
    head = {"event": event_name(type(event)), "version": EVENT_VERSION, "time": time}
    return {**head, **fields}


def event_from_json(data: Mapping[str, Any], sketches: Sketches | None = None) -> Event:
    """Read what :func:`event_to_json` wrote; fields that are not known are ignored.

    Args:
        data: One object.
        sketches: Those that earlier objects of its sequence carried; new ones are added.

    Raises:
        UnknownNameError: there is no such event.
        InvalidValueError: the object is no event, or of a later version.
    """
    try:
        kind = _kinds()[data["event"]]
        if data["version"] != EVENT_VERSION:
            raise InvalidValueError(
                f"an event of version {data['version']!r}; this autotune reads {EVENT_VERSION}"
            )
        event: Event = _read(kind, data, {} if sketches is None else sketches)
    except KeyError as error:
        if "event" in data and data["event"] not in _kinds():
            raise UnknownNameError("event", str(data["event"]), _kinds()) from None
        raise InvalidValueError(f"not an event: it lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidValueError(f"not an event: {error}") from error
    return event


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """The events of a log; lines that were cut off when a process or a disk ended are left out.

    Raises:
        InvalidValueError: a line is JSON, and no event.
    """
    sketches: Sketches = {}
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        yield event_from_json(data, sketches)


@cache
def _kinds() -> dict[str, type[Any]]:
    return {event_name(kind): kind for kind in get_args(Event)}


def _write(value: Any, sketches: Sketches) -> Any:
    """The JSON form of a value of an event."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Candidate):
        return _write_candidate(value, sketches)
    if isinstance(value, Record):
        return value.to_json()
    if attrs.has(type(value)):
        names = [item.name for item in attrs.fields(type(value))]
        if isinstance(value, Outcome):
            names = [it for it in names if getattr(value, it) or it not in WRITTEN_WHEN_SET]
        return {name: _write(getattr(value, name), sketches) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _write(item, sketches) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_write(item, sketches) for item in value]
    return value


def _write_candidate(candidate: Candidate, sketches: Sketches) -> dict[str, Any]:
    sketch = candidate.sketch
    data: dict[str, Any] = {
        "digest": candidate.digest,
        "sketch": {"name": sketch.name, "digest": sketch.digest},
        "config": dict(candidate.config),
    }
    known = sketches.get(sketch.digest)
    if known is None or known.spelling != sketch.spelling:
        sketches[sketch.digest] = sketch
        data["sketch"] |= {"workload": sketch.workload.to_json(), "content": sketch.to_json()}
    return data


def _read(kind: Any, data: Any, sketches: Sketches) -> Any:
    """The value of type ``kind`` that was written as ``data``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (kind,) = (item for item in arguments if item is not type(None))
        return None if data is None else _read(kind, data, sketches)
    if origin is tuple:
        return tuple(_read(arguments[0], item, sketches) for item in data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _read(arguments[1], item, sketches) for name, item in data.items()}
    if attrs.has(kind):
        return _READERS.get(kind, _read_fields)(kind, data, sketches)
    if kind is float:
        return float(data)
    if type(data) is not kind:
        raise InvalidValueError(f"not an event: {data!r} is not of type {kind.__name__}")
    return data


def _read_fields(kind: type[Any], data: Mapping[str, Any], sketches: Sketches) -> Any:
    hints, given = get_type_hints(kind), {}
    for item in attrs.fields(kind):
        if not item.init:
            continue
        if item.name in data or item.default is attrs.NOTHING:
            given[item.name] = _read(hints[item.name], data[item.name], sketches)
    return kind(**given)


def _read_candidate(_: type[Any], data: Mapping[str, Any], sketches: Sketches) -> Candidate:
    found = data["sketch"]
    if "content" in found:
        workload = Workload.from_json(found["workload"])
        sketches[found["digest"]] = Sketch.from_json(found["content"], workload)
    if found["digest"] not in sketches:
        raise InvalidValueError(
            f"the sketch {found['name']!r} ({found['digest']}) of a candidate is in an earlier "
            "object, which was not read"
        )
    return Candidate.from_config(sketches[found["digest"]], data["config"])


def _read_record(_: type[Any], data: Mapping[str, Any], sketches: Sketches) -> Record:
    return Record.from_json(data)


_READERS: Mapping[type[Any], Callable[[type[Any], Mapping[str, Any], Sketches], Any]] = {
    Candidate: _read_candidate,
    Record: _read_record,
}
