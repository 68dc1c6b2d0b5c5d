"""Load of the machine: latencies measured beside other programs are too high."""

from __future__ import annotations

import os
import time
from pathlib import Path

from autotune.cli.output import notify
from autotune.tuning.events import Event, RunStarted

__all__ = ["MOST_BUSY_CORES", "BusyWarning", "busy_cores"]

MOST_BUSY_CORES = 0.25
_LOOK_SECONDS = 0.1
_STAT = Path("/proc/stat")


class BusyWarning:
    """A listener that says, when a run starts, that other programs keep the machine busy.

    It looks when it is made, before workers of our own are at work; a call that is refused, or
    answered from records, is not bothered with it.
    """

    def __init__(self) -> None:
        self._busy = busy_cores()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RunStarted) and self._busy > MOST_BUSY_CORES:
            notify(
                f"autotune: warning: other programs keep {self._busy:.1f} cores busy, so the "
                "latencies recorded now are too high (--fresh measures again)"
            )
            self._busy = 0.0  # once for all tasks


def busy_cores(seconds: float = _LOOK_SECONDS, path: Path = _STAT) -> float:
    """Cores that are kept busy while this process sleeps; 0 where that is unknown."""
    before = _busy_ticks(path)
    start = time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - start
    return max(0.0, (_busy_ticks(path) - before) / os.sysconf("SC_CLK_TCK") / passed)


def _busy_ticks(path: Path) -> int:
    try:
        fields = path.read_text(encoding="ascii").splitlines()[0].split()[1:]
        user, nice, system, _idle, _wait, irq, softirq = map(int, fields[:7])
    except (OSError, ValueError, IndexError):
        return 0
    return user + nice + system + irq + softirq
