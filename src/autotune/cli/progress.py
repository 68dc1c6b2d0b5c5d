"""Live progress of a run: a display on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

from autotune.events import (
    AnsweredFromRecords,
    BaselineMeasured,
    CheckpointSaved,
    Event,
    EventListener,
    RunFinished,
    RunStarted,
    TrialFinished,
    WarningRaised,
    WorkersReady,
)
from autotune.report import formats
from autotune.trial_log import describe_counts

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["PlainProgress", "RunState", "progress"]


class RunState:
    """What the events of one task add up to."""

    def __init__(self, started: RunStarted) -> None:
        self.started = started
        self.trials = started.resumed_trials
        self.elapsed = started.resumed_seconds
        self.best = started.resumed_best
        self.baseline: float | None = None
        self.counts = dict(started.resumed_outcomes)
        self.cached = 0

    def update(self, event: TrialFinished) -> None:
        """Count one trial."""
        self.trials = event.trial + 1
        self.elapsed = event.elapsed
        self.best = event.best
        self.counts[event.outcome.status] += 1
        self.cached += event.outcome.cached

    @property
    def remaining(self) -> float | None:
        """Seconds until the budget is used up, at the pace so far; None when unknown."""
        done = self.trials - self.started.resumed_trials
        passed = self.elapsed - self.started.resumed_seconds
        left = None
        if done > 0:
            left = passed / done * (self.started.trials - self.trials)
        if self.started.seconds is not None:
            until = self.started.seconds - self.elapsed
            left = until if left is None else min(left, until)
        return None if left is None else max(0.0, left)

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
    def time_text(self) -> str:
        """Seconds used and left."""
        text = f"{self.elapsed:.1f} s"
        return text if self.remaining is None else f"{text}, about {self.remaining:.0f} s left"


class PlainProgress:
    """Writes a line when something worth a line happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._states: dict[str, RunState] = {}
        self._dirty: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RunStarted):
            self._states[event.task] = RunState(event)
            self._say(event.task, started_text(event))
        elif isinstance(event, WorkersReady):
            self._say(event.task, f"workers ready after {formats.seconds(event.seconds)}")
        elif isinstance(event, BaselineMeasured):
            self._states[event.task].baseline = event.outcome.latency
            self._say(event.task, baseline_text(event))
        elif isinstance(event, TrialFinished):
            self._states[event.task].update(event)
            self._dirty.add(event.task)
        elif isinstance(event, CheckpointSaved):
            self._flush()
        elif isinstance(event, WarningRaised):
            self._say(event.task, f"warning: {formats.one_line(event.message, 400)}")
        elif isinstance(event, AnsweredFromRecords):
            self._say(event.task, f"run {event.run_id} did {event.trials} trials: no new search")
        elif isinstance(event, RunFinished):
            self._flush()
            self._say(event.task, f"done: {event.reason}")

    def _flush(self) -> None:
        for task in sorted(self._dirty):
            state = self._states[task]
            done = f"{state.trials}/{state.started.trials} trials"
            texts = (done, state.speed_text, state.count_text, state.time_text)
            self._say(task, "; ".join(texts))
        self._dirty.clear()

    def _say(self, task: str, text: str) -> None:
        click.echo(f"{task}: {text}", file=self._stream)


def started_text(event: RunStarted) -> str:
    """What a run begins with."""
    text = f"{event.sketches} sketches, {event.configurations:,} configurations, "
    text += f"{event.trials} trials"
    if event.seconds is not None:
        text += f" or {event.seconds:g} s"
    # A run that was stopped in its first round has no complete trials, but it is not a new one.
    if event.resumed_seconds > 0:
        text += f"; run {event.run_id} goes on after {event.resumed_trials} trials"
    return text


def baseline_text(event: BaselineMeasured) -> str:
    """What the untuned program takes."""
    if event.outcome.latency is None:
        why = formats.one_line(event.outcome.message)
        return f"untuned program: {event.outcome.status} ({why})"
    return f"untuned program: {formats.seconds(event.outcome.latency)}"


class _LiveProgress:
    """Redraws a few lines per task in place; needs a terminal."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        self._states: dict[str, RunState] = {}
        self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=8)

    def __enter__(self) -> _LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RunStarted):
            self._states[event.task] = RunState(event)
            self._console.print(f"{event.task}: {started_text(event)}", markup=False)
        elif isinstance(event, BaselineMeasured):
            self._states[event.task].baseline = event.outcome.latency
            self._console.print(f"{event.task}: {baseline_text(event)}", markup=False)
        elif isinstance(event, TrialFinished):
            self._states[event.task].update(event)
        elif isinstance(event, WarningRaised):
            self._console.print(f"{event.task}: warning: {event.message}", markup=False)
        elif isinstance(event, AnsweredFromRecords):
            text = f"{event.task}: run {event.run_id} did {event.trials} trials: no new search"
            self._console.print(text, markup=False)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        lines: list[RenderableType] = []
        for task, state in self._states.items():
            bar = Table.grid(padding=(0, 1))
            bar.add_row(
                Text(task, style="bold"),
                ProgressBar(total=state.started.trials, completed=state.trials, width=30),
                Text(f"{state.trials}/{state.started.trials}"),
                Text(state.time_text),
            )
            lines += [bar, Text(f"  {state.speed_text}; {state.count_text}")]
        return Group(*lines)


@contextmanager
def progress(stream: TextIO, *, quiet: bool = False) -> Iterator[list[EventListener]]:
    """Listeners that show progress on ``stream`` while the body runs."""
    if quiet:
        yield []
    elif stream.isatty():
        with _LiveProgress(stream) as live:
            yield [live]
    else:
        yield [PlainProgress(stream)]
