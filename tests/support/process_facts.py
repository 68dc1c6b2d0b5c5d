"""Facts of the kernel about processes, for tests that nothing is left of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def session_members(leader: int) -> list[int]:
    """Processes of a session, without those that have ended and only wait to be reaped."""
    return [
        pid
        for pid, (state, _, session) in _facts().items()
        if session == leader and state not in "ZX"
    ]


def running(pids: set[int]) -> set[int]:
    """Processes of these that have not ended."""
    return {pid for pid, (state, _, _) in _facts().items() if pid in pids and state not in "ZX"}


def zombies_of(parent: int) -> list[int]:
    """Children of a process that have ended and wait to be reaped."""
    return [pid for pid, (state, of, _) in _facts().items() if of == parent and state in "ZX"]


def children_of(parent: int) -> list[int]:
    """Children of a process, also those that have ended."""
    return [pid for pid, (_, of, _) in _facts().items() if of == parent]


def states_below(ancestor: int) -> set[str]:
    """States of the processes that a process has started, and of those that they have started."""
    facts = _facts()
    return {facts[pid][0] for pid in _below({ancestor}, facts)}


def descendants(ancestors: set[int]) -> set[int]:
    """Processes that these have started, and those that they have started."""
    return _below(ancestors, _facts())


def _below(ancestors: set[int], facts: dict[int, tuple[str, int, int]]) -> set[int]:
    below = set(ancestors)
    while found := {pid for pid, (_, of, _) in facts.items() if of in below} - below:
        below |= found
    return below - ancestors


def open_descriptors(pid: int | str = "self") -> dict[int, str]:
    """Descriptors of a process, and what each of them is."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:  # the listing's own
            continue
    return found


def becomes_true(condition: Callable[[], object], seconds: float = 300.0) -> bool:
    """Tell if a condition holds before the time is up, which only a failing test waits for."""
    end = time.monotonic() + seconds
    while not (holds := bool(condition())) and time.monotonic() < end:
        time.sleep(0.005)
    return holds


def _facts() -> dict[int, tuple[str, int, int]]:
    """State, parent and session of every process; asked for again and again, hence raw bytes."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb", buffering=0) as file:
                    text = file.read()
            except OSError:  # it has ended meanwhile
                continue
            # "pid (name) state parent group session ...", where the name may contain anything
            state, parent, _group, session = text.rpartition(b")")[2].split(maxsplit=4)[:4]
            found[int(entry)] = state.decode(), int(parent), int(session)
    return found
