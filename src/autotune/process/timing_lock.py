"""Processes of one user that time on the same processors take turns.

One file of the host has two bytes for each processor. A lock on the first gives the right to time
there, and a lock on the second the right to wait for the first: who has just timed queues behind
who waits already. The kernel releases both however a process ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from attrs import define, field

from autotune.process.stopwatch import Clock

__all__ = ["BUSY_VARIABLE", "TimingLock"]

BUSY_VARIABLE = "AUTOTUNE_ALLOW_BUSY_CPU"
"""Environment variable that, set to 1, has a process time beside others."""

# All of a host's processes of a user see these, whatever their environment is.
_FOLDERS = ("/run/lock", "/dev/shm", "/tmp")
# ``struct flock`` of Linux: kind, origin, start, length, process.
_LOCK = "hhqqi"
_TELL_SECONDS, _MOST_SECONDS = 5.0, 300.0
# Who has asked once and not since does not wait any more.
_FORGOTTEN_SECONDS = 1.0


@define(eq=False)
class _Bytes:
    """Bytes that this process has locked; all that time in it share that.

    A lock belongs to an open file: a forked process opens its own.

    Attributes:
        owner: Process id.
        descriptor: The file.
        users: How many have locked a byte.
    """

    owner: int
    descriptor: int
    users: Counter[int] = field(factory=Counter)

    def lock_all(self, numbers: Collection[int]) -> bool:
        """Lock these bytes, or none."""
        done: list[int] = []
        for number in sorted(numbers):
            if not self.users[number] and not self._set(fcntl.F_WRLCK, number):
                self.unlock(done)
                return False
            self.users[number] += 1
            done.append(number)
        return True

    def unlock(self, numbers: Collection[int]) -> None:
        """Do without these bytes, which stay locked as long as another needs them."""
        for number in numbers:
            self.users[number] -= 1
            if not self.users[number]:
                self._set(fcntl.F_UNLCK, number)

    def _set(self, kind: int, number: int) -> bool:
        request = struct.pack(_LOCK, kind, os.SEEK_SET, number, 1, 0)
        try:
            fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True


_guard = threading.Lock()
_opened: dict[Path, _Bytes] = {}


def _bytes_of(path: Path) -> _Bytes:
    """The locks of this process in a file.

    Raises:
        OSError: it cannot be opened, or is another user's.
    """
    found = _opened.get(path)
    if found is not None and found.owner != os.getpid():
        # Of the process that this one was forked from, which keeps it.
        os.close(found.descriptor)
        found = None
    if found is None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        if os.fstat(descriptor).st_uid != os.getuid():
            os.close(descriptor)
            raise PermissionError(f"{path} belongs to another user")
        found = _opened[path] = _Bytes(os.getpid(), descriptor)
    return found


def _default_path() -> Path:
    folders = [name for name in _FOLDERS if os.path.isdir(name) and os.access(name, os.W_OK)]
    return Path(folders[0] if folders else _FOLDERS[-1]) / f"autotune.timing-{os.getuid()}.lock"


def _distinct(numbers: Collection[int]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


@define(eq=False)
class TimingLock:
    """The right to time on some processors, which no other process of this user has meanwhile.

    All of one process share it. It is asked for again and again, so that what waits can do
    something else, and be interrupted. After five minutes without it, as beside a process that has
    been stopped, a warning says so, and nothing waits any more.

    Attributes:
        processors: Numbers of logical CPUs; none to lock nothing.
        clock: Monotonic seconds.
        path: The file; None for that of the host.
    """

    processors: tuple[int, ...] = field(default=(), converter=_distinct)
    clock: Clock = time.monotonic
    path: Path | None = None
    _held: _Bytes | None = field(default=None, init=False)
    _queued: _Bytes | None = field(default=None, init=False)
    _depth: int = field(default=0, init=False)
    _since: float | None = field(default=None, init=False)
    _asked: float = field(default=0.0, init=False)
    _patience: float = field(default=_MOST_SECONDS, init=False)
    _warnings: dict[str, bool] = field(factory=dict, init=False)

    @property
    def is_held(self) -> bool:
        """True if it has been acquired, and not released as often."""
        return self._depth > 0

    @property
    def is_waiting(self) -> bool:
        """True if it was asked for, and another process has it."""
        return self._since is not None

    def acquire(self) -> bool:
        """Return whether timing may begin; ask again soon where it may not. Counts."""
        if not self._depth and self.processors and os.environ.get(BUSY_VARIABLE) != "1":
            now = self._asked = self.clock()
            self._since = now if self._since is None else self._since
            if not self._lock() and not self._waits_no_longer(now - self._since):
                return False
            self._since = None
        self._depth += 1
        return True

    def release(self) -> None:
        """Undo one :meth:`acquire`; without any, stop waiting."""
        self._depth = max(0, self._depth - 1)
        if not self._depth:
            self._drop(also_held=True)

    def tend(self) -> None:
        """Stop waiting if nothing has asked lately; called now and then by who asks."""
        if self._queued is not None and self.clock() - self._asked > _FORGOTTEN_SECONDS:
            self._drop(also_held=False)

    def take_warnings(self) -> list[str]:
        """Return what a person should know; each message only once."""
        new = [message for message, taken in self._warnings.items() if not taken]
        self._warnings.update(dict.fromkeys(new, True))
        return new

    def _lock(self) -> bool:
        rights = [2 * number for number in self.processors]
        queue = [2 * number + 1 for number in self.processors]
        with _guard:
            try:
                state = _bytes_of(self.path or _default_path())
                if self._queued is None and state.lock_all(queue):
                    self._queued = state
                if self._queued is None or not state.lock_all(rights):
                    return False
                self._held = state
                state.unlock(queue)
                self._queued = None
            except OSError as error:
                self._warnings.setdefault(
                    "runs at the same time on this machine may disturb each other's timings: "
                    f"CPUs cannot be locked: {error}",
                    False,
                )
        self._patience = _MOST_SECONDS
        return True

    def _waits_no_longer(self, seconds: float) -> bool:
        which = "CPU" if len(self.processors) == 1 else "CPUs"
        where = f"{which} {', '.join(map(str, self.processors))}"
        if seconds >= _TELL_SECONDS:
            self._warnings.setdefault(
                f"another process of autotune times on {where}, too: they take turns "
                f"({BUSY_VARIABLE}=1 does not wait)",
                False,
            )
        if seconds < self._patience:
            return False
        if self._patience:
            self._warnings.setdefault(
                f"another process of autotune has kept {where} for {seconds:.0f} s: this one "
                "waits no longer, and its timings may be disturbed",
                False,
            )
        self._patience = 0.0
        self._drop(also_held=False)
        return True

    def _drop(self, *, also_held: bool) -> None:
        self._since = None
        with _guard:
            if self._queued is not None and self._queued.owner == os.getpid():
                self._queued.unlock([2 * number + 1 for number in self.processors])
            self._queued = None
            if also_held:
                if self._held is not None and self._held.owner == os.getpid():
                    self._held.unlock([2 * number for number in self.processors])
                self._held = None
