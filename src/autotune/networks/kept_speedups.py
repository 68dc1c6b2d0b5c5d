"""Expectations of layouts and convolutions, kept in a file for the next time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.process.cache_folder import user_cache_folder
from autotune.store.jsonl import replacing

__all__ = ["KeptSpeedups", "user_file"]

_SCHEMA = "autotune.layout_speedups"
_VERSION = 1
_MOST = 1000
"""Answers that are kept; the oldest are forgotten first."""


def user_file() -> Path | None:
    """``autotune/layouts.json`` in this user's folder for caches; None for one without a home."""
    folder = user_cache_folder()
    return None if folder is None else folder / "layouts.json"


@frozen
class KeptSpeedups:
    """Expected speedups by a key that says all that they depend on.

    A file that is damaged, or of another version, counts as empty, and one that cannot be written
    keeps nothing: then speedups are expected anew each time. Of processes that write at once, the
    last one wins.

    Attributes:
        path: The file; its folder is made when something is kept.
    """

    path: Path

    def find(self, key: str) -> tuple[float | None] | None:
        """Return the speedup of a key, or None for what cannot be expressed, if it is known."""
        speedups = self._read()
        return (speedups[key],) if key in speedups else None

    def keep(self, key: str, speedup: float | None) -> None:
        """Remember it."""
        speedups = {name: known for name, known in self._read().items() if name != key}
        newest = [*speedups.items(), (key, speedup)][-_MOST:]
        text = json.dumps({"schema": _SCHEMA, "version": _VERSION, "speedups": dict(newest)})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as stream:
                stream.write(text.encode())
        except (OSError, InvalidValueError):
            return

    def _read(self) -> Mapping[str, float | None]:
        try:
            data = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
            return {}
        speedups = data.get("speedups")
        if data.get("version") != _VERSION or not isinstance(speedups, dict):
            return {}
        return {key: value for key, value in speedups.items() if _is_speedup(value)}


def _is_speedup(value: object) -> bool:
    # Infinities and NaN, which Python's JSON has, are no speedups.
    return value is None or (type(value) is float and 0 < value < float("inf"))
