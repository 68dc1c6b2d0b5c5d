"""Records and runs in one SQLite file."""

from __future__ import annotations

import os

from autotune.database.database import Database


def open_database(path: str | os.PathLike[str], *, read_only: bool = False) -> Database:
    """Open the database at ``path``, which is made if it does not exist.

    Args:
        path: A file, or ``:memory:`` for a database that ends with the process.
        read_only: Write nothing; the file must exist.

    Raises:
        DatabaseError: the path cannot be used; says why and what to do. Nothing was written.
    """
    raise NotImplementedError
