"""Imports without packages that the imported can do without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["packages_hidden"]


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
