"""Messages that TVM's native code writes whatever happens."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_messages"]

_ALWAYS_SAID = (
    # Of every lookup in a table by indices of the graph.
    b"Warning: Fast mode segfaults when there are out-of-bounds indices",
)
# Parts of lines that say nothing about a network; TVM has no setting for them.


@contextmanager
def without_messages(parts: tuple[bytes, ...] = _ALWAYS_SAID) -> Iterator[None]:
    """Leave lines out of what is written to the process's standard error inside.

    The others are written at the end.

    Args:
        parts: A line with one of these is left out.
    """
    try:
        before = os.dup(2)
    except OSError:  # closed: nothing is written to it
        yield
        return
    with tempfile.TemporaryFile() as held:
        _flush()
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            _flush()
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if not any(part in line for part in parts):
                    os.write(2, line)


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()
