"""A moment at which what this process does is given up, whatever code it is in."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType

from autotune.errors import AutotuneError

__all__ = ["Deadline"]


class Deadline:
    """Interrupts what is inside when the time is over.

    A context manager. Code of Python is interrupted at once, as by Ctrl-C; native code when it
    returns. Signals reach only the main thread: in another one nothing is interrupted, and what
    took too long is an error at its end.

    Args:
        seconds: From entering to the moment; may be infinite, or over already.
        error: Makes what is raised.
        give_up: Called, in another thread, with that error where what is inside still goes on
            ``grace`` seconds after; by default there is no such end.
        grace: How long native code may take to return, in seconds.
    """

    def __init__(
        self,
        seconds: float,
        error: Callable[[], AutotuneError],
        give_up: Callable[[AutotuneError], object] | None = None,
        grace: float = 3.0,
    ) -> None:
        self._seconds = seconds
        self._error = error
        self._give_up = give_up
        self._grace = grace
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._is_over = False

    def __enter__(self) -> Deadline:
        if self._seconds <= 0:
            raise self._error()
        if math.isfinite(self._seconds):
            current = threading.current_thread()
            interrupted = current.ident if current is threading.main_thread() else None
            self._end = time.monotonic() + self._seconds
            try:
                threading.Thread(target=self._watch, args=(interrupted,), daemon=True).start()
            except KeyboardInterrupt:
                # It may come before there is anything to interrupt.
                if self._is_over:
                    raise self._error() from None
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # Once the lock is had, an interrupt has come, or none will.
            with self._lock:
                self._done.set()
        except KeyboardInterrupt:
            # It may have come before that was said, and nothing is to be given up any more.
            self._done.set()
            if not self._is_over:
                raise
        if self._is_over:
            raise self._error() from error

    def _watch(self, thread: int | None) -> None:
        if self._done.wait(max(0.0, self._end - time.monotonic())):
            return
        with self._lock:
            if self._done.is_set():
                return
            self._is_over = True
            if thread is not None:
                signal.pthread_kill(thread, signal.SIGINT)
        if self._give_up is not None and not self._done.wait(self._grace):
            self._give_up(self._error())
