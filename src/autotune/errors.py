"""Exceptions raised by autotune; every one of them is an `AutotuneError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "AutotuneError",
    "DatabaseDamaged",
    "DatabaseError",
    "InvalidValueError",
    "NoValidCandidate",
    "PluginError",
    "UnknownNameError",
    "UnsupportedTarget",
    "UnsupportedWorkload",
    "attribute_of",
    "did_you_mean",
    "near_attributes",
    "near_matches",
    "one_line",
]

# Of fewer letters, too many names begin alike.
_SHORTEST_BEGINNING = 3


class AutotuneError(Exception):
    """Base class of every error that autotune raises on purpose."""


class UnknownNameError(AutotuneError):
    """A name was asked for that does not exist.

    Args:
        kind: What sort of name it is, as a noun: `"strategy"`, `"preset"`, ...
        name: The name that was given.
        allowed: Every name that would have been accepted.
        extra: A sentence to end the message with, such as why a name may be missing.
    """

    def __init__(self, kind: str, name: str, allowed: Iterable[str], extra: str = "") -> None:
        self.kind = kind
        self.name = name
        self.allowed = tuple(sorted(allowed))
        self.extra = extra
        listed = ", ".join(self.allowed) if self.allowed else "none"
        message = f"unknown {kind} {name!r}; available: {listed}"
        hint = did_you_mean(near_matches(name, self.allowed))
        if hint:
            message += f".{hint}"
        if extra:
            message += f" {extra}" if hint else f". {extra}"
        super().__init__(message)

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, tuple[str, ...], str]]:
        # The default rebuilds an exception from its message alone, which this signature refuses;
        # errors do travel between processes.
        return type(self), (self.kind, self.name, self.allowed, self.extra)


class InvalidValueError(AutotuneError):
    """A value is of the wrong type, out of range, or contradicts another one."""


class UnsupportedWorkload(AutotuneError):
    """A workload cannot be expressed, scheduled or imported by the part that was given it."""


class UnsupportedTarget(AutotuneError):
    """A target cannot be described, detected or compiled for."""


class PluginError(AutotuneError):
    """A plugin could not be loaded, or what it registered is malformed."""


class DatabaseError(AutotuneError):
    """A database could not be opened, read or written."""


class DatabaseDamaged(DatabaseError):
    """A database file does not hold what was written to it."""


class NoValidCandidate(AutotuneError):
    """A tuning run ended without one candidate that built, ran and gave the right result."""


def near_matches(name: str, allowed: Iterable[str]) -> list[str]:
    """Returns up to two of `allowed` that look like `name`, ignoring case, best first.

    Where none does as a whole, those that begin like it: `"bert_base"` for `"bertt"`.
    """
    folded = name.casefold()
    by_folded = {candidate.casefold(): candidate for candidate in allowed}
    found = difflib.get_close_matches(folded, by_folded, n=2, cutoff=0.6)
    if not found and len(folded) >= _SHORTEST_BEGINNING:
        begins = {candidate[: len(folded)]: candidate for candidate in by_folded}
        close = difflib.get_close_matches(folded, begins, n=2, cutoff=0.75)
        found = [begins[beginning] for beginning in close]
    return [by_folded[candidate] for candidate in found]


def did_you_mean(matches: Sequence[str]) -> str:
    """Returns a question to put behind a sentence, as `" Did you mean 'tune'?"`; `""` for none."""
    return f" Did you mean {' or '.join(map(repr, matches))}?" if matches else ""


def near_attributes(found: object, name: str) -> list[str]:
    """Returns public attributes of `found` that resemble `name`, nearest first."""
    return near_matches(name, [it for it in dir(found) if not it.startswith("_")])


def attribute_of(found: object, path: str) -> Any:
    """Returns what a dotted path names in a module that a person named it in.

    Raises:
        AttributeError: There is none; names those that look like it.
    """
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            hint = did_you_mean(near_attributes(found, part))
            raise AttributeError(f"{error}.{hint}" if hint else str(error)) from error
    return found


def one_line(text: str, width: int = 120) -> str:
    """Returns `text` on one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."
