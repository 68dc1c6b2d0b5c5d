"""Opening a SQLite file, or saying clearly why it cannot be."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from autotune.errors import DatabaseDamaged, DatabaseError
from autotune.store.sqlite.guard import check_schema, restrict, restrict_to_reading
from autotune.store.sqlite.migrations import migrate
from autotune.store.sqlite.recovery import (
    Recovery,
    alone,
    finish,
    has_sound_rows,
    identity_of,
    is_begun,
    is_open_elsewhere,
    is_open_here,
    recover,
)
from autotune.store.sqlite.rows import NotUnderstood
from autotune.store.sqlite.schema import (
    APPLICATION_ID,
    COLUMNS,
    DAMAGE_NOTE,
    SCHEMA_VERSION,
    beside,
    row_checksum,
)
from autotune.store.sqlite.write_ahead_log import LogDamage, log_damage

__all__ = ["Warn", "check_everything", "connect", "move_log_into_file", "reporting"]

Value = TypeVar("Value")
BUSY_SECONDS = 30.0

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
# Checking the tree of a file costs about 2 ms per MiB, and its rows and indexes 20. A larger file
# is checked as far as it is read; damage found then is noted for the next opener.
_CHECKED_BYTES = 16 << 20
_CHECKED_ROWS_BYTES = 4 << 20
_HINTS = {
    "means nothing here": "a record needs a plugin that is missing here, or a newer version",
    "locked": f"another process kept it locked for {BUSY_SECONDS:g} s; try again later",
    "readonly": "it is read-only; make it writable, or name another file",
    "read-only": "it is read-only; make it writable, or name another file",
    "unable to open": "it cannot be opened; check the permissions of the file and its folder",
    "full": "the disk is full; make room and repeat the command",
    "disk I/O": "the disk cannot be read or written; see whether it is full or failing",
}
_EARLIER = (
    "it was written by an earlier version and has to be brought up to date, and another process "
    "has it open; end that one, then repeat the command"
)
_DAMAGED = (
    "the file is damaged; the next command that writes to it moves it aside and recovers what is "
    "readable"
)
_PAUSE = 0.02
# How often a file may look damaged that is sound once no other process has it open.
_FALSE_ALARMS = 3
# What SQLite says of the machine, or of a value that was given it, and not of the file.
_NOT_DAMAGE = (
    "locked",
    "locking protocol",
    "interrupted",
    "schema has changed",
    "unable to open",
    "full",
    "disk I/O",
    "constraint",
    "read-only",
    "readonly",
)


@contextlib.contextmanager
def reporting(location: str, *, note: bool = True) -> Iterator[None]:
    """Turn what sqlite3 raises into a `DatabaseError` that says what to do.

    Args:
        location: Path of the file.
        note: Whether to have the next opener look for damage that was found.
    """
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise DatabaseError(f"database {location!r}: {error}") from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        text = str(error)
        if _is_damage(error):
            if note:
                note_damage(location)
            raise DatabaseDamaged(f"database {location!r}: {_DAMAGED} ({text})") from error
        hint = next((hint for part, hint in _HINTS.items() if part in text), "see the message")
        raise DatabaseError(f"database {location!r}: {hint} ({text})") from error


def connect(path: str | os.PathLike[str], *, read_only: bool, warn: Warn) -> sqlite3.Connection:
    """Open and check a file, create the tables in a new one, and migrate an old one.

    A damaged file is replaced by one with what can be read of it when it is opened for writing.

    Args:
        path: A file, or ``:memory:``.
        read_only: Write nothing.
        warn: Called with what was recovered.

    Raises:
        DatabaseError: the path cannot be used; nothing was written.
    """
    location = os.fspath(path)
    with reporting(location, note=False):
        if location == ":memory:":
            return _checked(sqlite3.connect(location, isolation_level=None), location, read_only)
        # SQLite keeps its log beside the file itself, and not beside a link to it.
        path = Path(os.path.realpath(location) if os.path.islink(location) else location)
        warn = _each_once(warn)
        recovery: Recovery | None = None
        false_alarms = 0
        while True:
            _check_path(path, read_only)
            if not read_only:
                _recovering(path, partial(finish, path, BUSY_SECONDS))
                _make_file(path)
            identity = identity_of(path)
            try:
                check_journal(path, read_only)
                check_log(path, read_only, warn)
                connection = _opened(path, location, read_only)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if _is_replaced(path, identity, read_only):
                    continue
                _check_recoverable(path, read_only, error)
                if recovery is not None or false_alarms == _FALSE_ALARMS:
                    # What was written a moment ago cannot be read: the disk is at fault.
                    raise
                step = partial(recover, path, identity, BUSY_SECONDS, _check_copy)
                recovery = _recovering(path, step)
                if recovery is None:
                    false_alarms += 1
                else:
                    warn(str(recovery))
                continue
            if not _is_replaced(path, identity, read_only):
                return connection
            connection.close()


class _EarlierVersion(Exception):
    """A file that is to be written has an earlier schema, which nobody may use any more."""


def _opened(path: Path, location: str, read_only: bool) -> sqlite3.Connection:
    try:
        return _checked(_connect_file(path, read_only), location, read_only)
    except _EarlierVersion:
        _bring_up_to_date(path, location)
    return _checked(_connect_file(path, read_only), location, read_only)


def _bring_up_to_date(path: Path, location: str) -> None:
    """Migrate a file while no other process has it open: it would go on with earlier digests.

    Raises:
        DatabaseError: another process keeps it open; nothing was changed.
    """
    end = time.monotonic() + BUSY_SECONDS
    with alone(path, BUSY_SECONDS, _HINTS["locked"]):
        while True:
            with contextlib.closing(_connect_file(path, read_only=False)) as connection:
                restrict(connection)
                if _is_migrated_alone(connection):
                    return
            if time.monotonic() > end:
                raise DatabaseError(f"database {location!r}: {_EARLIER}")
            time.sleep(_PAUSE)


def _is_migrated_alone(connection: sqlite3.Connection) -> bool:
    """Migrate a file, unless it is open elsewhere.

    Nobody else may have it open where its log is to be turned off; without a log, a transaction
    then keeps out those that open it meanwhile.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        return False
    migrate(connection)
    connection.execute("COMMIT")
    return True


