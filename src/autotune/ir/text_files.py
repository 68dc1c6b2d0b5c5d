"""Text files that a user names, which may be anything."""

from __future__ import annotations

import os

from autotune.errors import InvalidValueError

__all__ = ["MOST_BYTES", "read_text_file"]

MOST_BYTES = 64 << 20
"""A longer file is no description of anything, and may have no end, such as ``/dev/zero``."""


def read_text_file(path: str | os.PathLike[str]) -> str:
    """The text of a file, which may be a pipe.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no UTF-8.
        InvalidValueError: it is longer than ``MOST_BYTES``.
    """
    with open(path, "rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InvalidValueError(
            f"{os.fspath(path)!r} is longer than {MOST_BYTES} bytes; name a smaller file"
        )
    return data.decode("utf-8")
