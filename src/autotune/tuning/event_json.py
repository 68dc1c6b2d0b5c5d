"""Events as JSON objects and back, as ``--log`` writes them, one per line.

Every object holds ``event`` (the kind), ``version``, ``time`` (Unix seconds) and the fields of
the event. Attributes that are data keep their names; numbers that JSON has no form for are the
texts ``"inf"``, ``"-inf"`` and ``"nan"``. A candidate is written with its sketch; where a
sequence of events is written, only the first of a sketch's candidates carries it.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Sketch
from autotune.store.records import WRITTEN_WHEN_SET, Outcome, Record
from autotune.tuning.events import LATER, Event

__all__ = ["EVENT_VERSION", "event_from_json", "event_name", "event_to_json", "read_events"]

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
