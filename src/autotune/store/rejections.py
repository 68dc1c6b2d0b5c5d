"""Reasons of rejected candidates, as classes that can be counted.

Messages name what was rejected: sizes, addresses, files. A class is what is left without
these, so that a hundred failures with one cause are one class with a count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import frozen

from autotune.store.records import Outcome

__all__ = ["Rejection", "describe_rejections", "reject_reason"]

_MOST_CHARACTERS = 100

_TIMEOUT = re.compile(r"(\w+) took more than ")
_DEATH = re.compile(r"worker failed during (\w+): (.*)")
_SIGNAL = re.compile(r"killed by (SIG\w+|signal \d+)")
_STATUS = re.compile(r"exited with status (\d+)")

# Types are kept: a number in them is part of a name.
_TYPE = r"\b(?:float|bfloat|uint|int)\d+\b"
_PATH = r"(?<![\w/])~?(?:/[\w.+@~%-]+){2,}/?(?::\d+)*"
_HEX = r"\b0x[0-9a-fA-F]+\b|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8,}\b"
_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_VARYING = re.compile(f"(?P<type>{_TYPE})|(?P<path>{_PATH})|(?P<hex>{_HEX})|{_NUMBER}")
_LIST = re.compile(r"N(?:, ?N)+")


@frozen
class Rejection:
    """Candidates of a run that were rejected for one reason.

    Attributes:
        count: How many.
        message: What was said of the first of them.
    """

    count: int
    message: str


def reject_reason(outcome: Outcome) -> str:
    """A short class for what went wrong, on one line; "" for a candidate that is ok.

    It begins with the status: ``"timeout: run"``, ``"crash: SIGSEGV in run"``,
    ``"wrong_result"``, ``"build_error: InternalError: ..."``. Numbers are written ``N`` and paths
    ``PATH``.
    """
    if outcome.ok:
        return ""
    line = _telling_line(outcome.message)
    timeout, death = _TIMEOUT.match(line), _DEATH.fullmatch(line)
    if outcome.status == "timeout" and timeout:
        return f"timeout: {timeout[1]}"
    if outcome.status == "crash" and death:
        return f"crash: {_how_it_died(death[2])} in {death[1]}"
    if outcome.status == "wrong_result" and "elements are wrong" in line:
        return "wrong_result"
    text = _without_particulars(line)
    return f"{outcome.status}: {text}" if text else outcome.status


def describe_rejections(counts: Mapping[str, int], most: int = 4) -> str:
    """``"12 timeout: run; 3 crash: SIGSEGV in run; 5 more"``: the most frequent ones first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {reason}" for reason, count in ordered[:most]]
    rest = sum(count for _, count in ordered[most:])
    return "; ".join([*parts, f"{rest} more"] if rest else parts)


def _telling_line(message: str) -> str:
    """The first line, or the last one where a traceback comes first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if "Traceback (most recent call last)" in lines[0] else lines[0]


def _how_it_died(text: str) -> str:
    killed, ended = _SIGNAL.match(text), _STATUS.match(text)
    if killed:
        return killed[1]
    return f"exit status {ended[1]}" if ended else _without_particulars(text)


def _without_particulars(line: str) -> str:
    text = _LIST.sub("N", _VARYING.sub(_placeholder, line))
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def _placeholder(match: re.Match[str]) -> str:
    return match["type"] or ("PATH" if match["path"] else "N")
