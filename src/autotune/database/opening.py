"""Opening a SQLite file, or saying clearly why it cannot be."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.database.schema import APPLICATION_ID, SCHEMA_VERSION, migrate
from autotune.errors import DatabaseError

BUSY_SECONDS = 30.0

_HEADER = b"SQLite format 3\0"
# Checking a whole file costs about 2 ms per MiB; a larger one is checked as far as it is read.
_CHECKED_BYTES = 16 << 20
_HINTS = {
    "locked": f"another process kept it locked for {BUSY_SECONDS:g} s; try again later",
    "readonly": "it is read-only; make it writable, or name another file",
    "read-only": "it is read-only; make it writable, or name another file",
    "unable to open": "it cannot be opened; check the permissions of the file and its folder",
    "full": "the disk is full; make room and repeat the command",
}
_DAMAGED = "the file is damaged; move it away or restore a copy, then repeat the command"


@contextlib.contextmanager
def reporting(location: str) -> Iterator[None]:
    """Turn what sqlite3 raises into a `DatabaseError` that says what to do."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise DatabaseError(f"database {location!r}: {error}") from error
    except sqlite3.Error as error:
        text = str(error)
        hints = [hint for part, hint in _HINTS.items() if part in text]
        if not hints and isinstance(error, sqlite3.OperationalError):
            hints = ["see the message"]
        raise DatabaseError(
            f"database {location!r}: {(hints or [_DAMAGED])[0]} ({text})"
        ) from error


def connect(path: str | os.PathLike[str], *, read_only: bool) -> sqlite3.Connection:
    """Open and check a file, create the tables in a new one, and migrate an old one.

    Raises:
        DatabaseError: the path cannot be used; nothing was written.
    """
    location = os.fspath(path)
    with reporting(location):
        if location == ":memory:":
            connection = sqlite3.connect(location, isolation_level=None)
        else:
            _check_path(Path(location), read_only)
            connection = _connect_file(Path(location), read_only)
        try:
            _check_content(connection, location, read_only)
            if not read_only:
                _prepare(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _check_path(path: Path, read_only: bool) -> None:
    """Refuse what SQLite would refuse later and less clearly; touches nothing."""
    folder = path.parent
    if not folder.is_dir():
        raise DatabaseError(f"database {str(path)!r}: there is no folder {str(folder)!r}; make it")
    if path.is_dir():
        raise DatabaseError(f"database {str(path)!r}: it is a folder; name a file in it")
    if not path.exists():
        if read_only:
            raise DatabaseError(f"database {str(path)!r}: there is no such file")
    else:
        _check_header(path)
        if not read_only and not _writable(path):
            raise DatabaseError(f"database {str(path)!r}: {_HINTS['readonly']}")
    if not read_only and not _writable(folder):
        raise DatabaseError(
            f"database {str(path)!r}: its folder is read-only, and two more files are written "
            "beside it; make the folder writable, or name a file elsewhere"
        )


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            header = file.read(len(_HEADER))
    except OSError as error:
        raise DatabaseError(f"database {str(path)!r}: cannot be read: {error.strerror}") from error
    if header not in (b"", _HEADER):
        raise DatabaseError(
            f"database {str(path)!r}: it is a file of another kind, not a database; "
            "name another file"
        )


def _connect_file(path: Path, read_only: bool) -> sqlite3.Connection:
    # Even reading a write-ahead log makes files beside it, which only a connection that could
    # write takes away again. Where that is impossible and there is no log, nobody can be writing
    # either, and the file may be taken as it is.
    if not read_only:
        mode = "rwc"
    elif _writable(path) and _writable(path.parent):
        mode = "rw"
    elif path.with_name(path.name + "-wal").exists():
        mode = "ro"
    else:
        mode = "ro&immutable=1"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
    )
    if read_only:
        connection.execute("PRAGMA query_only = TRUE")
    return connection


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def _check_content(connection: sqlite3.Connection, location: str, read_only: bool) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (objects or version or application):
        raise DatabaseError(
            f"database {location!r}: it belongs to another program; name another file"
        )
    if version > SCHEMA_VERSION:
        raise DatabaseError(
            f"database {location!r}: written by a newer version (schema {version}, this one "
            f"knows {SCHEMA_VERSION}); upgrade, or name another file"
        )
    if read_only and version < SCHEMA_VERSION:
        raise DatabaseError(
            f"database {location!r}: schema {version} has to be brought to {SCHEMA_VERSION} "
            "first; open it for writing once"
        )
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if pages * page_bytes <= _CHECKED_BYTES:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)


def _prepare(connection: sqlite3.Connection) -> None:
    _use_write_ahead_log(connection)
    # Every commit reaches the disk: an outcome that was reported survives a power failure.
    connection.execute("PRAGMA synchronous = FULL")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    # Another process may do the same: the version is looked at again inside the transaction.
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrate(connection)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


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
