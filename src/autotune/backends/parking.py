"""Waiting until the threads of a runtime, which watch for work before they sleep, are asleep."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

__all__ = ["park_threads"]

_SECONDS = 1.0
_POLL_SECONDS = 5e-4


def park_threads() -> None:
    """Wait until no other thread of this process runs, for a second at most.

    After a parallel loop the threads of a pool poll for the next one before they sleep, some
    milliseconds long. On a machine so busy that a second does not suffice for that, they are
    not what disturbs.
    """
    deadline = time.monotonic() + _SECONDS
    while _others_run() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _others_run() -> bool:
    """Tell whether any thread of this process but the calling one is running or wants to."""
    own = threading.get_native_id()
    for thread in os.listdir("/proc/self/task"):
        if int(thread) == own:
            continue
        try:
            stat = Path(f"/proc/self/task/{thread}/stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if stat.rpartition(")")[2].split()[0] == "R":
            return True
    return False
