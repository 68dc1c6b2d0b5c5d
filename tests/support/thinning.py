"""Many cases of one law: some are tried at every change, more by ``make test-slow``, all later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def thinned(cases: Iterable[Any], step: int, slow_step: int = 1) -> list[Any]:
    """Parameters for pytest: the first of every ``step`` is tried at every change.

    Of the others, the first of every ``slow_step`` is slow, and those that are left are long.
    A case of several parameters is a tuple.
    """
    found, others = [], 0
    for at, case in enumerate(cases):
        mark = []
        if at % step:
            mark = [pytest.mark.long if others % slow_step else pytest.mark.slow]
            others += 1
        found.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark))
    return found
