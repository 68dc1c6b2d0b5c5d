"""A temporary folder that does not outlive its process: the next removes what a killed one left.

A folder is held by a lock on a file in it, which the kernel releases however its holder ends. A
folder whose lock is free was left behind. Process ids would not do: containers that share a
temporary directory have equal ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from autotune.process.errors import WorkerStartFailed
from autotune.process.fork_server_process import guard_folder, release_folder
from autotune.process.stale_folders import (
    LOCK,
    PREFIX,
    UNLOCKED,
    remove_folder,
    remove_stale_folders,
)

__all__ = [
    "PrivateFolder",
    "make_private_folder",
    "writing_temporary_files",
]

_RESTORING_TRIES, _RESTORING_SECONDS = 20, 0.01


@frozen
class PrivateFolder:
    """A folder, and the descriptor that holds its lock."""

    path: Path
    descriptor: int

    def restore(self) -> None:
        """Make the folder again, with its lock held, if somebody has removed it.

        Raises:
            WorkerStartFailed: there is no room for it, or it is removed again and again.
        """
        if self._is_whole():
            return
        with writing_temporary_files():
            for left in reversed(range(_RESTORING_TRIES)):
                try:
                    self._restore()
                except FileNotFoundError:
                    # It is still being removed.
                    if not left:
                        raise
                    time.sleep(_RESTORING_SECONDS)
                else:
                    return

    def _is_whole(self) -> bool:
        """Tell if the folder is there with the lock that is held; asked before every job."""
        try:
            there = os.stat(f"{self.path}/{LOCK}")
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self.descriptor))

    def _restore(self) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        if self._is_whole():
            return
        lock = _held_lock(self.path)
        os.dup2(lock, self.descriptor, inheritable=False)
        os.close(lock)

    def remove(self) -> None:
        """Remove the folder and release its lock."""
        remove_folder(self.path)
        release_folder(self.path)
        os.close(self.descriptor)


def make_private_folder() -> PrivateFolder:
    """A new folder in the temporary directory, after removing those that were left behind.

    Raises:
        WorkerStartFailed: there is no room for it.
    """
    with writing_temporary_files():
        directory = temporary_directory()
        remove_stale_folders(directory)
        path = directory / f"{PREFIX}{os.urandom(8).hex()}"
        with contextlib.suppress(OSError):  # who starts a worker hears of it
            guard_folder(path)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(release_folder, path)
            on_failure.callback(remove_folder, path)
            path.mkdir(mode=0o700)
            descriptor = _held_lock(path)
            on_failure.pop_all()
    return PrivateFolder(path, descriptor)


def _held_lock(path: Path) -> int:
    """Put a lock into a folder; returns the descriptor that holds it."""
    unlocked = path / UNLOCKED
    descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Renamed when it is held: the lock is never seen free.
        unlocked.rename(path / LOCK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def temporary_directory() -> Path:
    """Folder of temporary files, as ``tempfile`` chooses it.

    Except that it writes a file to try a directory, which stays if it is killed just then.
    """
    if tempfile.tempdir is not None:
        return Path(os.fsdecode(tempfile.tempdir))
    named = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    for directory in [*named, "/tmp", "/var/tmp", "/usr/tmp"]:
        if os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK):
            return Path(directory).absolute()
    return Path.cwd()


@contextlib.contextmanager
def writing_temporary_files() -> Iterator[None]:
    """Around what writes to a private folder: says what to do when that is impossible.

    Raises:
        WorkerStartFailed: the body raised an ``OSError``, such as that of a full disk.
    """
    try:
        yield
    except OSError as error:
        raise WorkerStartFailed(
            f"cannot write temporary files: {error}; make room in {temporary_directory()}, or set "
            "TMPDIR to a folder elsewhere"
        ) from error
