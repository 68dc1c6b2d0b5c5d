"""A clock for deadlines of workers that a busy machine does not make late."""

from __future__ import annotations

import os
import time

from process_facts import states_below

_LONGEST_STEP = 0.1
"""Seconds that pass at most between two readings: a host that was held up is not late, either."""


class PatientClock:
    """Seconds for which every process below this one sleeps.

    One that hangs, is stopped or keeps silent sleeps; one that is starved by others wants to run,
    and has all the time that it needs. What spins for ever is never late.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._read = time.monotonic()

    def __call__(self) -> float:
        now = time.monotonic()
        if not states_below(os.getpid()) & {"R", "D"}:
            self._seconds += min(now - self._read, _LONGEST_STEP)
        self._read = now
        return self._seconds
