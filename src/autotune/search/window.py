"""The candidates that are out while several machines measure: asked for, and not learnt from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from attrs import define, field

from autotune.models.cost import Observation
from autotune.sketches import Candidate

__all__ = ["PER_LANE", "Window"]

PER_LANE = 4
"""Candidates that are out for each machine that times, when the next are asked for."""


@define(eq=False)
class Window:
    """Candidates of one task between being asked for and being learnt from.

    A round does not wait for its last candidate: outcomes are learnt from in the order in which
    they arrive, as many at a time as a round has, whichever rounds they are of. Then the next
    rounds are asked for. So what is proposed follows from the order of outcomes, and from nothing
    else: not from when they arrive, nor from when the search is done with its work.

    Attributes:
        step: How many outcomes are learnt from at a time.
        pending: What was asked for and not learnt from, in the order asked.
        arrived: Outcomes that were not learnt from, in the order in which they arrived.
    """

    step: int
    pending: list[Candidate] = field(factory=list)
    arrived: deque[Observation] = field(factory=deque)

    def is_short(self, lanes: int) -> bool:
        """Return whether to ask for another round.

        Args:
            lanes: How many machines time: until the next step, each has something to do.
        """
        return len(self.pending) < self.step + PER_LANE * lanes

    def add(self, asked: Sequence[Candidate]) -> list[Candidate]:
        """Note what was asked for; returns those that are not out already."""
        out = {candidate.digest for candidate in self.pending}
        new = [it for digest, it in {it.digest: it for it in asked}.items() if digest not in out]
        self.pending += new
        return new

    def arrive(self, known: Sequence[Observation]) -> None:
        """Note outcomes, in the order in which they became known."""
        self.arrived.extend(known)

    @property
    def missing(self) -> int:
        """Number of outcomes to wait for before the next step: at the end all that are out."""
        return max(0, min(self.step, len(self.pending)) - len(self.arrived))

    def take_step(self) -> list[Observation]:
        """Outcomes to learn from now, in the order in which they arrived."""
        taken = [self.arrived.popleft() for _ in range(min(self.step, len(self.arrived)))]
        gone = {candidate.digest for candidate, _ in taken}
        self.pending = [it for it in self.pending if it.digest not in gone]
        return taken
