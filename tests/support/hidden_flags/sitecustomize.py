"""Hides flags of the processor from every process that finds this module on its path.

Python imports a module of this name when it starts. Linux's list of what the processor has, which
detection reads, then lacks the flags that begin with one of `HIDDEN_PROCESSOR_FLAGS`.
"""

from __future__ import annotations

import builtins
import io
import os
import re
from collections.abc import Sequence
from typing import Any

_LIST = "/proc/cpuinfo"


def without(text: str, prefixes: Sequence[str]) -> str:
    """The text of Linux's list, without flags whose names begin with one of ``prefixes``."""
    hidden = re.compile(rf" (?:{'|'.join(map(re.escape, prefixes))})\w*")
    lines = text.splitlines(keepends=True)
    return "".join(hidden.sub("", it) if it.startswith("flags") else it for it in lines)


def _hide(prefixes: Sequence[str]) -> None:
    opened = io.open

    def reopened(file: Any, *arguments: Any, **options: Any) -> Any:
        found = opened(file, *arguments, **options)
        if isinstance(file, (str, os.PathLike)) and os.fspath(file) == _LIST:
            with found:
                return io.StringIO(without(found.read(), prefixes))
        return found

    # Paths open files by the first name, and all else by the second.
    io.open = builtins.open = reopened


if _prefixes := os.environ.get("HIDDEN_PROCESSOR_FLAGS"):
    _hide(_prefixes.split(","))
