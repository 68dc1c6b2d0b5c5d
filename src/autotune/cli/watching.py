"""Watching a run: the display on standard error, and the log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from autotune.cli.event_log import event_log
from autotune.cli.machine import BusyWarning
from autotune.cli.progress import chosen_mode, progress
from autotune.errors import InvalidValueError
from autotune.tuning.events import EventListener

__all__ = ["Watching"]


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
        self, *, network: bool = False, verbose: bool = False, looks_at_machine: bool = True
    ) -> Iterator[list[EventListener]]:
        """Listeners that write the log and show progress while the body runs.

        Args:
            network: As of :func:`autotune.cli.progress.progress`, like ``verbose``.
            verbose: Whether to show every graph pass.
            looks_at_machine: Whether to say, unless little is to be shown, that other programs
                keep the machine busy.

        Raises:
            InvalidValueError: the log cannot be written.
        """
        busy = [BusyWarning()] if looks_at_machine and self.mode != "quiet" else []
        shows = progress(sys.stderr, self.mode, network=network, verbose=verbose)
        with event_log(self.log_path) as logs, shows as shown:
            yield [*logs, *busy, *shown]
