"""Progress of a run on a network: one table over its tasks, and the estimated latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from autotune.cli.event_log import LineFile
from autotune.cli.models import ReadingLines
from autotune.cli.output import notify, warn
from autotune.cli.progress import LiveProgress, PlainProgress, Warnings, warning_text
from autotune.cli.run_state import joined
from autotune.networks.totals import NetworkTotals
from autotune.report import formats
from autotune.tuning.events import (
    AnsweredFromRecords,
    CheckpointSaved,
    Event,
    EventListener,
    NetworkLoaded,
    RunFinished,
    RunStarted,
    TrialFinished,
    WarningRaised,
    WorkersReady,
)

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

__all__ = [
    "TOTALS_HEAD",
    "LiveNetworkProgress",
    "PlainNetworkProgress",
    "network_progress",
    "total_latency_log",
]

TOTALS_HEAD = "seconds\ttrials\ttotal_latency"
_LINES_BESIDE_ROWS = 7
_LEAST_ROWS = 4
_COLUMNS = ("task", "calls>", "share>", "trials>", "latency>", "total>", "outcomes", "x baseline>")


class NetworkRemarks:
    """Lines on events of a network's run that are worth one, each said once."""

    def __init__(self, verbose: bool) -> None:
        self._reading = ReadingLines(verbose)
        self._said: set[type[Event]] = set()

    def __call__(self, event: Event, totals: NetworkTotals) -> str:
        """The line on an event; "" where it has none."""
        if text := self._reading.text(event):
            return text
        if isinstance(event, WarningRaised):
            few = event.task if len(event.task) <= 60 else totals.network
            return f"{few}: {warning_text(event)}"
        if isinstance(event, NetworkLoaded):
            return loaded_text(event)
        text = once_text(event)
        if not text or type(event) in self._said:
            return ""
        self._said.add(type(event))
        return f"{totals.network}: {text}"


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


def total_text(totals: NetworkTotals) -> str:
    """``"total latency 8.31 ms estimated"``; how many tasks it lacks."""
    if totals.latency is None:
        return ""
    noun = "task" if totals.unknown == 1 else "tasks"
    lacks = f", without {totals.unknown} {noun}" if totals.unknown else ""
    return f"total latency {formats.seconds(totals.latency)} estimated{lacks}"


class PlainNetworkProgress(PlainProgress):
    """Writes a line for every round, with the estimated latency of the network."""

    def __init__(self, stream: TextIO, verbose: bool = False) -> None:
        super().__init__(stream)
        self._totals = NetworkTotals()
        self._remarks = NetworkRemarks(verbose)
        self._latest = ""

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._totals(event)
        self._state.update(event)
        if isinstance(event, TrialFinished):
            self._latest = event.task
        if isinstance(event, (CheckpointSaved, RunFinished)) and self._latest:
            self._show_round()
        text = self._remarks(event, self._totals)
        if text:
            notify(text, self._stream)

    def _show_round(self) -> None:
        run, task = self._state, self._latest
        self._latest = ""
        state = run.tasks[task]
        facts = self._totals.tasks.get(task)
        calls = f"{facts.facts.occurrences} x " if facts else ""
        latency = facts.latency if facts else state.best
        texts = (
            run.done_text(run.trials),
            f"{calls}{formats.seconds(latency)}",
            state.count_text,
            total_text(self._totals),
            run.time_text,
        )
        notify(f"{task}: {joined(texts)}", self._stream)


class LiveNetworkProgress(LiveProgress):
    """Redraws one table over the tasks of a network in place, those of the largest share first."""

    def __init__(
        self, stream: TextIO, verbose: bool = False, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(stream, *([] if clock is None else [clock]))
        self._totals = NetworkTotals()
        self._remarks = NetworkRemarks(verbose)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._totals(event)
        super().__call__(event)

    def _remark(self, event: Event) -> str:
        return self._remarks(event, self._totals)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        if not self._state.tasks:
            return Group()
        names = [name for name in self._totals.shares() if name in self._state.tasks]
        most = max(self._console.height - _LINES_BESIDE_ROWS, _LEAST_ROWS)
        hidden = len(names) - most
        below = [f"and {hidden} tasks of smaller shares"] if hidden > 0 else []
        below += [text for text in (total_text(self._totals),) if text]
        if self._state.share_text:
            below.append(f"time: {self._state.share_text}")
        lines = (Text(line, no_wrap=True, overflow="ellipsis") for line in below)
        return Group(self._bar(), self._network_table(names[:most]), *lines)

    def _network_table(self, names: Sequence[str]) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for heading in _COLUMNS:
            justify: JustifyMethod = "right" if heading.endswith(">") else "left"
            table.add_column(
                heading.removesuffix(">"), justify=justify, no_wrap=True, overflow="ellipsis"
            )
        shares = self._totals.shares()
        latest = self._recent[-1] if self._recent else ""
        for name in names:
            state, task = self._state.tasks[name], self._totals.tasks[name]
            cells = (
                name,
                str(task.facts.occurrences),
                formats.percent(shares[name], 1.0),
                str(state.trials),
                formats.seconds(task.latency),
                formats.seconds(task.total),
                state.count_text,
                state.gain_text.removesuffix("x"),
            )
            table.add_row(*map(Text, cells), style="bold" if name == latest else None)
        return table


@contextmanager
def network_progress(stream: TextIO, mode: str, verbose: bool) -> Iterator[list[EventListener]]:
    """As :func:`autotune.cli.progress.progress`, for a run on a network.

    Args:
        stream: Where to.
        mode: ``live``, ``plain`` or ``quiet``, which leaves the warnings.
        verbose: Whether to show every graph pass.
    """
    if mode == "quiet":
        yield [Warnings(stream)]
    elif mode == "live":
        with LiveNetworkProgress(stream, verbose) as live:
            yield [live]
    else:
        yield [PlainNetworkProgress(stream, verbose)]


class TotalLatencyLog:
    """A listener that writes a line of tab-separated values whenever the estimate changes.

    It begins once every task that is tuned has a latency; see :data:`TOTALS_HEAD`.
    """

    def __init__(self, file: LineFile) -> None:
        self._file = file
        self._totals = NetworkTotals()
        self._written: float | None = None

    @property
    def lacks(self) -> str:
        """Why nothing was written; "" where something was."""
        if self._written is not None:
            return ""
        unknown = self._totals.unknown
        if not unknown:
            return "no task was tuned"
        return f"{unknown} task{'s' if unknown > 1 else ''} that were tuned got no latency"

    def __call__(self, event: Event) -> None:
        """Take one event."""
        totals = self._totals
        totals(event)
        latency = totals.latency
        if totals.unknown or latency is None or latency == self._written:
            return
        if self._written is None and self._file.is_empty:
            self._file.write(TOTALS_HEAD)
        self._written = latency
        self._file.write(f"{totals.elapsed:.3f}\t{totals.trials}\t{latency:.9g}")


@contextmanager
def total_latency_log(path: str | None) -> Iterator[list[EventListener]]:
    """Listeners that write ``--total-latency FILE``: one, or none where ``path`` is None.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    if path is None:
        yield []
        return
    file = LineFile(path, "--total-latency", warn)
    log = TotalLatencyLog(file)
    try:
        yield [log]
    finally:
        file.close()
    if log.lacks:
        warn(f"--total-latency {path!r}: nothing was written: {log.lacks}")
