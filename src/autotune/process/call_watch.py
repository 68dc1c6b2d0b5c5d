"""Calls of plugins that end the process or never return: another process names them."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from contextlib import ExitStack
from contextvars import ContextVar
from pathlib import Path

from autotune.process.errors import WorkerStartFailed

__all__ = ["CALL_SECONDS", "CallWatch", "under_watch"]

CALL_SECONDS = 900.0
"""Time limit for one call of a plugin in this process."""

_GRACE_SECONDS = 15.0
_SCRIPT = str(Path(__file__).with_name("watcher.py"))
_BYTES = 1 << 12
_HEADER_BYTES = 8
_CALLS = 1 << 31
_WATCH: ContextVar[CallWatch | None] = ContextVar("watch", default=None)


class CallWatch:
    """A process beside this one that says which call it was, if one ends or holds up this process.

    A context manager, for the main thread: it interrupts and, at last, kills the process. Calls
    are told by :func:`under_watch`; only the outermost counts.

    Args:
        seconds: How long a call may take.
        grace: How long it may go on after it was interrupted.

    Raises:
        WorkerStartFailed: no process can be started.
    """

    def __init__(self, seconds: float = CALL_SECONDS, grace: float = _GRACE_SECONDS) -> None:
        self._seconds = seconds
        self._grace = grace
        self._calls = 0
        self._depth = 0
        self._ending = ExitStack()

    def __enter__(self) -> CallWatch:
        try:
            with ExitStack() as on_failure:
                self._start(on_failure)
                self._ending = on_failure.pop_all()
        except OSError as error:
            raise WorkerStartFailed(f"cannot start a process: {error}") from error
        token = _WATCH.set(self)
        self._ending.callback(_WATCH.reset, token)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ending.close()

    def begin(self, call: str, *, timed: bool = True) -> None:
        """A call begins.

        Args:
            call: Names plugin and function.
            timed: Whether it has a deadline.
        """
        self._depth += 1
        if self._depth == 1:
            text = call.encode("utf-8", "replace")[: _BYTES - _HEADER_BYTES]
            self._calls += 1
            self._memory[_HEADER_BYTES : _HEADER_BYTES + len(text)] = text
            self._write(self._calls % _CALLS + 1 if timed else 0, len(text))

    def end(self) -> None:
        """The call that began last has returned or raised."""
        self._depth -= 1
        if self._depth == 0:
            self._write(0, 0)

    def _write(self, number: int, length: int) -> None:
        header = number.to_bytes(4, "little") + length.to_bytes(4, "little")
        self._memory[:_HEADER_BYTES] = header

    def _start(self, ending: ExitStack) -> None:
        descriptor = os.memfd_create("calls")
        ending.callback(os.close, descriptor)
        os.ftruncate(descriptor, _BYTES)
        self._memory = mmap.mmap(descriptor, _BYTES)
        ending.callback(self._memory.close)
        # Its end tells the watcher at once that this process is gone.
        theirs, ours = os.pipe()
        ending.callback(os.close, ours)
        try:
            arguments = [str(descriptor), str(theirs), str(os.getpid())]
            arguments += [str(self._seconds), str(self._grace)]
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", _SCRIPT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(descriptor, theirs),
                # What a terminal sends is for the host.
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        ending.callback(process.wait)
        ending.callback(process.kill)


def under_watch() -> CallWatch | None:
    """Return the watch over the calls of this thread, if there is any."""
    return _WATCH.get()
