"""Ending a process with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_PATIENCE_SECONDS = 5.0


def kill_session(leader: int) -> None:
    """Kill every process of the session that ``leader`` leads, and wait until they are gone.

    The leader itself is left for its parent to reap, so that its number cannot be reused in
    between. A descendant that made a session of its own is out of reach.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        # The group first: it is one call, and in nearly all cases everybody.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        remaining = [pid for pid in session_members(leader) if pid != leader]
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not remaining or time.monotonic() > end:
            return
        time.sleep(0.002)


def session_members(leader: int) -> list[int]:
    """Processes of a session, without those that have ended and only wait to be reaped."""
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _session_of(entry) == leader:
            members.append(int(entry))
    return members


def _session_of(pid: str) -> int | None:
    try:
        text = Path("/proc", pid, "stat").read_text()
    except OSError:  # it has ended meanwhile
        return None
    # "pid (name) state parent group session ...", where the name may contain anything
    state, _parent, _group, session = text.rpartition(")")[2].split()[:4]
    return None if state in "ZX" else int(session)
