"""Results in pieces: a file of JSON lines that only grows; a script may be stopped anywhere.

Nothing is imported here but the standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["append_piece", "read_pieces"]


def read_pieces(path: Path) -> list[dict[str, Any]]:
    """The pieces of a file, in order; none where there is no file.

    What follows the last line end was cut off by a crash and does not count.
    """
    if not path.exists():
        return []
    text, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in text.splitlines()]


def append_piece(path: Path, piece: Mapping[str, Any]) -> None:
    """Append a piece, in the place of one that was cut off; it is on the disk on return."""
    with path.open("a+b") as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(json.dumps(piece).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
