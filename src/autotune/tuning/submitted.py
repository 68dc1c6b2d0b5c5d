"""A round of candidates on its way through a measurer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field

from autotune.sketches import Candidate
from autotune.store.records import Outcome

__all__ = ["Submitted", "answered_of"]


@define(eq=False)
class Submitted:
    """Candidates of a round, and those of them that are being measured.

    Attributes:
        batch: The candidates.
        known: The outcome of each with the run that recorded it, where there is one.
        missing: Positions of those that are being measured.
        outcomes: What was logged, in order.
        logged: Positions that were logged as they became known, in whatever order.
    """

    batch: Sequence[Candidate]
    known: list[tuple[Outcome, str] | None]
    missing: list[int] = field(init=False)
    outcomes: list[Outcome] = field(factory=list)
    logged: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.missing = [index for index, found in enumerate(self.known) if found is None]

    @property
    def unlogged(self) -> int:
        """Number of candidates that have not been logged."""
        return len(self.batch) - max(len(self.outcomes), len(self.logged))


def answered_of(
    places: Iterable[tuple[Submitted, int]],
) -> list[tuple[Candidate, tuple[Outcome, str]]]:
    """Candidates, by round and position, that records answer."""
    found = [(submitted.batch[at], submitted.known[at]) for submitted, at in places]
    return [(candidate, known) for candidate, known in found if known is not None]
