"""Notices when what is only to be read is executed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

CALLABLES = (
    "tripwire:spring",
    "this:x",
    "code:interact",
    "http.server:test",
    "antigravity:fly",
    "pdb:set_trace",
)
"""Import strings that nobody has to follow."""

_MODULES = {name.partition(":")[0] for name in CALLABLES}
# What a process does when somebody else's code has taken over, or a compiler is being started.
_EVENTS = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
    "socket.bind",
    "socket.connect",
    "subprocess.Popen",
    "webbrowser.open",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_sprung: list[str] = []
_allowed: str | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _allowed is None:
        return
    if event in _EVENTS or (event == "import" and arguments[0] in _MODULES):
        _sprung.append(f"{event} {arguments!r:.200}")
    elif event in ("os.remove", "os.rename") or event == "open" and (arguments[2] or 0) & _WRITING:
        _watch_path(event, arguments[0])


def _watch_path(event: str, path: Any) -> None:
    if isinstance(path, int) or path == os.devnull:
        return
    name = os.path.abspath(os.fsdecode(path))
    # Python's own, where a module is imported for the first time.
    if not name.startswith(str(_allowed)) and "__pycache__" not in name:
        _sprung.append(f"{event} {name}")


@cache
def _start_watching() -> None:
    """Watch from now on: for the rest of its life a process calls it at every import and file."""
    sys.addaudithook(_watch)


@contextmanager
def trip_wires(folder: Path) -> Iterator[None]:
    """Fail if the block executes or imports what a record names, or writes outside a folder."""
    global _allowed
    _start_watching()
    _sprung.clear()
    _allowed = os.path.abspath(folder)
    try:
        yield
    finally:
        _allowed = None
    assert not _sprung, _sprung