def _migrated_copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy in memory of a file with an earlier schema, as it would be after its migration."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.backup(copy)
        restrict(copy)
        copy.execute("BEGIN")
        migrate(copy)
        copy.execute("COMMIT")
        restrict_to_reading(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def _each_once(warn: Warn) -> Warn:
    said: set[str] = set()

    def warn_once(message: str) -> None:
        if message not in said:
            said.add(message)
            warn(message)

    return warn_once


def _is_replaced(path: Path, identity: tuple[int, int], read_only: bool) -> bool:
    """Tell if another process puts, or has put, a recovered file in the place of the opened one.

    What failed meanwhile, such as reading a log that was moved aside, does not concern the disk.
    """
    # Asked first: what was begun and is not any more has changed the identity.
    is_being_replaced = not read_only and is_begun(path)
    return is_being_replaced or identity != identity_of(path)


def _checked(connection: sqlite3.Connection, location: str, read_only: bool) -> sqlite3.Connection:
    try:
        restrict(connection)
        if read_only:
            restrict_to_reading(connection)
        version = _check_content(connection, location, read_only)
        if read_only and version < SCHEMA_VERSION:
            with contextlib.closing(connection):
                return _migrated_copy(connection)
        if not read_only:
            _prepare(connection)
    except BaseException:
        # Whatever ends it, an interrupt too: nothing else knows the connection.
        connection.close()
        raise
    return connection


def _is_damage(error: Exception) -> bool:
    """Return whether an error means that the file is not as it was written."""
    if isinstance(error, UnicodeDecodeError):
        # Text of the file in one of SQLite's messages.
        return True
    if isinstance(error, (sqlite3.ProgrammingError, NotUnderstood)):
        return False
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    return not any(part in str(error) for part in _NOT_DAMAGE)


def _check_recoverable(path: Path, read_only: bool, error: Exception) -> None:
    """Raise unless the error means that a file of ours is damaged, and it may be replaced."""
    # Where permissions allow writing, only what the file says of itself can forbid it.
    forbidden = not read_only and "readonly" in str(error)
    if not _is_damage(error) and not forbidden:
        raise error
    if is_open_here(path):
        # Closing the file after looking into it would give up the locks of the other connection.
        raise error
    if not has_sound_rows(path):
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if not header.startswith(_MAGIC):
            raise DatabaseError(
                f"database {str(path)!r}: it is a file of another kind, not a database; "
                "name another file"
            ) from error
        if header[68:72] != APPLICATION_ID.to_bytes(4, "big"):
            raise DatabaseError(
                f"database {str(path)!r}: it belongs to another program; name another file"
            ) from error
        if header[60:64] == (1).to_bytes(4, "big"):
            raise DatabaseError(
                f"database {str(path)!r}: the file is damaged, and rows of schema 1 have no "
                "checksums to tell sound ones by; restore a copy, or name another file"
            ) from error
    if read_only:
        raise error


def _recovering(path: Path, step: Callable[[], Value]) -> Value:
    try:
        return step()
    except OSError as error:
        why = _HINTS["full"] if error.errno == errno.ENOSPC else error.strerror
        raise DatabaseError(
            f"database {str(path)!r}: the file is damaged, and what is readable of it cannot be "
            f"recovered: {why}"
        ) from error


def _check_path(path: Path, read_only: bool) -> None:
    """Refuse what SQLite would refuse later and less clearly; touches nothing."""
    folder = path.parent
    if not folder.is_dir():
        raise DatabaseError(f"database {str(path)!r}: there is no folder {str(folder)!r}; make it")
    if path.is_dir():
        raise DatabaseError(f"database {str(path)!r}: it is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise DatabaseError(f"database {str(path)!r}: it is no regular file; name another file")
    if not path.exists():
        if read_only:
            raise DatabaseError(f"database {str(path)!r}: there is no such file")
    elif not os.access(path, os.R_OK, effective_ids=True):
        raise DatabaseError(f"database {str(path)!r}: it cannot be read; check its permissions")
    elif not read_only and not writable(path):
        raise DatabaseError(f"database {str(path)!r}: {_HINTS['readonly']}")
    if not read_only and not writable(folder):
        raise DatabaseError(
            f"database {str(path)!r}: its folder is read-only, and two more files are written "
            "beside it; make the folder writable, or name a file elsewhere"
        )


def _make_file(path: Path) -> None:
    """Make an empty file where there is none, so that it differs from what replaces it."""
    # Where that is not possible, SQLite says why.
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))


