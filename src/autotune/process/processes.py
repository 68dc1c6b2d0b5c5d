"""Waiting for processes; ending what a worker left behind when its keeper is gone, too."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from pathlib import Path

_PATIENCE_SECONDS = 5.0
# A flag of the kernel's.
_PF_EXITING = 0x4


def ready(descriptor: int, events: int, seconds: float) -> bool:
    """Return whether one of ``events`` (``select.POLLIN``, ``select.POLLOUT``) happens in time.

    The end of a pipe counts. Unlike ``select`` this knows descriptors of any number.
    """
    poll = select.poll()
    poll.register(descriptor, events)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def is_exiting(pid: int) -> bool:
    """Return whether a process has begun to end, however long that takes, or is no more."""
    try:
        text = Path("/proc", str(pid), "stat").read_bytes()
    except OSError:
        return True
    # "pid (name) state parent group session terminal group flags ..."
    return bool(int(text.rpartition(b")")[2].split()[6]) & _PF_EXITING)


def describe_exit(code: int) -> str:
    """Describe the end of a process by its exit code (negative: the number of a signal)."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def kill_marked(folder: Path) -> None:
    """Kill every process whose environment names ``folder``, and wait until they are gone."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while (found := marked_processes(folder)) and time.monotonic() < end:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


def marked_processes(folder: Path) -> list[int]:
    """Other processes that were started with a variable that names ``folder`` or lies below it.

    A worker's ``TMPDIR`` is its folder, and all that it starts inherits that. Processes that
    have ended and only wait to be reaped have no environment.
    """
    mark = b"=" + os.fsencode(folder)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            variables = Path("/proc", entry, "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile, or is another user's
            continue
        if any(mark + b"/" in variable + b"/" for variable in variables):
            found.append(int(entry))
    return found
