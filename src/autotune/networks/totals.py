"""The estimated latency of a network while it is tuned, from the events of the run."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field

from autotune.tuning.events import (
    AnsweredFromRecords,
    BaselineMeasured,
    Event,
    NetworkLoaded,
    NetworkTaskFacts,
    RunStarted,
    TrialFinished,
)

__all__ = ["NetworkTotals", "TaskTotals"]


@define
class TaskTotals:
    """Knowledge of the equal tasks of a network.

    Attributes:
        facts: The tasks.
        started: Whether tuning has begun, so that they were not refused.
        best: Seconds of one call of the best candidate, or None.
        baseline: Seconds of one call of the fastest program without tuning, or None.
    """

    facts: NetworkTaskFacts
    started: bool = False
    best: float | None = None
    baseline: float | None = None

    @property
    def latency(self) -> float | None:
        """Seconds of one call: the best candidate or the baseline, whichever is faster."""
        known = [it for it in (self.best, self.baseline) if it is not None]
        return min(known, default=None)

    @property
    def total(self) -> float | None:
        """Seconds of all calls in one inference."""
        latency = self.latency
        return None if latency is None else latency * self.facts.occurrences


@define
class NetworkTotals:
    """A listener that keeps the sum of occurrences x latency over the tasks that are tuned.

    Attributes:
        network: What a person calls the network; "" before it is loaded.
        tasks: Its tasks by name, in order of their first call.
        elapsed: Seconds of the run.
        trials: Trials of all tasks.
    """

    network: str = ""
    tasks: dict[str, TaskTotals] = field(factory=dict)
    elapsed: float = 0.0
    _trials: dict[str, int] = field(factory=dict)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, NetworkLoaded):
            self.network = event.network
            self.tasks = {facts.name: TaskTotals(facts) for facts in event.tasks}
        elif isinstance(event, RunStarted) and event.task in self.tasks:
            task = self.tasks[event.task]
            task.started, task.best = True, event.resumed_best
            self._trials[event.task] = event.resumed_trials
            self.elapsed = event.resumed_seconds
        elif isinstance(event, BaselineMeasured) and event.task in self.tasks:
            latency, task = event.outcome.latency, self.tasks[event.task]
            if latency is not None and (task.baseline is None or latency < task.baseline):
                task.baseline = latency
        elif isinstance(event, TrialFinished) and event.task in self.tasks:
            self.tasks[event.task].best = event.best
            self._trials[event.task] = event.trial + 1
            self.elapsed = event.elapsed
        elif isinstance(event, AnsweredFromRecords) and event.task in self.tasks:
            task = self.tasks[event.task]
            task.started = True
            task.best = None if event.best is None else event.best.latency
            self._trials[event.task] = event.trials

    @property
    def trials(self) -> int:
        """Trials of all tasks, those of earlier sessions included."""
        return sum(self._trials.values())

    @property
    def unknown(self) -> int:
        """Number of tasks that are tuned and have no latency yet."""
        return sum(task.started and task.latency is None for task in self.tasks.values())

    @property
    def latency(self) -> float | None:
        """Estimated seconds of one inference, of what is known; None where nothing is."""
        totals = [it.total for it in self.tasks.values() if it.total is not None]
        return sum(totals) if totals else None

    def shares(self) -> Mapping[str, float]:
        """The part of each task in the estimate, the largest first; those that are not known last.

        Before anything is known, the part in the flop.
        """
        whole = self.latency
        if whole:
            parts = {name: (task.total or 0.0) / whole for name, task in self.tasks.items()}
        else:
            flop = {
                it.facts.name: it.facts.occurrences * it.facts.flop for it in self.tasks.values()
            }
            parts = {name: value / (sum(flop.values()) or 1.0) for name, value in flop.items()}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))
