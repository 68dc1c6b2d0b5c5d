"""Counters of threads through the system call ``perf_event_open``, without a library."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import frozen

__all__ = ["Count", "Event", "EventUnavailable", "ThreadCounters"]

_SYSCALL_NUMBERS = {"x86_64": 298, "aarch64": 241}
_CLOSE_ON_EXEC = 1 << 3
_TOTAL_TIME_ENABLED_AND_RUNNING = 0b11
_DISABLED, _INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 0, 1 << 1, 1 << 5, 1 << 6
_PR_TASK_PERF_EVENTS_DISABLE, _PR_TASK_PERF_EVENTS_ENABLE = 31, 32

_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")

_LIBC = ctypes.CDLL(None, use_errno=True)


class EventUnavailable(Exception):
    """The kernel does not count this event for this process; the text says why."""


@frozen
class Event:
    """Something that the kernel counts: ``type`` and ``config`` of ``perf_event_attr``.

    ``user_only`` leaves out what happens inside the kernel, which needs no permission.
    """

    type: int
    config: int
    user_only: bool


@frozen
class Count:
    """A counter's value: events, and nanoseconds enabled and running.

    It runs for less than it should when there are more counters than the processor has.
    """

    value: int
    enabled: int
    running: int

    @property
    def scaled(self) -> float | None:
        """The value extrapolated to all of the time; None if it never ran while it should."""
        if self.running == 0:
            return None if self.enabled else 0.0
        return self.value * (self.enabled / self.running)


class ThreadCounters:
    """Counters of some events, of every given thread and of threads that these start later.

    All hooks are to be called by one and the same thread.

    Args:
        events: What to count.
        threads: Thread ids; those that have ended meanwhile are left out.

    Raises:
        EventUnavailable: an event cannot be counted; nothing stays open.
    """

    def __init__(self, events: Sequence[Event], threads: Iterable[int]) -> None:
        self._files: list[list[int]] = [[] for _ in events]
        try:
            for thread in threads:
                for files, event in zip(self._files, events, strict=True):
                    opened = _open(event, thread)
                    if opened is not None:
                        files.append(opened)
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start all counters."""
        # One call for all: the counting of those that began first hardly shows it.
        _LIBC.prctl(_PR_TASK_PERF_EVENTS_ENABLE, 0, 0, 0, 0)

    def stop(self) -> None:
        """Stop all counters."""
        _LIBC.prctl(_PR_TASK_PERF_EVENTS_DISABLE, 0, 0, 0, 0)

    def read(self) -> list[list[Count]]:
        """Counts of each event, one per thread."""
        return [
            [Count(*struct.unpack("QQQ", os.read(file, 24))) for file in files]
            for files in self._files
        ]

    def close(self) -> None:
        """Give the counters back."""
        for files in self._files:
            while files:
                os.close(files.pop())


def _open(event: Event, thread: int) -> int | None:
    """A stopped counter's file descriptor, or None where the thread has ended."""
    number = _SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        raise EventUnavailable(f"not known how to ask for counters on {platform.machine()}")
    flags = _DISABLED | _INHERIT | _EXCLUDE_HYPERVISOR
    if event.user_only:
        flags |= _EXCLUDE_KERNEL
    # struct perf_event_attr in its first version: type, size, config, sample period and type,
    # read format, flags, wake-up events, breakpoint type, config1.
    head = (event.type, 64, event.config, 0, 0, _TOTAL_TIME_ENABLED_AND_RUNNING, flags, 0, 0, 0)
    attributes = ctypes.create_string_buffer(struct.pack("IIQQQQQIIQ", *head), 64)
    file = _LIBC.syscall(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(thread),
        ctypes.c_int(-1),
        ctypes.c_int(-1),
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if file >= 0:
        return int(file)
    code = ctypes.get_errno()
    if code == errno.ESRCH:
        return None
    name = errno.errorcode.get(code, str(code))
    raise EventUnavailable(f"perf_event_open: {name}, {os.strerror(code)}{_permission(code)}")


def _permission(code: int) -> str:
    """The permission that an error lacks, if it is of that kind."""
    if code not in (errno.EACCES, errno.EPERM):
        return ""
    try:
        level = _PARANOID.read_text().strip()
    except OSError:  # a sandbox that hides it forbids the call itself
        return ""
    return f"; {_PARANOID.name} is {level}"
