"""Progress of runs: their state from events, and lines or a live display of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from autotune.cli.event_log import LineFile
from autotune.cli.output import notify, warn
from autotune.errors import InvalidValueError, one_line
from autotune.report import (
    baseline_phrase,
    comparison_text,
    confirmation_lines,
    contest_text,
    formats,
    share_text,
    short_digest,
    warm_start_text,
)
from autotune.sketches import UNTUNED
from autotune.store.rejections import describe_rejections
from autotune.store.trial_log import describe_counts
from autotune.tuning.events import (
    AnsweredFromRecords,
    BackendsCompared,
    BaselineMeasured,
    CheckpointSaved,
    Event,
    EventListener,
    LeadersCompared,
    NetworkLoaded,
    NetworkTaskFacts,
    PassFinished,
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

__all__ = [
    "LiveNetworkProgress",
    "LiveProgress",
    "NetworkState",
    "PlainNetworkProgress",
    "PlainProgress",
    "ReadingLines",
    "RunState",
    "TOTALS_HEAD",
    "TaskNames",
    "TaskState",
    "Warnings",
    "chosen_mode",
    "compared_text",
    "joined",
    "progress",
    "total_latency_log",
]


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

    @property
    def latency(self) -> float | None:
        """Seconds of one call: the best candidate or the baseline, whichever is faster."""
        known = [it for it in (self.best, self.baseline) if it is not None]
        return min(known, default=None)

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
        """Say why candidates were rejected; "" when none was."""
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


class NetworkState(RunState):
    """The tasks of a run on a network, and the sum of occurrences x latency over them.

    Attributes:
        network: What a person calls the network; "" before it is loaded.
        facts: Its tasks by name, in order of their first call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = ""
        self.facts: dict[str, NetworkTaskFacts] = {}
        self._answered: dict[str, AnsweredFromRecords] = {}

    def update(self, event: Event) -> None:
        """Take in one event."""
        super().update(event)
        if isinstance(event, NetworkLoaded):
            self.network = event.network
            self.facts = {facts.name: facts for facts in event.tasks}
        elif isinstance(event, AnsweredFromRecords):
            self._answered[event.task] = event

    @property
    def recorded(self) -> int:
        """Trials of all tasks, those of a run that answers included."""
        return self.trials + sum(it.trials for it in self._answered.values())

    def latency_of(self, task: str) -> float | None:
        """Seconds of one call of a task; None where that is not known."""
        if task in self.tasks:
            return self.tasks[task].latency
        answer = self._answered.get(task)
        return answer.best.latency if answer and answer.best else None

    def total(self, task: str) -> float | None:
        """Seconds of all calls of a task in one inference."""
        latency = self.latency_of(task)
        return None if latency is None else latency * self.facts[task].occurrences

    @property
    def unknown(self) -> int:
        """Number of tasks that are tuned and have no latency yet."""
        begun = self.facts.keys() & {*self.tasks, *self._answered}
        return sum(self.latency_of(task) is None for task in begun)

    @property
    def latency(self) -> float | None:
        """Estimated seconds of one inference, of what is known; None where nothing is."""
        totals = [total for task in self.facts if (total := self.total(task)) is not None]
        return sum(totals) if totals else None

    def shares(self) -> Mapping[str, float]:
        """The part of each task in the estimate, the largest first; those that are not known last.

        Before anything is known, the part in the flop.
        """
        whole = self.latency
        if whole:
            parts = {task: (self.total(task) or 0.0) / whole for task in self.facts}
        else:
            flop = {name: it.occurrences * it.flop for name, it in self.facts.items()}
            parts = {name: value / (sum(flop.values()) or 1.0) for name, value in flop.items()}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))


def compared_text(event: LeadersCompared) -> str:
    """``"3a4b5c6d beats 9e8f7a6b 1.03x (1.01x to 1.05x)"``."""
    compared = comparison_text(event.comparison, short_digest(event.leader))
    return f"{short_digest(event.challenger)} {compared}"


