"""Command lines in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

__all__ = ["Command", "Done"]


@frozen
class Done:
    """Outcome of a command."""

    status: int
    stdout: str
    stderr: str


Command = Callable[..., Done]
