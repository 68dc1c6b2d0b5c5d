"""Removing private folders that no process holds any more; see ``private_folder``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path

from autotune.process.processes import kill_marked, marked_processes

__all__ = [
    "LOCK",
    "PREFIX",
    "UNLOCKED",
    "remove_folder",
    "remove_if_abandoned",
    "remove_stale_folders",
]

PREFIX = "autotune-"
LOCK = "lock"
UNLOCKED = "lock.new"
_SECONDS_TO_MAKE = 60.0


def remove_stale_folders(directory: Path) -> list[Path]:
    """Remove this user's folders in ``directory`` that no process holds; returns them.

    What still runs of the workers that they belonged to is killed.
    """
    return [path for path in sorted(directory.glob(f"{PREFIX}*")) if _remove_unheld(path)]


def remove_if_abandoned(path: Path) -> None:
    """Remove the private folder of a process that has ended, if no other works in it.

    One that was being made just then need not be waited for.
    """
    if not path.name.startswith(PREFIX):
        return
    with contextlib.suppress(OSError):
        if not any(entry.is_dir() and marked_processes(entry) for entry in list(path.iterdir())):
            _remove_unheld(path, seconds_to_make=0.0)


def _remove_unheld(path: Path, seconds_to_make: float = _SECONDS_TO_MAKE) -> bool:
    """Return whether it was a private folder that no process holds, and is now removed."""
    try:
        if path.stat().st_uid != os.getuid():
            return False
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _remove_unfinished(path, seconds_to_make)
    except OSError:  # not one of these folders
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (path / LOCK).exists():  # another process has just removed it
            return False
        kill_marked(path)
        remove_folder(path)
    except OSError:  # held
        return False
    finally:
        os.close(descriptor)
    return True


def _remove_unfinished(path: Path, seconds_to_make: float) -> bool:
    """Return whether its maker was killed before it held the lock, and it is now removed."""
    try:
        if time.time() - path.stat().st_mtime < seconds_to_make:
            return False
        if set(os.listdir(path)) <= {UNLOCKED}:
            (path / UNLOCKED).unlink(missing_ok=True)
            path.rmdir()
            return True
    except OSError:  # removed meanwhile, or not a folder
        pass
    return False


def remove_folder(path: Path) -> None:
    """Remove a folder, the lock last: what is left if this is interrupted is found again."""
    with contextlib.suppress(OSError):
        for entry in list(path.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != LOCK:
                entry.unlink()
    shutil.rmtree(path, ignore_errors=True)
