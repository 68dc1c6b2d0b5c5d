"""Candidates that were submitted together, and which of their outcomes were delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from attrs import define, field

from autotune.measure.trial import Trial
from autotune.sketches import Candidate
from autotune.store.records import Outcome

__all__ = ["Batch"]

_Trial = TypeVar("_Trial", bound=Trial)


@define(eq=False)
class Batch(Generic[_Trial]):
    """Trials in the order of their candidates; a candidate that occurs twice has one trial.

    Attributes:
        in_order: A trial for each candidate.
        chunk: Trials that are being built and timed.
        delivered: Outcomes that were delivered, in order.
    """

    in_order: Sequence[_Trial]
    chunk: list[_Trial] = field(factory=list)
    delivered: list[Outcome] = field(factory=list)
    _taken: int = 0
    _known: set[int] = field(factory=set)

    @property
    def is_taken(self) -> bool:
        """True if :meth:`take_known` has given every outcome."""
        return len(self._known) == len(self.in_order)

    def take_known(self) -> Iterator[tuple[Candidate, Outcome]]:
        """Candidates whose outcomes are known and were not given before."""
        for position, trial in enumerate(self.in_order):
            if position in self._known or trial.outcome is None or trial.candidate is None:
                continue
            # Counted afterwards: what is interrupted in between is given again.
            yield trial.candidate, trial.outcome
            self._known.add(position)

    @property
    def trials(self) -> list[_Trial]:
        """Each trial once."""
        return list(dict.fromkeys(self.in_order))

    @property
    def is_over(self) -> bool:
        """True if every trial has an outcome."""
        return not self.chunk and self._taken == len(self.trials)

    @property
    def open_chunk(self) -> list[_Trial]:
        """Trials of the chunk that have no outcome yet."""
        return [trial for trial in self.chunk if trial.outcome is None]

    def next_chunk(self, size: int) -> list[_Trial]:
        """Make the next trials the chunk, and return them."""
        self.chunk = self.trials[self._taken : self._taken + size]
        self._taken += len(self.chunk)
        return self.chunk

    def abandon(self) -> None:
        """Give up what has no outcome."""
        for trial in self.in_order:
            trial.abandoned = trial.outcome is None

    def tell(self, on_outcome: Callable[[int, Outcome], None] | None) -> None:
        """Tell outcomes in order, as far as they are known."""
        while len(self.delivered) < len(self.in_order):
            outcome = self.in_order[len(self.delivered)].outcome
            if outcome is None:
                return
            self.delivered.append(outcome)
            if on_outcome is not None:
                on_outcome(len(self.delivered) - 1, outcome)

    def tell_rest(self, on_outcome: Callable[[int, Outcome], None] | None) -> None:
        """After an interrupt: tell every outcome that may not have been taken in.

        That is also the one being delivered, and any that waited for an earlier candidate.
        """
        if on_outcome is None:
            return
        for trial in self.trials:
            trial.take_from_original()
        for position in range(max(0, len(self.delivered) - 1), len(self.in_order)):
            outcome = self.in_order[position].outcome
            if outcome is not None:
                on_outcome(position, outcome)