def joined(texts: Iterable[str]) -> str:
    """The texts that are not empty, on one line."""
    return "; ".join(text for text in texts if text)


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
        state: Where the events are taken in; by default a new one.
    """

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        state: RunState | None = None,
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self._clock = clock
        self._drawn = clock() - _REDRAW_SECONDS
        self._state = RunState() if state is None else state
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

        if not self._state.tasks:
            return Group()
        table, below = self._shown()
        if self._state.share_text:
            below.append(f"time: {self._state.share_text}")
        lines = (Text(line, no_wrap=True, overflow="ellipsis") for line in below)
        return Group(self._bar(), table, *lines)

    def _shown(self) -> tuple[RenderableType, list[str]]:
        """The table of tasks, and lines that stand below it."""
        run = self._state
        shown = [task for task in run.tasks if task in self._recent[-_MOST_TASKS:]]
        hidden = len(run.tasks) - len(shown)
        below = [f"and {hidden} more tasks"] if hidden else []
        latest = run.tasks[self._recent[-1]] if self._recent else None
        if latest is not None and latest.rejection_text:
            below.append(latest.rejection_text)
        return _drawn(_COLUMNS, [self._row(task) for task in shown]), below

    def _row(self, task: str) -> tuple[str, ...]:
        state = self._state.tasks[task]
        return (
            self._state.names.short(task),
            str(state.trials),
            formats.seconds(state.best),
            state.rate_text,
            state.count_text,
            state.compared_text,
            state.gain_text.removesuffix("x"),
        )

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


def _drawn(
    columns: Sequence[str], rows: Sequence[Sequence[str]], bold: int | None = None
) -> RenderableType:
    """A table without lines, one of whose rows may be bold."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in columns:
        justify: JustifyMethod = "right" if heading.endswith(">") else "left"
        table.add_column(heading.removesuffix(">"), justify=justify, no_wrap=True)
    for number, cells in enumerate(rows):
        table.add_row(*map(Text, cells), style="bold" if number == bold else None)
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


TOTALS_HEAD = "seconds\ttrials\ttotal_latency"
_LINES_BESIDE_ROWS = 7
_LEAST_ROWS = 4
_NETWORK_COLUMNS = (
    "task",
    "calls>",
    "share>",
    "trials>",
    "latency>",
    "total>",
    "outcomes",
    "x baseline>",
)


class NetworkRemarks:
    """Lines on events of a network's run that are worth one, each said once."""

    def __init__(self, verbose: bool) -> None:
        self._reading = ReadingLines(verbose)
        self._said: set[type[Event]] = set()

    def __call__(self, event: Event, run: NetworkState) -> str:
        """The line on an event; "" where it has none."""
        if text := self._reading.text(event):
            return text
        if isinstance(event, WarningRaised):
            few = event.task if len(event.task) <= 60 else run.network
            return f"{few}: {warning_text(event)}"
        if isinstance(event, NetworkLoaded):
            return loaded_text(event)
        text = once_text(event)
        if not text or type(event) in self._said:
            return ""
        self._said.add(type(event))
        return f"{run.network}: {text}"


def once_text(event: Event) -> str:
    """Text for the first event of its kind, though every task has one; "" for others."""
    if isinstance(event, RunStarted) and event.resumed_seconds > 0:
        return f"resuming run {event.run_id} after {formats.seconds(event.resumed_seconds)}"
    if isinstance(event, WorkersReady):
        return f"workers ready after {formats.seconds(event.seconds)}"
    if isinstance(event, AnsweredFromRecords):
        return f"answered from run {event.run_id}"
    return f"done: {event.reason}" if isinstance(event, RunFinished) else ""


def loaded_text(event: NetworkLoaded) -> str:
    """The size of a network, and how much of it is to be tuned."""
    calls = sum(it.occurrences for it in event.tasks)
    left = [it.name for it in event.tasks if not it.tunable]
    text = f"{event.network}: {calls} calls of {len(event.tasks)} tasks"
    verb = "is" if len(left) == 1 else "are"
    return f"{text}, of which {len(left)} {verb} not tuned" if left else text


def total_text(run: NetworkState) -> str:
    """``"total latency 8.31 ms estimated"``; how many tasks it lacks."""
    if run.latency is None:
        return ""
    noun = "task" if run.unknown == 1 else "tasks"
    lacks = f", without {run.unknown} {noun}" if run.unknown else ""
    return f"total latency {formats.seconds(run.latency)} estimated{lacks}"


class ReadingLines:
    """A listener that says how far the reading of a model is.

    Args:
        verbose: Whether every graph pass gets a line, and not the first alone.
    """

    def __init__(self, verbose: bool) -> None:
        self._verbose = verbose
        self._prepared = ""

    def __call__(self, event: Event) -> None:
        """Take one event."""
        text = self.text(event)
        if text:
            notify(text)

    def text(self, event: Event) -> str:
        """The line on an event; "" where it has none."""
        if not isinstance(event, PassFinished):
            return ""
        if self._verbose:
            note = f": {event.note}" if event.note else ""
            return f"{event.network}: pass {event.name}, {formats.seconds(event.seconds)}{note}"
        if self._prepared == event.network:
            return ""
        self._prepared = event.network
        return f"{event.network}: read; its graph is being prepared"


