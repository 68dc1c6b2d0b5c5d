"""``--log FILE``: the events of a run as JSON lines, each written out as it occurs."""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from autotune.cli.output import warn
from autotune.errors import InvalidValueError
from autotune.sketches import Sketch
from autotune.tuning.events import Event, EventListener, event_to_json

__all__ = ["LineFile", "event_log"]


class LineFile:
    """A file that lines are appended to, each written out at once.

    A line that an earlier process, or a full disk, left unfinished stays a line of its own.
    When writing fails, ``warn`` is called once and nothing more is written.

    Args:
        path: The file; made if it does not exist. ``"-"`` is standard output.
        option: What the user calls it, such as ``"--log"``.
        warn: Takes a message for people.

    Raises:
        InvalidValueError: the file cannot be written.
    """

    def __init__(self, path: str, option: str, warn: Callable[[str], None]) -> None:
        self._named = f"{option} {path!r}"
        self._path = path
        self._warn = warn
        self._failed = False
        self._made = path != "-" and not os.path.lexists(path)
        try:
            self._descriptor, self._unfinished = _open(path)
        except OSError as error:
            if self._made:
                with suppress(OSError):
                    os.unlink(path)
            raise InvalidValueError(
                f"{self._named} cannot be written: {error.strerror}"
            ) from error

    @property
    def is_empty(self) -> bool:
        """True if nothing has been written to it, now or earlier."""
        return os.fstat(self._descriptor).st_size == 0

    def write(self, line: str) -> None:
        """Append a line."""
        if self._failed:
            return
        data = memoryview(f"{line}\n".encode())
        if self._unfinished:
            data = memoryview(b"\n" + data.tobytes())
        self._unfinished = True  # an interrupt can come between any two lines of this
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            self._failed = True
            self._warn(
                f"{self._named} can no longer be written ({error.strerror}); "
                "the run continues without it"
            )
            return
        self._unfinished = False

    def __enter__(self) -> LineFile:
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the file; one that was made here and is empty is removed."""
        if self._made and self.is_empty and _lock(self._descriptor):
            with suppress(OSError):
                os.unlink(self._path)
        os.close(self._descriptor)


def _open(path: str) -> tuple[int, bool]:
    """A descriptor that was tried, and whether the file ends in an unfinished line.

    Raises:
        OSError: it cannot be written.
    """
    if path == "-":
        return os.dup(sys.stdout.fileno()), False
    regular = not os.path.exists(path) or os.path.isfile(path)
    # Read as well, to see how the last line ends; a pipe would not show that it has no reader.
    flags = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_RDWR if regular else os.O_WRONLY)
    descriptor = os.open(path, flags, 0o666)
    try:
        unfinished = regular and _try_file(descriptor)
        removed = regular and os.fstat(descriptor).st_nlink == 0
        if not regular:
            os.write(descriptor, b"")
    except OSError:
        os.close(descriptor)
        raise
    if removed:
        # By the process that had made it, because nothing was in it.
        os.close(descriptor)
        return _open(path)
    return descriptor, unfinished


def _try_file(descriptor: int) -> bool:
    """Write a byte and take it back; returns whether the file ends in an unfinished line.

    A full disk lets files be made, and shows only then. Every writer of a log holds a shared lock
    on it, so that nothing of another process is taken back; while one writes, it is not tried.
    """
    if not _lock(descriptor):
        # Waits for one that tries it, too: what was written meanwhile would be taken back.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return False
    size = os.fstat(descriptor).st_size
    whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
    try:
        os.write(descriptor, b"\n")
    finally:
        os.ftruncate(descriptor, size)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return not whole


def _lock(descriptor: int) -> bool:
    """Take the lock for this process alone; returns whether no other process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def event_log(
    path: str | None, warn: Callable[[str], None] = warn, now: Callable[[], float] = time.time
) -> Iterator[list[EventListener]]:
    """Listeners that write the log while the body runs: one, or none where ``path`` is None.

    Args:
        path: As of :class:`LineFile`.
        warn: As of :class:`LineFile`.
        now: Unix time in seconds.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    if path is None:
        yield []
        return
    sketches: dict[str, Sketch] = {}
    with LineFile(path, "--log", warn) as file:

        def write(event: Event) -> None:
            data = event_to_json(event, now(), sketches)
            file.write(json.dumps(data, allow_nan=False))

        yield [write]
