"""Text files that a user names, which may be anything."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from autotune.errors import InvalidValueError

__all__ = ["MOST_BYTES", "document", "read_text_file"]

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


def document(text: str, noun: str, *, is_json: bool) -> Any:
    """Parse a text in JSON or TOML.

    Args:
        text: The text.
        noun: What the file is called in messages, such as ``spec 'flags.toml'``.
        is_json: Whether it is JSON, or TOML.

    Raises:
        InvalidValueError: it is not; says where.
    """
    # Imported here: most of what imports this module reads no TOML.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{noun} is no {'JSON' if is_json else 'TOML'}: {error}") from None