def _connect_file(path: Path, read_only: bool) -> sqlite3.Connection:
    mode = reading_mode(path) if read_only else "rwc"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
    )
    return connection


def _check_content(connection: sqlite3.Connection, location: str, read_only: bool) -> int:
    """The version of a file that is sound, ours, and of a version that can be used.

    All of it is asked of one state of the file: another process may be making or migrating it.
    """
    connection.execute("BEGIN")
    version = _check_owner(connection, location)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    note = Path(location + DAMAGE_NOTE)
    noted = note.exists() and not read_only
    if noted or pages * page_bytes <= _CHECKED_BYTES:
        if not read_only and (noted or pages * page_bytes <= _CHECKED_ROWS_BYTES):
            check_everything(connection, version)
        else:
            _check_tree(connection, thorough=False)
    connection.execute("COMMIT")
    if noted:
        note.unlink(missing_ok=True)
    return version


def _check_owner(connection: sqlite3.Connection, location: str) -> int:
    """The version of a file, which is ours and can be used."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (objects or version or application):
        raise sqlite3.DatabaseError("the file belongs to another program")
    if version > SCHEMA_VERSION:
        raise DatabaseError(
            f"database {location!r}: written by a newer version (schema {version}, this one "
            f"knows {SCHEMA_VERSION}); upgrade, or name another file"
        )
    check_schema(connection, location, version)
    return int(version)


def _check_copy(path: Path) -> None:
    """Raise what is wrong with an unshared copy of a file, however large it is."""
    with contextlib.closing(_connect_file(path, read_only=False)) as connection:
        restrict(connection)
        check_everything(connection, _check_owner(connection, str(path)))
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def check_everything(connection: sqlite3.Connection, version: int = SCHEMA_VERSION) -> None:
    """Raise what is wrong with an open file of a version, reading all of it.

    Raises:
        sqlite3.DatabaseError: the file is damaged.
    """
    _check_tree(connection, thorough=True)
    if version == SCHEMA_VERSION:
        _check_rows(connection)


def _check_tree(connection: sqlite3.Connection, thorough: bool) -> None:
    check = "integrity_check" if thorough else "quick_check"
    (verdict,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)


def _check_rows(connection: sqlite3.Connection) -> None:
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    for table, columns in COLUMNS.items():
        row = connection.execute(
            f"SELECT id FROM {table} "
            f"WHERE checksum IS NOT row_checksum('{table}', {', '.join(columns)}) LIMIT 1"
        ).fetchone()
        if row is not None:
            raise sqlite3.DatabaseError(f"row {row[0]} of {table} is not what was written")
    missing = connection.execute("PRAGMA foreign_key_check").fetchone()
    if missing is not None:
        table, number, other, _ = missing
        raise sqlite3.DatabaseError(
            f"row {number} of {table} names a row of {other} that is missing"
        )


def _prepare(connection: sqlite3.Connection) -> None:
    _use_write_ahead_log(connection)
    # Every commit reaches the disk: an outcome that was reported survives a power failure.
    connection.execute("PRAGMA synchronous = FULL")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version:
        raise _EarlierVersion
    # Another process may do the same: the version is looked at again inside the transaction.
    # The caller closes the connection if this fails, which takes back what was written.
    connection.execute("BEGIN IMMEDIATE")
    migrate(connection)
    connection.execute("COMMIT")
    # Without it a file would have no table until its log has a thousand pages.
    move_log_into_file(connection)


def move_log_into_file(connection: sqlite3.Connection) -> None:
    """Have the file itself hold what was committed, as far as no reader needs the log.

    What is in the file outlives the loss of its log.
    """
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Readers then never wait for writers. File systems without it keep their journal."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself here.
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


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
    journal = beside(path, "-journal")
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
    if read_only and not beside(path, "-shm").exists():
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
    log, index = beside(path, "-wal"), beside(path, "-shm")
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
            beside(path, DAMAGE_NOTE).touch()


def writable(path: Path) -> bool:
    """Return whether permissions allow writing to a file or a folder."""
    return os.access(path, os.W_OK, effective_ids=True)


def _damage_of_log(path: Path) -> LogDamage | None:
    """Describe damage of a killed process's log, while nobody uses the file."""
    if not (beside(path, "-wal").exists() or beside(path, "-shm").exists()):
        return None
    if _is_in_use(path) or (found := log_damage(path)) is None:
        return None
    # Another process may have come meanwhile, and written while the log was read.
    return None if _is_in_use(path) or log_damage(path) != found else found


def _is_in_use(path: Path) -> bool:
    """Return whether this or another process has the file open."""
    return is_open_here(path) or is_open_elsewhere(path)
