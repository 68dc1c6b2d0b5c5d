"""A temporary folder that outlives nobody: what a killed process left is removed by the next.

A folder is held by a lock on a file in it, which the kernel releases however its holder ends. A
folder whose lock is free was left behind. Process ids would not do: containers that share a
temporary directory have equal ones.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from attrs import frozen

__all__ = ["PrivateFolder", "make_private_folder"]

_PREFIX = "autotune-"
_LOCK = "lock"


@frozen
class PrivateFolder:
    """A folder, and the descriptor that holds its lock."""

    path: Path
    descriptor: int

    def remove(self) -> None:
        """Remove the folder and let go of its lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.descriptor)


def make_private_folder() -> PrivateFolder:
    """A new folder in the temporary directory, after removing those that were left behind."""
    remove_stale_folders(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    unlocked = path / f"{_LOCK}.new"
    descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    # Renamed when it is held: nobody ever sees the lock free.
    unlocked.rename(path / _LOCK)
    return PrivateFolder(path, descriptor)


def remove_stale_folders(directory: Path) -> list[Path]:
    """Remove this user's folders in ``directory`` that nobody holds; returns them."""
    removed = []
    for path in directory.glob(f"{_PREFIX}*"):
        try:
            if path.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # removed meanwhile, or not one of these folders
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
        finally:
            os.close(descriptor)
    return removed