class PlainNetworkProgress:
    """Writes a line for every round, with the estimated latency of the network."""

    def __init__(self, stream: TextIO, verbose: bool = False) -> None:
        self._stream = stream
        self._state = NetworkState()
        self._remarks = NetworkRemarks(verbose)
        self._latest = ""

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._state.update(event)
        if isinstance(event, TrialFinished):
            self._latest = event.task
        if isinstance(event, (CheckpointSaved, RunFinished)) and self._latest:
            self._show_round(self._latest)
            self._latest = ""
        text = self._remarks(event, self._state)
        if text:
            notify(text, self._stream)

    def _show_round(self, task: str) -> None:
        run, state = self._state, self._state.tasks[task]
        facts = run.facts.get(task)
        calls = f"{facts.occurrences} x " if facts else ""
        texts = (
            run.done_text(run.trials),
            f"{calls}{formats.seconds(state.latency if facts else state.best)}",
            state.count_text,
            total_text(run),
            run.time_text,
        )
        notify(f"{task}: {joined(texts)}", self._stream)


class LiveNetworkProgress(LiveProgress):
    """Redraws one table over the tasks of a network in place, those of the largest share first."""

    def __init__(
        self, stream: TextIO, verbose: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._network = NetworkState()
        super().__init__(stream, clock, self._network)
        self._remarks = NetworkRemarks(verbose)

    def _remark(self, event: Event) -> str:
        return self._remarks(event, self._network)

    def _shown(self) -> tuple[RenderableType, list[str]]:
        run = self._network
        shares = run.shares()
        names = [name for name in shares if name in run.tasks]
        most = max(self._console.height - _LINES_BESIDE_ROWS, _LEAST_ROWS)
        hidden = len(names) - most
        below = [f"and {hidden} tasks of smaller shares"] if hidden > 0 else []
        below += [text for text in (total_text(run),) if text]
        names = names[:most]
        latest = self._recent[-1] if self._recent else ""
        bold = names.index(latest) if latest in names else None
        rows = [self._network_row(name, shares[name]) for name in names]
        return _drawn(_NETWORK_COLUMNS, rows, bold), below

    def _network_row(self, task: str, share: float) -> tuple[str, ...]:
        run, state = self._network, self._network.tasks[task]
        return (
            task,
            str(run.facts[task].occurrences),
            formats.percent(share, 1.0),
            str(state.trials),
            formats.seconds(state.latency),
            formats.seconds(run.total(task)),
            state.count_text,
            state.gain_text.removesuffix("x"),
        )


@contextmanager
def progress(
    stream: TextIO, mode: str, *, network: bool = False, verbose: bool = False
) -> Iterator[list[EventListener]]:
    """Listeners that show progress and warnings on ``stream`` while the body runs.

    Args:
        stream: Where to.
        mode: ``live``, ``plain`` or ``quiet``, which leaves the warnings.
        network: Whether the run is on a network, of which its latency is shown.
        verbose: Whether to show every graph pass of it.
    """
    if mode == "quiet":
        yield [Warnings(stream)]
    elif mode == "live":
        with LiveNetworkProgress(stream, verbose) if network else LiveProgress(stream) as live:
            yield [live]
    else:
        yield [PlainNetworkProgress(stream, verbose) if network else PlainProgress(stream)]


class TotalLatencyLog:
    """A listener that writes a line of tab-separated values whenever the estimate changes.

    It begins once every task that is tuned has a latency; see :data:`TOTALS_HEAD`.
    """

    def __init__(self, file: LineFile) -> None:
        self._file = file
        self._run = NetworkState()
        self._written: float | None = None

    @property
    def lacks(self) -> str:
        """Say why nothing was written; "" where something was."""
        if self._written is not None:
            return ""
        unknown = self._run.unknown
        if not unknown:
            return "no task was tuned"
        return f"{unknown} task{'s' if unknown > 1 else ''} that were tuned got no latency"

    def __call__(self, event: Event) -> None:
        """Take one event."""
        run = self._run
        run.update(event)
        latency = run.latency
        if run.unknown or latency is None or latency == self._written:
            return
        if self._written is None and self._file.is_empty:
            self._file.write(TOTALS_HEAD)
        self._written = latency
        self._file.write(f"{run.elapsed:.3f}\t{run.recorded}\t{latency:.9g}")


@contextmanager
def total_latency_log(path: str | None) -> Iterator[list[EventListener]]:
    """Listeners that write ``--total-latency FILE``: one, or none where ``path`` is None.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    if path is None:
        yield []
        return
    with LineFile(path, "--total-latency", warn) as file:
        log = TotalLatencyLog(file)
        yield [log]
    if log.lacks:
        warn(f"--total-latency {path!r}: nothing was written: {log.lacks}")
