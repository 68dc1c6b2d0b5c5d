"""Results in pieces: a file of JSON lines that only grows; its writer may be stopped anywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import InvalidValueError

__all__ = ["append_piece", "read_pieces"]


def read_pieces(path: Path) -> list[dict[str, Any]]:
    """The pieces of a file, in order; none where there is no file.

    What follows the last line end was cut off by a crash and does not count.

    Raises:
        InvalidValueError: the file cannot be read, or a whole line is no JSON object.
    """
    try:
        text, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidValueError(f"cannot read the results file {str(path)!r}: {reason}") from error
    return [_piece(path, number, line) for number, line in enumerate(text.splitlines(), start=1)]


def append_piece(path: Path, piece: Mapping[str, Any]) -> None:
    """Append a piece, in the place of one that was cut off; it is on the disk on return."""
    with path.open("a+b") as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(json.dumps(piece).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def _piece(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        piece = json.loads(line)
    except (ValueError, RecursionError):
        piece = None
    if not isinstance(piece, dict):
        raise InvalidValueError(f"line {number} of the results file {str(path)!r} is no result")
    return piece
