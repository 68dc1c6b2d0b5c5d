"""Winners of several backends, timed in turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from autotune.ir.converter import from_json, to_json
from autotune.store.records.confirmation import Comparison

__all__ = ["Contest"]


@frozen
class Contest:
    """The winners of several backends for one program, timed in turns at the end of a run.

    Attributes:
        winner: Name of the backend that won.
        finalists: Digest of each backend's best candidate, by name of the backend.
        over: The winner against the others, by backend; those that failed now are not there.
    """

    winner: str
    finalists: Mapping[str, str] = field(hash=False)
    over: Mapping[str, Comparison] = field(hash=False)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back."""
        return dict(to_json(self))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Contest:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: the object is not a contest.
        """
        return from_json(Contest, data)
