"""The database that is used where none is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from autotune.errors import InvalidValueError

__all__ = ["DEFAULT_DATABASE", "current_database", "database"]

DEFAULT_DATABASE = "autotune.db"

_current: ContextVar[str] = ContextVar("autotune_database", default=DEFAULT_DATABASE)


def current_database() -> str:
    """Path of the database to use where none is named."""
    return _current.get()


@contextmanager
def database(path: str | os.PathLike[str]) -> Iterator[str]:
    """Inside, this database is used wherever none is named.

    By :func:`autotune.tune` and similar calls, by ``ApplyRecords`` and Relax's pipeline
    ``autotune``, and by ``torch.compile(backend="autotune")``, which compiles at the first call.
    The innermost one counts; other threads have their own.

    Args:
        path: As of :func:`autotune.open_database`.

    Raises:
        InvalidValueError: it is no path.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise InvalidValueError(f"a database is a path, not {path!r}")
    token = _current.set(str(os.fspath(path)))
    try:
        yield _current.get()
    finally:
        _current.reset(token)
