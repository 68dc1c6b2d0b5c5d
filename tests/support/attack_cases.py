"""Cases of attacks: a few are tried at every change, more by ``make test-slow``, all later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def sampled(
    cases: Mapping[str, Any] | Iterable[str],
    now: int,
    slow: int = 0,
    always: Iterable[str] = (),
    least: int = 0,
) -> list[Any]:
    """Parameters for pytest: the value of each case, with its name as id.

    Args:
        cases: By name; without values, their names are the values.
        now: How many of them, spread evenly, are tried at every change.
        slow: How many more are slow; those that are left are long.
        always: Names of further cases that are tried at every change.
        least: The fewest cases that there have to be.
    """
    named = dict(cases) if isinstance(cases, Mapping) else {name: name for name in cases}
    assert len(named) >= least and named.keys() >= set(always)
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
    """Tell whether a place is among ``count`` that are spread evenly over ``total``."""
    return at * count // total != (at - 1) * count // total
