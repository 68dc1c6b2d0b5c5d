"""The folder for what may be lost: it is made again where it is missing."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["user_cache_folder"]


def user_cache_folder() -> Path | None:
    """``autotune`` in this user's folder for caches; None for a user without a home."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError:
            return None
    return base / "autotune"
