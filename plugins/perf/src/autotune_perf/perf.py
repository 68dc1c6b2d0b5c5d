"""Counters of the processor and the kernel for the calls of a program."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from autotune.measure.observers import Availability, Observer
from autotune.plugins import Context

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


__all__ = ["Count", "Event", "EventUnavailable", "PerfObserver", "ThreadCounters"]

_HARDWARE, _SOFTWARE = 0, 1

# The processor's counters count user space only: that needs no permission.
_HARDWARE_EVENTS: Mapping[str, Event] = {
    "cycles_per_call": Event(_HARDWARE, 0, user_only=True),
    "instructions_per_call": Event(_HARDWARE, 1, user_only=True),
    "cache_references_per_call": Event(_HARDWARE, 2, user_only=True),
    "cache_misses_per_call": Event(_HARDWARE, 3, user_only=True),
    "branches_per_call": Event(_HARDWARE, 4, user_only=True),
    "branch_misses_per_call": Event(_HARDWARE, 5, user_only=True),
}
# A thread moves while it is in the kernel: without permission to count there, none is ever seen.
_SOFTWARE_EVENTS: Mapping[str, Event] = {
    "cpu_migrations_per_call": Event(_SOFTWARE, 4, user_only=False),
}
_EVENTS: Mapping[str, Event] = {**_HARDWARE_EVENTS, **_SOFTWARE_EVENTS}
# These come from the process's account, which is there everywhere and includes every thread.
_ACCOUNT = ("page_faults_per_call", "context_switches_per_call", "cpu_seconds_per_call")
_BUILD = ("build_page_faults", "build_cpu_seconds")


@frozen
class _Account:
    """Resource usage of this process so far: faults, switches, seconds."""

    page_faults: int
    context_switches: int
    cpu_seconds: float

    @staticmethod
    def now() -> _Account:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return _Account(
            usage.ru_minflt + usage.ru_majflt,
            usage.ru_nvcsw + usage.ru_nivcsw,
            usage.ru_utime + usage.ru_stime,
        )


class PerfObserver(Observer):
    """Hardware and kernel counters per call, over all threads of the process."""

    name = "perf"

    def __init__(self, context: Context | None = None) -> None:
        self._events: dict[str, Event] = {}
        self._counters: ThreadCounters | None = None
        self._before = self._after = _Account.now()
        self._build_before = self._build_after = self._before

    def check(self) -> Availability:
        """See :meth:`Observer.check`."""
        _allow_many_files()
        self._events, problems = _countable()
        absent = tuple(name for name in _EVENTS if name not in self._events)
        return Availability((*self._events, *_ACCOUNT, *_BUILD), absent, _reason(problems))

    def before_build(self) -> None:
        """Note the process's account."""
        self._build_before = _Account.now()

    def after_build(self) -> None:
        """Note the process's account again."""
        self._build_after = _Account.now()

    def build_readings(self) -> Mapping[str, float | None]:
        """Page faults and seconds of CPU time, of this process alone: no linker it starts."""
        before, after = self._build_before, self._build_after
        return {
            "build_page_faults": after.page_faults - before.page_faults,
            "build_cpu_seconds": after.cpu_seconds - before.cpu_seconds,
        }

    def before_run(self) -> None:
        """Start counters in every thread; those of a thread pool exist already."""
        if self._counters is not None:  # a program that failed has no readings
            self._counters.close()
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        self._counters = ThreadCounters(list(self._events.values()), threads)
        self._before = _Account.now()
        self._counters.start()

    def after_run(self) -> None:
        """Stop them."""
        if self._counters is not None:
            self._counters.stop()
        self._after = _Account.now()

    def readings(self, calls: int) -> Mapping[str, float | None]:
        """See :meth:`Observer.readings`."""
        found: dict[str, float | None] = dict.fromkeys(_EVENTS)
        counters, self._counters = self._counters, None
        if counters is not None:
            try:
                for name, counts in zip(self._events, counters.read(), strict=True):
                    found[name] = _per_call([count.scaled for count in counts], calls)
            finally:
                counters.close()
        before, after = self._before, self._after
        found["page_faults_per_call"] = (after.page_faults - before.page_faults) / calls
        switches = after.context_switches - before.context_switches
        found["context_switches_per_call"] = switches / calls
        found["cpu_seconds_per_call"] = (after.cpu_seconds - before.cpu_seconds) / calls
        return found


def _per_call(values: list[float | None], calls: int) -> float | None:
    """The threads' sum; unknown if one of them could not be counted."""
    known = [value for value in values if value is not None]
    return sum(known) / calls if len(known) == len(values) else None


def _countable() -> tuple[dict[str, Event], dict[str, str]]:
    """The events that can be counted here, and why the others cannot, by name."""
    countable: dict[str, Event] = {}
    problems: dict[str, str] = {}
    for name, event in _EVENTS.items():
        try:
            count = _trial_count(event)
        except EventUnavailable as error:
            problems[name] = str(error)
            continue
        # Some virtual machines open counters that never count.
        if name in ("cycles_per_call", "instructions_per_call", "branches_per_call") and not count:
            problems[name] = "it stays at zero"
        else:
            countable[name] = event
    if any(name in problems for name in ("cycles_per_call", "instructions_per_call")):
        # Whatever else there is comes from the same unit, which then cannot be trusted.
        cause = problems.get("cycles_per_call") or problems["instructions_per_call"]
        for name in _HARDWARE_EVENTS:
            countable.pop(name, None)
            problems.setdefault(name, cause)
    return countable, problems


def _reason(problems: Mapping[str, str]) -> str:
    """Say why some events are absent, in one line; "" where none is."""
    reasons = []
    rest = list(problems)
    if set(_HARDWARE_EVENTS) <= set(problems):
        cause = problems[next(iter(_HARDWARE_EVENTS))]
        reasons.append(f"no hardware counters here ({cause}); software counters only")
        rest = [name for name in rest if name not in _HARDWARE_EVENTS]
    return "; ".join([*reasons, *(f"no {name} here ({problems[name]})" for name in rest)])


def _trial_count(event: Event) -> float | None:
    counters = ThreadCounters([event], [0])
    try:
        counters.start()
        sum(range(10_000))
        counters.stop()
        return counters.read()[0][0].scaled
    finally:
        counters.close()


def _allow_many_files() -> None:
    """Each thread needs a file per counter: more than a process may usually open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
