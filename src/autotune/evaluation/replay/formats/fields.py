"""Reading JSON of others: one strict look at every value, and one line on what is wrong."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.spaces.parameters import Value

__all__ = [
    "SECONDS",
    "checked",
    "checked_time",
    "checked_unit",
    "checked_value",
    "parse_json",
    "read_text",
]

MOST_BYTES = 1 << 30
"""A file whose text is longer is refused before it is parsed."""

SECONDS: Mapping[str, float] = {
    **dict.fromkeys(("s", "seconds"), 1.0),
    # As files of the T4 format spell it.
    **dict.fromkeys(("ms", "milliseconds", "miliseconds"), 1e-3),
    **dict.fromkeys(("us", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
}
"""Seconds of each unit of time, by the names that files have for it."""

Kind = TypeVar("Kind", dict[str, Any], list[Any], str)
_NOUNS: Mapping[type, str] = {dict: "an object", list: "a list", str: "a text"}
_GZIP = b"\x1f\x8b"
_MOST_SHOWN = 60


def read_text(path: str) -> str:
    """The text of a file, unpacked where it is packed by gzip.

    Raises:
        InvalidValueError: it cannot be read, is too long, or no text.
    """
    try:
        with Path(path).open("rb") as stream:
            packed = stream.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else Path(path).open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InvalidValueError(f"{path!r} cannot be unpacked: {error}") from error
    except OSError as error:
        raise InvalidValueError(f"{path!r} cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise InvalidValueError(f"{path!r} holds more than {MOST_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{path!r} is no text: {error}") from error


def parse_json(text: str) -> Any:
    """A JSON value; no key of an object may be there twice.

    Raises:
        InvalidValueError: a key is there twice, or values are nested too deep.
        ValueError: it is no JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise InvalidValueError("its values are nested too deep") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise InvalidValueError(f"{twice[:_MOST_SHOWN]!r} is there twice")
    return found


def checked(kind: type[Kind], data: Any, where: str) -> Kind:
    """``data``, which has to be an object, a list or a text (``dict``, ``list`` or ``str``).

    Raises:
        InvalidValueError: it is another value.
    """
    if not isinstance(data, kind):
        raise InvalidValueError(f"{where} is not {_NOUNS[kind]}: {_shown(data)}")
    return data


def checked_time(data: Any, where: str) -> float:
    """``data``, which has to be a number, finite and not negative.

    Raises:
        InvalidValueError: it is not.
    """
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise InvalidValueError(f"{where} is not a number: {_shown(data)}")
    if not (math.isfinite(data) and data >= 0):
        raise InvalidValueError(f"{where} is {data}, which is no time")
    return float(data)


def checked_value(data: Any, where: str) -> Value:
    """``data``, which has to be a value that a parameter can have.

    Raises:
        InvalidValueError: it is not: a list, an object, null, or a number that is not finite.
    """
    if not isinstance(data, (bool, int, float, str)):
        raise InvalidValueError(f"{where} is no value of a parameter: {_shown(data)}")
    if isinstance(data, float) and not math.isfinite(data):
        raise InvalidValueError(f"{where} is no value of a parameter: {data}")
    return data


def checked_unit(name: Any, where: str) -> float:
    """Seconds of the unit of this name.

    Raises:
        UnknownNameError: there is none.
    """
    text = checked(str, name, where).lower()
    if text not in SECONDS:
        raise UnknownNameError(f"unit of time in {where}", text, SECONDS)
    return SECONDS[text]


def required(data: Mapping[str, Any], key: str, where: str) -> Any:
    """Return an object's value of a key, which it must have.

    Raises:
        InvalidValueError: it has nothing there.
    """
    if key not in data:
        raise InvalidValueError(f"{where} lacks {key!r}")
    return data[key]


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."
