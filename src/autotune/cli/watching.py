"""Watching a run: the display on standard error, and the log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from attrs import frozen

from autotune.cli.event_log import event_log
from autotune.cli.machine import BusyWarning
from autotune.cli.progress import chosen_mode, progress
from autotune.errors import InvalidValueError
from autotune.tuning.events import EventListener

__all__ = ["Watching"]

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
