"""What any JSON value of a record may be, before it is read as one."""

from __future__ import annotations

import math
from typing import Any

from autotune.errors import InvalidValueError

__all__ = ["INT64", "MOST_DEPTH", "check_content"]

INT64 = 1 << 63
"""Integers of records are smaller, and at least as large as its negative."""

MOST_DEPTH = 200
"""Lists and objects within each other. Expressions of programs have a few dozen."""


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
    """What is wrong with a text or a number."""
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
