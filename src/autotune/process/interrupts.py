"""Stopping at a moment of our choosing: Ctrl-C and SIGTERM while a run is under way."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from autotune.errors import AutotuneError

__all__ = ["InterruptGuard", "TuningInterrupted", "UserInterrupt", "is_of_user", "unless_done"]

# Ctrl-C is pressed twice, and process managers send a signal to a group and to its leader.
_REPEATED_SECONDS = 5.0


class TuningInterrupted(AutotuneError):
    """A run was stopped by the user; everything measured is recorded and the run can be resumed.

    Args:
        run_id: The run, as stored in the database.
        trials: Trials that were done.
        database: Where they are recorded.
    """

    def __init__(self, run_id: str, trials: int, database: str) -> None:
        self.run_id = run_id
        self.trials = trials
        self.database = database
        super().__init__(
            f"interrupted after {trials} trials, which are recorded in {database}; "
            "the same call resumes the run"
        )

    def __reduce__(self) -> tuple[type[TuningInterrupted], tuple[str, int, str]]:
        return type(self), (self.run_id, self.trials, self.database)


class UserInterrupt(KeyboardInterrupt):
    """An interrupt that a signal has caused; a ``KeyboardInterrupt`` that code raised is not."""


def is_of_user(error: BaseException) -> bool:
    """Return whether an error is an interrupt by the user, as far as that can be told.

    Where no :class:`InterruptGuard` handles signals, every ``KeyboardInterrupt`` may be one.
    """
    handler = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    if isinstance(handler, InterruptGuard):
        return isinstance(error, UserInterrupt)
    return isinstance(error, KeyboardInterrupt)


class InterruptGuard:
    """Turns SIGINT and SIGTERM into ``UserInterrupt``, except inside :meth:`shield`.

    Signals within five seconds after one that was raised repeat it: they change nothing, so that
    what it asked for is done to its end.

    A context manager. Signals reach only the main thread, and a program's own handlers are
    respected: elsewhere, or where a handler is installed, nothing is changed.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._raised_at = float("-inf")
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if handler in (signal.SIG_DFL, signal.default_int_handler):
                    self._previous[number] = handler
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self._raised_at < _REPEATED_SECONDS:
            return
        if self._depth:
            self._pending = True
        else:
            self._raise()

    def _raise(self) -> NoReturn:
        self._raised_at = time.monotonic()
        raise UserInterrupt

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Delay an interrupt to the end of the body, so that the body is done or not begun."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._pending and not self._depth:
                self._pending = False
                self._raise()


@contextmanager
def unless_done(give_up: Callable[[], None]) -> Iterator[None]:
    """Call ``give_up`` where what is inside is left by an error or an interrupt."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            give_up()
