"""From what a run has come to, to a number or to the reason why there is none."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from autotune.errors import one_line
from autotune.external.program import ExternalProgram, Read
from autotune.process.channel import Message
from autotune.process.keeper_process import describe_exit
from autotune.store.records import Outcome

__all__ = ["build_failure", "run_failure", "seconds_of"]

_SHOWN = 200
_MESSAGE = 2000


class _NoResult(ValueError):
    """There is no number; the message says why."""


def build_failure(body: Message, timeout: float) -> Outcome | None:
    """The outcome of a build that has failed, with the last words of the compiler; or None.

    Args:
        body: As of :func:`autotune.external.jobs.run_command`, or ``{"died": how}``.
        timeout: Seconds that it could take.
    """
    timings = {"build": float(body.get("seconds", 0.0))}
    if (early := _ended_early(body, "build", timeout)) is not None:
        return Outcome(early[0], timings=timings, message=early[1])
    if body["status"] == 0:
        return None
    said = body["stderr"].strip() or body["stdout"].strip()
    how = describe_exit(body["status"])
    return Outcome("build_error", timings=timings, message=f"{how}{_words(said)}")


def run_failure(body: Message, timeout: float) -> Outcome | None:
    """The outcome of a run that has failed, or None; as of :func:`build_failure`."""
    timings = {"run": float(body.get("seconds", 0.0))}
    if (early := _ended_early(body, "run", timeout)) is not None:
        return Outcome(early[0], timings=timings, message=early[1])
    if body.get("raised"):
        return Outcome("crash", timings=timings, message=f"it raised {body['raised']}")
    if body["status"] == 0:
        return None
    said = body["stderr"].strip() or body["stdout"].strip()
    message = f"{describe_exit(body['status'])} in run{_words(said)}"
    return Outcome("crash", timings=timings, message=message)


def seconds_of(program: ExternalProgram, body: Message) -> float | Outcome:
    """Seconds that a run counts as, or the outcome of a run whose result is none.

    Args:
        program: Says where the result is.
        body: Of one run, or ``wall`` and ``value`` of a call.
    """
    try:
        number = _number(program.read, body)
        if not math.isfinite(number) or number <= 0:
            raise _NoResult(f"the result is {number!r}; it must be a positive number")
        seconds = program.seconds(number)
        if not 0 < seconds < math.inf:
            raise _NoResult(f"the result {number!r} {program.unit} is beyond all times")
    except _NoResult as error:
        return Outcome("invalid", message=str(error))
    return seconds


def _number(read: Read, body: Message) -> float:
    if read.source == "wall":
        return float(body["wall"] if "wall" in body else body["seconds"])
    if read.source == "function":
        if body["value"] is None:
            raise _NoResult("the function returned None, and no seconds")
        return float(body["value"])
    printed = body["stdout"]
    if read.source == "json":
        return _field(printed, read.field)
    match = re.search(read.pattern, printed)
    if match is None:
        raise _NoResult(f"{read.pattern!r} matches nothing in {_shown(printed)}")
    try:
        return float(match[1])
    except (TypeError, ValueError):
        raise _NoResult(f"{read.pattern!r} finds {match[1]!r}, which is no number") from None


def _field(printed: str, path: str) -> float:
    found = _parsed(printed)
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            raise _NoResult(f"there is no field {path!r} in {_shown(printed)}")
        found = found[key]
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise _NoResult(f"field {path!r} is {found!r:.80}, which is no number")
    try:
        return float(found)
    except OverflowError:
        raise _NoResult(f"field {path!r} is larger than any time") from None


def _parsed(printed: str) -> Any:
    """The JSON that is all of it, or its last line."""
    for text in (printed, printed.strip().rpartition("\n")[2]):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    raise _NoResult(f"it printed no JSON: {_shown(printed)}")


def _ended_early(body: Message, phase: str, timeout: float) -> tuple[str, str] | None:
    """Status and message of what was killed, or never started."""
    if "died" in body:
        return "crash", f"the worker was lost in {phase}: {body['died']}"
    if body["ended"] == "timeout":
        return "timeout", f"{phase} took longer than {timeout:g} s"
    if body["ended"] == "output":
        return "invalid", f"{phase} printed more than can be kept"
    if body["status"] is None:
        return ("build_error" if phase == "build" else "crash"), body["stderr"]
    return None


def _words(said: str) -> str:
    return f": {said[-_MESSAGE:]}" if said else ""


def _shown(text: str) -> str:
    return repr(one_line(text, _SHOWN)) if text.strip() else "what it printed, which is nothing"
