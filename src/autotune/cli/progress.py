"""Progress of a run: a display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from autotune.cli.output import notify
from autotune.cli.run_state import RunState, compared_text, joined
from autotune.errors import InvalidValueError, one_line
from autotune.report import (
    baseline_phrase,
    confirmation_lines,
    contest_text,
    formats,
    warm_start_text,
)
from autotune.tuning.events import (
    AnsweredFromRecords,
    BackendsCompared,
    BaselineMeasured,
    CheckpointSaved,
    Event,
    EventListener,
    LeadersCompared,
    RoundStarted,
    RunFinished,
    RunStarted,
    TrialFinished,
    WarmStarted,
    WarningRaised,
    WinnerConfirmed,
    WorkersReady,
)

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

__all__ = ["LiveProgress", "PlainProgress", "Warnings", "chosen_mode", "progress"]

_REDRAW_SECONDS = 0.25
_MOST_TASKS = 8
_BAR_WIDTH = 30
# As in a `report.Table`: numbers end in ">".
_COLUMNS = ("task", "trials>", "best>", "rate>", "outcomes", "last comparison", "x baseline>")


class PlainProgress:
    """Writes a line when something worth a line happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._state = RunState()
        self._dirty: set[str] = set()
        self._rejections: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._state.update(event)
        if isinstance(event, TrialFinished):
            self._dirty.add(event.task)
        if isinstance(event, (CheckpointSaved, WinnerConfirmed, RunFinished)):
            self._flush()
        text = remark(event, self._state)
        if text:
            self._say(*text)

    def _flush(self) -> None:
        """Report the tasks that had trials."""
        run = self._state
        for task in sorted(self._dirty):
            state = run.tasks[task]
            done = run.done_text(state.trials)
            gain = state.gain_text and f"{state.gain_text} {baseline_phrase(state.baseline_name)}"
            texts = (done, state.speed_text, state.count_text, run.time_text, run.share_text, gain)
            self._say(task, joined(texts))
            if state.rejection_text != self._rejections.get(task, ""):
                self._rejections[task] = state.rejection_text
                self._say(task, state.rejection_text)
        self._dirty.clear()

    def _say(self, task: str, text: str) -> None:
        notify(f"{self._state.names.short(task)}: {text}", self._stream)


class Warnings:
    """Writes warnings only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, WarningRaised):
            notify(f"{event.task}: {warning_text(event)}", self._stream)


class LiveProgress:
    """Redraws a table with a row for each task in place; needs a terminal.

    It draws when something has happened and never by itself: while a program is timed, nothing
    of it runs.

    Args:
        stream: The terminal.
        clock: Monotonic seconds.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        self._clock = clock
        self._drawn = clock() - _REDRAW_SECONDS
        self._state = RunState()
        self._recent: list[str] = []
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, get_renderable=self._render, auto_refresh=False)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._state.update(event)
        if isinstance(event, (RunStarted, TrialFinished)):
            self._recent = [task for task in self._recent if task != event.task] + [event.task]
        text = self._remark(event)
        if text:
            self._console.print(text, markup=False)
        # Before a long silence the latest is shown; within a burst, not every event is.
        silence = (RoundStarted, CheckpointSaved, LeadersCompared, RunFinished)
        if isinstance(event, silence) or self._clock() - self._drawn >= _REDRAW_SECONDS:
            self._draw()

    def _remark(self, event: Event) -> str:
        """The line on an event that stays above the table; "" where it has none."""
        text = None if isinstance(event, LeadersCompared) else remark(event, self._state)
        return f"{self._state.names.short(text[0])}: {text[1]}" if text else ""

    def _draw(self) -> None:
        self._live.refresh()
        self._drawn = self._clock()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        run = self._state
        if not run.tasks:
            return Group()
        shown = [task for task in run.tasks if task in self._recent[-_MOST_TASKS:]]
        hidden = len(run.tasks) - len(shown)
        below = [f"and {hidden} more tasks"] if hidden else []
        latest = run.tasks[self._recent[-1]] if self._recent else None
        if latest is not None and latest.rejection_text:
            below.append(latest.rejection_text)
        if run.share_text:
            below.append(f"time: {run.share_text}")
        lines = (Text(line, no_wrap=True, overflow="ellipsis") for line in below)
        return Group(self._bar(), self._table(shown), *lines)

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        run = self._state
        tasks = "1 task" if len(run.tasks) == 1 else f"{len(run.tasks)} tasks"
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            Text(tasks, style="bold"),
            ProgressBar(total=1.0, completed=run.share_done, width=_BAR_WIDTH),
            Text(run.done_text(run.trials)),
            Text(run.time_text),
        )
        return bar

    def _table(self, shown: Sequence[str]) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in _COLUMNS:
            justify: JustifyMethod = "right" if heading.endswith(">") else "left"
            table.add_column(heading.removesuffix(">"), justify=justify, no_wrap=True)
        for task in shown:
            state = self._state.tasks[task]
            cells = (
                self._state.names.short(task),
                str(state.trials),
                formats.seconds(state.best),
                state.rate_text,
                state.count_text,
                state.compared_text,
                state.gain_text.removesuffix("x"),
            )
            table.add_row(*map(Text, cells))
        return table


