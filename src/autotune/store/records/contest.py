"""Winners of several backends, timed in turns."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from autotune.ir.converter import JsonForm
from autotune.store.records.confirmation import Comparison

__all__ = ["Contest"]


@frozen
class Contest(JsonForm):
    """The winners of several backends for one program, timed in turns at the end of a run.

    Attributes:
        winner: Name of the backend that won.
        finalists: Digest of each backend's best candidate, by name of the backend.
        over: The winner against the others, by backend; those that failed now are not there.
    """

    winner: str
    finalists: Mapping[str, str] = field(hash=False)
    over: Mapping[str, Comparison] = field(hash=False)
