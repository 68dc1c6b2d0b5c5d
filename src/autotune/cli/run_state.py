"""The state of a run, accumulated from its events, and its texts for displays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from autotune.report import comparison_text, formats, share_text, short_digest
from autotune.sketches import UNTUNED
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

__all__ = ["RunState", "TaskNames", "TaskState", "compared_text", "joined"]


class TaskNames:
    """Short names of tasks: ``gemm`` for ``gemm m=512 n=512 k=512 float32``, ``gemm#2``, ..."""

    def __init__(self) -> None:
        self._short: dict[str, str] = {}
        self._stems: Counter[str] = Counter()

    def short(self, task: str) -> str:
        """The short name of a task, or of the program that tasks on several backends share."""
        program, on, backend = task.partition(" on ")
        if program not in self._short:
            stem = _stem(program)
            self._stems[stem] += 1
            number = self._stems[stem]
            self._short[program] = stem if number == 1 else f"{stem}#{number}"
        return self._short[program] + on + backend

    def details(self, task: str) -> str:
        """Details that the short name leaves out: ``"m=512 n=512 k=512 float32"``, or ""."""
        program = task.partition(" on ")[0]
        return program.removeprefix(_stem(program)).strip()


def _stem(program: str) -> str:
    return program.partition("=")[0].rpartition(" ")[0] if "=" in program else program


class TaskState:
    """A task of a run."""

    def __init__(self, started: RunStarted) -> None:
        self.started = started
        self.trials = started.resumed_trials
        self.best = started.resumed_best
        self.baseline: float | None = None
        self.baseline_name = UNTUNED
        self.counts = Counter(started.resumed_outcomes)
        self.rejections = Counter(started.resumed_rejections)
        self.cached = 0
        self.compared: LeadersCompared | None = None
        self.finished = ""

    def note_baseline(self, event: BaselineMeasured) -> None:
        """Keep the fastest of the baselines."""
        latency = event.outcome.latency
        if latency is not None and (self.baseline is None or latency < self.baseline):
            self.baseline, self.baseline_name = latency, event.name

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
        """Best latency and rate."""
        if self.best is None:
            return "no valid candidate yet"
        rate = f" ({self.rate_text})" if self.started.flop else ""
        return f"best {formats.seconds(self.best)}{rate}"

    @property
    def rate_text(self) -> str:
        """Operations in a second of the best candidate."""
        return formats.rate(self.started.flop, self.best)

    @property
    def gain_text(self) -> str:
        """The speed-up over the baseline; "" where there is none yet."""
        if self.best is None or self.baseline is None:
            return ""
        return formats.ratio(self.baseline / self.best)

    @property
    def count_text(self) -> str:
        """Outcomes so far."""
        cached = f", {self.cached} from records" if self.cached else ""
        return describe_counts(self.counts) + cached

    @property
    def rejection_text(self) -> str:
        """Why candidates were rejected; "" when none was."""
        text = describe_rejections(self.rejections)
        return f"rejected: {text}" if text else ""

    @property
    def compared_text(self) -> str:
        """Comparison of the last challenger with the leader; "" when there was none."""
        return "" if self.compared is None else compared_text(self.compared)


class RunState:
    """All tasks of a run, by name, in the order in which they began."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskState] = {}
        self.names = TaskNames()
        self.elapsed = 0.0
        self.seconds: Mapping[str, float] = {}
        self._resumed_seconds = 0.0
        self._startup = 0.0

    def baseline_name(self, task: str) -> str:
        """Name of the fastest program without tuning."""
        return self.tasks[task].baseline_name if task in self.tasks else UNTUNED

    def update(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, RunStarted):
            self.tasks[event.task] = TaskState(event)
            self.elapsed = self._resumed_seconds = event.resumed_seconds
        elif isinstance(event, WorkersReady):
            self._startup = self._startup or event.seconds
        elif isinstance(event, BaselineMeasured):
            self.tasks[event.task].note_baseline(event)
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
    def budget(self) -> int | None:
        """Trials that all tasks together may take; None where time alone limits them."""
        return max((task.started.trials or 0 for task in self.tasks.values()), default=0) or None

    @property
    def share_done(self) -> float:
        """Share of the budget that is used up, from 0 to 1."""
        shares = [self.elapsed / seconds for seconds in self._limits]
        if self.budget is not None:
            shares.append(self.trials / self.budget)
        return min(1.0, max(shares, default=0.0))

    @property
    def _limits(self) -> list[float]:
        limits = [task.started.seconds for task in self.tasks.values()]
        return [seconds for seconds in limits if seconds is not None]

    @property
    def remaining(self) -> float | None:
        """Seconds until the budget is used up, at the pace so far; None when unknown.

        Starting workers is no part of the pace.
        """
        done = self.trials - sum(task.started.resumed_trials for task in self.tasks.values())
        passed = max(0.0, self.elapsed - self._resumed_seconds - self._startup)
        left = [seconds - self.elapsed for seconds in self._limits]
        if done > 0 and self.budget is not None:
            left.append(passed / done * (self.budget - self.trials))
        return max(0.0, min(left)) if left else None

    @property
    def finished(self) -> bool:
        """True if every task has ended."""
        return all(task.finished for task in self.tasks.values())

    @property
    def time_text(self) -> str:
        """Seconds used and left."""
        text = f"{self.elapsed:.1f} s"
        if self.remaining is None or self.finished or self.trials == self.budget:
            return text
        return f"{text}, about {self.remaining:.0f} s left"

    def done_text(self, trials: int) -> str:
        """``"12/64 trials"``, or ``"12 trials"`` where time alone limits them."""
        return f"{trials} trials" if self.budget is None else f"{trials}/{self.budget} trials"

    @property
    def share_text(self) -> str:
        """Shares of the time; "" before that is known."""
        return share_text(self.seconds)


def compared_text(event: LeadersCompared) -> str:
    """``"3a4b5c6d beats 9e8f7a6b 1.03x (1.01x to 1.05x)"``."""
    compared = comparison_text(event.comparison, short_digest(event.leader))
    return f"{short_digest(event.challenger)} {compared}"


def joined(texts: Iterable[str]) -> str:
    """The texts that are not empty, on one line."""
    return "; ".join(text for text in texts if text)
