"""Places of things in the text that a program was read from."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["at", "diagnostic_text", "positions"]

_PLACE = re.compile(r'"(?:[^"\\]|\\.)*":(\d+):(\d+)')
_POSITION = re.compile(r"loc\(" + _PLACE.pattern)


def _position(location: Any) -> str:
    """``LINE:COLUMN`` of a location, or nothing where it has none."""
    found = _POSITION.search(str(location))
    return f"{found[1]}:{found[2]}" if found else ""


def positions(operation: Any) -> set[str]:
    """``LINE:COLUMN`` of all places that an operation comes from."""
    found = _PLACE.findall(str(operation.location))
    return {f"{line}:{column}" for line, column in found}


def at(operation: Any, file: str) -> str:
    """`` at FILE:LINE:COLUMN`` for an operation, or nothing where that is not known.

    Args:
        operation: An operation of a parsed module.
        file: What to call the text.
    """
    position = _position(operation.location)
    return f" at {file}:{position}" if position else ""


def diagnostic_text(error: Exception, file: str) -> str:
    """An MLIR failure in one line: ``FILE:LINE:COLUMN: message``.

    Args:
        error: An ``MLIRError``.
        file: What to call the text.
    """
    diagnostics = getattr(error, "error_diagnostics", None) or []
    if not diagnostics:
        return f"{file}: {_one_line(str(error))}"
    first = diagnostics[0]
    position = _position(first.location)
    return f"{file}:{position}: {_one_line(first.message)}" if position else (
        f"{file}: {_one_line(first.message)}"
    )  # fmt: skip


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
