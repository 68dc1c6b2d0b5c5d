"""A program that one measurer holds while it takes turns with those of other measurers."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from attrs import frozen

from autotune.measure.measurer import LoadedProgram
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Trial
from autotune.store.records import Outcome

__all__ = ["HeldTrial"]


@frozen(eq=False)
class HeldTrial(LoadedProgram):
    """A trial that a worker holds.

    Attributes:
        trial: The trial; it has an outcome if it failed.
        timing: Times it.
        undisturbed: Keeps other work away while time is taken.
    """

    trial: Trial
    timing: TimingSession
    undisturbed: Callable[[Sequence[Trial]], AbstractContextManager[None]]

    @property
    def failure(self) -> Outcome | None:
        return self.trial.outcome

    def turn(self, placement: int) -> float | None:
        if self.trial.outcome is not None:
            return None
        with self.undisturbed([self.trial]):
            samples = self.timing.turn(self.trial, placement)
        if samples is None and self.trial.outcome is None:
            self.trial.fail("crash", "the worker that held it ended")
        return None if samples is None else statistics.median(samples)
