"""Having lanes time all that was submitted, each candidate on the first machine that is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice

from autotune.measure.batch import Batch
from autotune.measure.measurer import Collecting
from autotune.measure.task_client import TaskClient
from autotune.measure.timing_session import OnComparison
from autotune.measure.trial import Trial

__all__ = ["LaneRun"]

# How many candidates a machine takes at a time.
_MOST_TOGETHER = 8


class LaneRun:
    """State of building and timing while outcomes of a task are collected from lanes.

    Programs travel by the hash of their content, so that none is bound to a machine before it is
    loaded there: a machine that is done takes the next program that is built, and none waits for
    a slower one. A machine without anything to time may build meanwhile.

    Args:
        client: The task.
        batches: What was submitted and not collected, in order.
        look_up: Finds out whether the program of a trial has been measured before.
        most: How many candidates are built or timed at the same time.
        timed: Counts what is done inside as ``build`` or ``run``.
        undisturbed: Inside, what would disturb the timing of trials waits.
    """

    def __init__(
        self,
        client: TaskClient,
        batches: Iterable[Batch],
        look_up: Callable[[Trial], None],
        most: int,
        timed: Callable[[str], AbstractContextManager[None]],
        undisturbed: Callable[[Sequence[Trial]], AbstractContextManager[None]],
    ) -> None:
        self._client = client
        self._batches = batches
        self._look_up = look_up
        self._most = most
        self._timed = timed
        self._undisturbed = undisturbed
        self._done: list[Trial] = []
        self._looked_up: set[int] = set()

    def collect(
        self, collecting: Collecting, tell: Callable[[], None], is_over: Callable[[], bool]
    ) -> None:
        """Have all machines build and time, until it is over or there was enough.

        Args:
            collecting: What is to be called, but for outcomes.
            tell: Called whenever outcomes may have become known.
            is_over: Whether all is known that was asked for.
        """
        lanes, timing = self._client.lanes, self._client.timing
        tell()
        while not is_over() and not collecting.enough():
            if timing.leader is None:
                self._find_first_leader(collecting.on_comparison)
            with self._timed("run" if lanes.busy else "build"):
                self._step(collecting.on_comparison)
            tell()
        if collecting.enough():
            self._take(lanes.rest(collecting.on_comparison))
            tell()

    def _find_first_leader(self, on_comparison: OnComparison | None) -> None:
        """Time the next candidate that is built alone: others are timed beside it."""
        trial, timing = next(self._ready(), None), self._client.timing
        if trial is None:
            return
        with self._undisturbed([trial]):
            timing.screen(trial)
            timing.settle(on_comparison)

    def _step(self, on_comparison: OnComparison | None) -> None:
        """Hand out what is built, and wait a moment for what may happen."""
        lanes, timing = self._client.lanes, self._client.timing
        if timing.leader is not None:
            if lanes.are_unable:
                timing.lead(None)
            self._feed()
        self._client.building.request(self._waiting())
        self._take(lanes.serve(on_comparison))

    def end(self) -> None:
        """Let machines do other things, and tell them which programs are known now."""
        self._client.remember(self._done)
        self._done = []
        self._client.lanes.release_leases()

    def take_from_originals(self) -> None:
        """End those whose program another trial has measured."""
        for trial in self._open():
            trial.take_from_original()

    def _open(self) -> Iterator[Trial]:
        """Trials without an outcome, in order of submission."""
        return (it for batch in self._batches for it in batch.in_order if it.outcome is None)

    def _waiting(self) -> list[Trial]:
        """As many of them as there is room for, without those that lanes are at."""
        lanes = self._client.lanes
        waiting = (trial for trial in self._open() if not lanes.is_timing(trial))
        return list(islice(dict.fromkeys(waiting), self._most))

    def _ready(self) -> Iterator[Trial]:
        for trial in self._waiting():
            if trial.duplicate_of is not None:
                self._look_up(trial)
            elif self._client.holds(trial):
                if trial.number not in self._looked_up:
                    self._looked_up.add(trial.number)
                    self._look_up(trial)
                if trial.outcome is None:
                    yield trial

    def _feed(self) -> None:
        """Give each idle machine what is to be timed next."""
        lanes = self._client.lanes
        idle = lanes.idle()
        ready = list(self._ready()) if idle else []
        for position in idle:
            if not ready:
                lanes.release_leases()
                return
            # Several share the turns of the best one; where few are left, each machine has one.
            count = max(1, min(_MOST_TOGETHER, len(ready) // lanes.count))
            if lanes.begin(position, ready[:count]):
                del ready[:count]

    def _take(self, trials: list[Trial]) -> None:
        """Free the programs of trials that are over."""
        self.take_from_originals()
        over = [trial for trial in trials if trial.outcome is not None]
        self._done += over
        self._client.forget(over)
