"""Observer readings as text."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["reading_lines"]


def reading_lines(readings: Mapping[str, float | None]) -> list[str]:
    """Write a line per reading, by name; ``absent`` for what could not be read.

    Args:
        readings: By ``observer/reading``, as in an outcome.
    """
    width = max(map(len, readings), default=0)
    return [f"{name.ljust(width)}  {_text(value)}" for name, value in sorted(readings.items())]


def _text(value: float | None) -> str:
    if value is None:
        return "absent"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
