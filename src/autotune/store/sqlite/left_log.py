"""Opening beside a log: one that a killed process has left, or that others are writing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from autotune.errors import DatabaseError
from autotune.store.sqlite.recovery import has_sound_rows, is_open_elsewhere, is_open_here
from autotune.store.sqlite.schema import DAMAGE_NOTE
from autotune.store.sqlite.write_ahead_log import LogDamage, log_damage

__all__ = ["Warn", "check_journal", "check_log", "note_damage", "reading_mode", "writable"]

Warn = Callable[[str], None]
"""Called with one sentence on the recovery of a damaged file."""

_FIRST_PAGE = 4096
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")


def check_journal(path: Path, read_only: bool) -> None:
    """Refuse a rollback journal that must not be used; files without a log have one in a change.

    One of a change to several files names another file, which SQLite removes when it takes the
    change back. This program never makes one: whatever it names is somebody else's.

    Raises:
        DatabaseError: there is such a journal; or the file is only read, and would be changed.
    """
    journal = path.with_name(path.name + "-journal")
    try:
        with journal.open("rb") as file:
            begins = file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_JOURNAL_MAGIC)))
            names_another = file.read() == _JOURNAL_MAGIC and size > len(_JOURNAL_MAGIC)
    except FileNotFoundError:
        return
    if names_another:
        raise DatabaseError(
            f"database {str(path)!r}: {str(journal)!r} is a journal that names another file, as "
            "this program makes none, and using it would remove that file; move it away"
        )
    if begins and read_only and not _is_in_use(path):
        raise DatabaseError(
            f"database {str(path)!r}: a process was killed within a change, which "
            f"{str(journal)!r} takes back; open it for writing once"
        )


def check_log(path: Path, read_only: bool, warn: Warn) -> None:
    """Raise where a damaged log has to be recovered; warn where that is left to a later command.

    Raises:
        sqlite3.DatabaseError: the file is opened for writing, and it or its log has content.
    """
    if (log := _damage_of_log(path)) is None:
        return
    has_content = path.stat().st_size > _FIRST_PAGE or has_sound_rows(path)
    if has_content and not read_only:
        raise sqlite3.DatabaseError(log.reason)
    if read_only and not _index_of(path).exists():
        note_damage(str(path))
    later = "the next command that writes to it recovers what is readable"
    warn(
        f"database {str(path)!r}: {log.reason}; how many records are lost is not known, "
        + (f"and {later}" if has_content else "and nothing could be recovered")
    )


def reading_mode(path: Path) -> str:
    """Mode in which SQLite opens a file so that reading it changes nothing.

    Even reading a write-ahead log makes files beside it, which only a connection that could write
    takes away again. A log that a killed process has left is read and stays as it is: it would
    become part of the file, and what does not verify of it would be gone. Where there is no log
    and none can be made, nobody can be writing, and the file may be taken as it is.
    """
    log, index = _log_of(path), _index_of(path)
    if (log.exists() or index.exists()) and not _is_in_use(path):
        damage = log_damage(path)
        if damage is not None and not damage.readable:
            return "ro&immutable=1"
        if log.exists() and log.stat().st_size > 0:
            return "ro&readonly_shm=1" if index.exists() else "ro"
    if writable(path) and writable(path.parent):
        return "rw"
    return "ro" if log.exists() else "ro&immutable=1"


def note_damage(location: str) -> None:
    """Have the next opener look at the whole file, however large it is."""
    path = Path(location)
    if path.is_file():
        with contextlib.suppress(OSError):
            path.with_name(path.name + DAMAGE_NOTE).touch()


def writable(path: Path) -> bool:
    """Return whether permissions allow writing to a file or a folder."""
    return os.access(path, os.W_OK, effective_ids=True)


def _damage_of_log(path: Path) -> LogDamage | None:
    """Describe damage of a killed process's log, while nobody uses the file."""
    if not (_log_of(path).exists() or _index_of(path).exists()):
        return None
    if _is_in_use(path) or (found := log_damage(path)) is None:
        return None
    # Another process may have come meanwhile, and written while the log was read.
    return None if _is_in_use(path) or log_damage(path) != found else found


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _index_of(path: Path) -> Path:
    return path.with_name(path.name + "-shm")


def _is_in_use(path: Path) -> bool:
    """Return whether this or another process has the file open."""
    return is_open_here(path) or is_open_elsewhere(path)
