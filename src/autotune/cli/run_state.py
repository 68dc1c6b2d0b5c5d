"""What the events of a run add up to, and the words for it; what is shown is made from this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from autotune.report import formats, share_text
from autotune.store.rejections import describe_rejections
from autotune.store.trial_log import describe_counts
from autotune.tuning.events import (
    BaselineMeasured,
    CheckpointSaved,
    Event,
    LeadersCompared,
    RunFinished,
    RunStarted,
    TrialFinished,
    WorkersReady,
)

__all__ = ["RunState", "TaskState", "compared_text", "joined"]


class TaskState:
    """One task of a run."""

    def __init__(self, started: RunStarted) -> None:
        self.started = started
        self.trials = started.resumed_trials
        self.best = started.resumed_best
        self.baseline: float | None = None
        self.counts = Counter(started.resumed_outcomes)
        self.rejections = Counter(started.resumed_rejections)
        self.cached = 0
        self.compared: LeadersCompared | None = None
        self.finished = ""

    def update(self, event: TrialFinished) -> None:
        """Count one trial."""
        self.trials = event.trial + 1
        self.best = event.best
        self.counts[event.outcome.status] += 1
        self.cached += event.outcome.cached
        if event.reason:
            self.rejections[event.reason] += 1

    @property
    def speed_text(self) -> str:
        """Best latency and rate, and the gain over the untuned program."""
        if self.best is None:
            return "no valid candidate yet"
        text = f"best {formats.seconds(self.best)}"
        if self.started.flop:
            text += f" ({formats.rate(self.started.flop, self.best)})"
        if self.baseline is not None:
            text += f", {self.baseline / self.best:.1f} times as fast as untuned"
        return text

    @property
    def count_text(self) -> str:
        """Outcomes so far."""
        cached = f", {self.cached} from records" if self.cached else ""
        return describe_counts(self.counts) + cached

    @property
    def rejection_text(self) -> str:
        """Why candidates were turned down; "" when none was."""
        text = describe_rejections(self.rejections)
        return f"turned down: {text}" if text else ""

    @property
    def compared_text(self) -> str:
        """How the last candidate for the best compared with it; "" when there was none."""
        return "" if self.compared is None else compared_text(self.compared)


class RunState:
    """All tasks of a run, by name, in the order in which they began."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskState] = {}
        self.elapsed = 0.0
        self.seconds: Mapping[str, float] = {}
        self._resumed_seconds = 0.0
        self._startup = 0.0

    def update(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, RunStarted):
            self.tasks[event.task] = TaskState(event)
            self.elapsed = self._resumed_seconds = event.resumed_seconds
        elif isinstance(event, WorkersReady):
            self._startup = self._startup or event.seconds
        elif isinstance(event, BaselineMeasured):
            self.tasks[event.task].baseline = event.outcome.latency
        elif isinstance(event, TrialFinished):
            self.tasks[event.task].update(event)
            self.elapsed = event.elapsed
        elif isinstance(event, LeadersCompared):
            self.tasks[event.task].compared = event
        elif isinstance(event, RunFinished):
            self.tasks[event.task].finished = event.reason
        elif isinstance(event, CheckpointSaved):
            self.seconds = event.seconds
            self.elapsed = max(self.elapsed, sum(event.seconds.values()))

    @property
    def trials(self) -> int:
        """Trials of all tasks, those of earlier sessions included."""
        return sum(task.trials for task in self.tasks.values())

    @property
    def budget(self) -> int:
        """Trials that all tasks together may take."""
        return max((task.started.trials for task in self.tasks.values()), default=0)

    @property
    def remaining(self) -> float | None:
        """Seconds until the budget is used up, at the pace so far; None when unknown.

        Starting workers is no part of the pace.
        """
        done = self.trials - sum(task.started.resumed_trials for task in self.tasks.values())
        passed = max(0.0, self.elapsed - self._resumed_seconds - self._startup)
        limits = [task.started.seconds for task in self.tasks.values()]
        left = [seconds - self.elapsed for seconds in limits if seconds is not None]
        if done > 0:
            left.append(passed / done * (self.budget - self.trials))
        return max(0.0, min(left)) if left else None

    @property
    def finished(self) -> bool:
        """Whether every task has ended."""
        return all(task.finished for task in self.tasks.values())

    @property
    def time_text(self) -> str:
        """Seconds used and left."""
        text = f"{self.elapsed:.1f} s"
        if self.remaining is None or self.finished:
            return text
        return f"{text}, about {self.remaining:.0f} s left"

    @property
    def share_text(self) -> str:
        """Where the time went; "" before that is known."""
        return share_text(self.seconds)


def compared_text(event: LeadersCompared) -> str:
    """``"3a4b5c6d 1.03 times as fast as 9e8f7a6b (1.01 to 1.05): the new best"``."""
    found = event.comparison
    text = f"{event.challenger[:8]} {found.ratio:.3g} times as fast as {event.leader[:8]}"
    interval = f"({found.low:.3g} to {found.high:.3g})"
    return f"{text} {interval}: {'the new best' if event.replaced else 'not better'}"


def joined(texts: Iterable[str]) -> str:
    """The texts that are not empty, on one line."""
    return "; ".join(text for text in texts if text)