def remark(event: Event, run: RunState) -> tuple[str, str] | None:
    """The task and a line on an event that is worth one by itself, or None."""
    if isinstance(event, RunStarted):
        return event.task, joined((run.names.details(event.task), started_text(event)))
    if isinstance(event, WarmStarted):
        return event.task, warm_start_text(event.sources)
    if isinstance(event, WorkersReady):
        return event.task, f"workers ready after {formats.seconds(event.seconds)}"
    if isinstance(event, BaselineMeasured):
        return event.task, baseline_text(event)
    if isinstance(event, LeadersCompared):
        return (event.task, compared_text(event)) if event.replaced else None
    if isinstance(event, WinnerConfirmed):
        baseline = run.baseline_name(event.task)
        return event.task, "; ".join(confirmation_lines(event.confirmation, baseline))
    if isinstance(event, BackendsCompared):
        return event.program, contest_text(event.contest)
    if isinstance(event, WarningRaised):
        return event.task, warning_text(event)
    if isinstance(event, AnsweredFromRecords):
        return (
            event.task,
            f"answered from run {event.run_id}, {event.trials} trials",
        )
    if isinstance(event, RunFinished):
        return event.task, f"done: {event.reason}"
    return None


def started_text(event: RunStarted) -> str:
    """The start of a run: size of the space, budget, resumption."""
    text = f"{event.sketches} sketches, {event.configurations:,} configurations, "
    limits = [] if event.trials is None else [f"{event.trials} trials"]
    limits += [] if event.seconds is None else [f"{event.seconds:g} s"]
    text += " or ".join(limits)
    # A run that was stopped in its first round has no complete trials, but it is not a new one.
    if event.resumed_seconds > 0:
        text += f"; resuming run {event.run_id} after {event.resumed_trials} trials"
    return text


def baseline_text(event: BaselineMeasured) -> str:
    """The latency of a baseline, or why there is none."""
    if event.outcome.latency is None:
        why = one_line(event.outcome.message)
        return f"{event.name}: {event.outcome.status} ({why})"
    return f"{event.name}: {formats.seconds(event.outcome.latency)}"


def warning_text(event: WarningRaised) -> str:
    """A warning on one line."""
    return f"warning: {one_line(event.message, 400)}"


def chosen_mode(mode: str, stream: TextIO) -> str:
    """The mode that ``--progress`` selects on a stream: ``live``, ``plain`` or ``quiet``.

    Raises:
        InvalidValueError: ``live`` is asked for and the stream is no terminal.
    """
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    if mode == "auto":
        return "live" if terminal else "plain"
    if mode == "live" and not terminal:
        raise InvalidValueError(
            "--progress live needs a terminal on standard error; plain writes lines anywhere"
        )
    return mode


@contextmanager
def progress(stream: TextIO, mode: str) -> Iterator[list[EventListener]]:
    """Listeners that show progress and warnings on ``stream`` while the body runs.

    Args:
        stream: Where to.
        mode: ``live``, ``plain`` or ``quiet``, which leaves the warnings.
    """
    if mode == "quiet":
        yield [Warnings(stream)]
    elif mode == "live":
        with LiveProgress(stream) as live:
            yield [live]
    else:
        yield [PlainProgress(stream)]
