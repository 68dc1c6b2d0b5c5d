"""Cases of attacks: a few are tried at every change, some by ``make test-slow``, all before a release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

__all__ = ["WAYS", "sampled"]

WAYS = {
    "hostile record": 200,
    "bad command line": 200,
    "faulty backend": 60,
    "faulty plugin": 40,
    "kill": 100,
    "file damage": 100,
    "environment": 30,
}
"""Classes of attacks, and the fewest cases of each."""


def sampled(
    cases: Mapping[str, Any] | Iterable[str], now: int, slow: int = 0, always: Iterable[str] = ()
) -> list[Any]:
    """Parameters for pytest: the value of each case, with its name as id.

    Args:
        cases: By name; without values, their names are the values.
        now: How many of them, spread evenly, are tried at every change.
        slow: How many more are slow; those that are left are long.
        always: Names of further cases that are tried at every change.
    """
    named = dict(cases) if isinstance(cases, Mapping) else {name: name for name in cases}
    missing = set(always) - named.keys()
    assert not missing, missing
    found, total = [], len(named)
    for at, (name, value) in enumerate(named.items()):
        if name in always or is_chosen(at, now, total):
            mark = []
        elif is_chosen(at, now + slow, total):
            mark = [pytest.mark.slow]
        else:
            mark = [pytest.mark.long]
        found.append(pytest.param(value, id=name, marks=mark))
    return found


def is_chosen(at: int, count: int, total: int) -> bool:
    """Whether a place is among ``count`` that are spread evenly over ``total``."""
    return at * count // total != (at - 1) * count // total
