"""Text of others, as a terminal or a page may show it."""

from __future__ import annotations

import re

__all__ = ["printable"]

# All but the ends of lines and tabs, and marks that turn the direction of text around.
_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069]")


def printable(text: str) -> str:
    """Text of others, such as names in records, with its control characters written out."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)
