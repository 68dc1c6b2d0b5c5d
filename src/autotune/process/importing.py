"""Imports without packages that can be done without, and without a search for garbage."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collection", "packages_hidden"]


@contextmanager
def packages_hidden(*names: str) -> Iterator[None]:
    """Let imports of packages fail as if they were not installed; those already imported stay."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # documented: None
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


@contextmanager
def no_collection() -> Iterator[None]:
    """No search for garbage inside, as most of what an import makes stays."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
