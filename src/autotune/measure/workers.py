"""The workers of a measurer, with what gives them work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from attrs import define

from autotune.measure.building import Building
from autotune.measure.dispatcher import Dispatcher
from autotune.measure.plausibility import Plausibility
from autotune.measure.pool import WorkerPool
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing_session import TimingSession
from autotune.measure.trial import Trial

__all__ = ["Workers"]


@define
class Workers:
    """The workers, and those who keep them busy.

    Attributes:
        pool: The processes.
        files: What they read, kept until they are closed.
        cpus: CPUs that programs are timed on.
        dispatcher: Gives them their jobs.
        building: Has them build.
        new_session: Starts another session of timing with them.
        timing: The session of the search.
    """

    pool: WorkerPool
    files: ExitStack
    cpus: list[int]
    dispatcher: Dispatcher
    building: Building
    new_session: Callable[[], TimingSession]
    timing: TimingSession

    @staticmethod
    def of(
        pool: WorkerPool,
        cpus: Sequence[int],
        protocol: MeasureProtocol,
        seed: int,
        observers: Sequence[str],
        plausibility: Plausibility | None,
    ) -> Workers:
        """Workers that have done nothing yet.

        Args:
            pool: The processes.
            cpus: CPUs that programs are timed on.
            protocol: How to measure.
            seed: Seed of the order of turns.
            observers: Names of observers.
            plausibility: What latencies are held to; None for nothing.
        """
        dispatcher, rng = Dispatcher(pool, observers), np.random.default_rng(seed)

        def new_session() -> TimingSession:
            return TimingSession(dispatcher, protocol, rng, plausibility=plausibility)

        return Workers(
            pool,
            ExitStack(),
            list(cpus),
            dispatcher,
            Building(dispatcher, protocol),
            new_session,
            new_session(),
        )

    def holds(self, trial: Trial) -> bool:
        """Whether a living worker has the program of a trial."""
        return trial.place is not None and self.pool.holds(trial.place)

    def remember(self, trials: Sequence[Trial]) -> None:
        """Tell the workers which programs need not be compiled again."""
        known = [
            trial.lowered
            for trial in trials
            if trial.lowered and trial.outcome is not None and not trial.outcome.retriable
        ]
        if known:
            self.pool.tell({"op": "known", "programs": known})
