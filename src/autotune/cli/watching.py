"""Watching a run: the display on standard error, the log, and the load of the machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TextIO

from attrs import frozen

from autotune.cli.event_log import event_log
from autotune.cli.output import notify
from autotune.cli.progress import chosen_mode, progress
from autotune.errors import InvalidValueError
from autotune.tuning.events import Event, EventListener, RunStarted

__all__ = ["MOST_BUSY_CORES", "BusyWarning", "Watching", "busy_cores"]

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


ShowProgress = Callable[[TextIO, str], AbstractContextManager[list[EventListener]]]


@frozen
class Watching:
    """Choices of ``--progress``, ``--quiet`` and ``--log``.

    Attributes:
        mode: ``live``, ``plain`` or ``quiet``, which leaves the warnings.
        log_path: The log's file, ``"-"`` for standard output, None for none.
    """

    mode: str
    log_path: str | None

    @staticmethod
    def read(mode: str | None, quiet: bool, log_path: str | None) -> Watching:
        """From the options' values.

        Raises:
            InvalidValueError: one option contradicts another, or what standard error is.
        """
        if quiet and mode not in (None, "quiet"):
            raise InvalidValueError(f"--quiet contradicts --progress {mode}")
        asked = "quiet" if quiet else mode or "auto"
        return Watching(chosen_mode(asked, sys.stderr), log_path)

    @contextmanager
    def listeners(
        self, show: ShowProgress = progress, *, looks_at_machine: bool = True
    ) -> Iterator[list[EventListener]]:
        """Listeners that write the log and show progress while the body runs.

        Args:
            show: Shows progress.
            looks_at_machine: Whether to say, unless little is to be shown, that other programs
                keep the machine busy.

        Raises:
            InvalidValueError: the log cannot be written.
        """
        busy = [BusyWarning()] if looks_at_machine and self.mode != "quiet" else []
        with event_log(self.log_path) as logs, show(sys.stderr, self.mode) as shown:
            yield [*logs, *busy, *shown]
