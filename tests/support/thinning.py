"""Many cases of one law: some are tried at every change, the others by ``make test-slow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["thinned"]


def thinned(cases: Iterable[Any], step: int) -> list[Any]:
    """Parameters for pytest, of which all but the first of every ``step`` are slow.

    A case of several parameters is a tuple.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.slow] if at % step else [],
        )
        for at, case in enumerate(cases)
    ]
