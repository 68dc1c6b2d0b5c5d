"""Files of lines that grow run by run; what a crash has cut off does not count."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["append_line", "whole_lines"]


def whole_lines(path: Path) -> list[str]:
    """Lines of a file that have an end; none where there is no file.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    try:
        text, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    except FileNotFoundError:
        return []
    return text.splitlines()


def append_line(path: Path, line: str) -> None:
    """Append a line, in the place of one that was cut off; it is on the disk on return.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("a+b") as stream:
        with contextlib.suppress(OSError):  # a pipe
            stream.seek(0)
            stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(line.encode() + b"\n")
        stream.flush()
        if stream.seekable():
            os.fsync(stream.fileno())
