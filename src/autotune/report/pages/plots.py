"""Plots of what a page shows, by matplotlib; names of others are plain text in them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence

import matplotlib
import matplotlib.style
from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from autotune.process.stopwatch import ACTIVITIES
from autotune.report.pages.contents import (
    Contents,
    CurvePoint,
    RunContents,
    TaskContents,
    best_so_far,
)
from autotune.report.pages.roofline import Rates, Roofline
from autotune.report.tables import ACTIVITY_LABELS
from autotune.sketches import baseline_label
from autotune.store.records import OUTCOME_STATUSES

__all__ = [
    "Band",
    "Plot",
    "bands_plot",
    "curves_plot",
    "drawing",
    "outcomes_plot",
    "plain_label",
    "roofline_plot",
    "shares_plot",
    "time_plot",
    "total_plot",
]

_WIDTH = 8.0
_ROW = 0.28
_LABEL_CHARACTERS = 40
# A `$` in a name is a dollar.
_SETTINGS = {
    "figure.constrained_layout.use": True,
    "font.size": 9.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "autotune",
    "text.parse_math": False,
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@frozen(eq=False)
class Plot:
    """A plot.

    Attributes:
        name: What a file of it is called, without the ending.
        caption: What it shows, in a sentence.
        figure: What it is drawn from.
    """

    name: str
    caption: str
    figure: Figure

    @property
    def svg(self) -> str:
        """A whole SVG document, the same whenever the figure is."""
        text = io.StringIO()
        with _settings():
            self.figure.savefig(text, format="svg", metadata=_NO_METADATA)
        return text.getvalue()

    @property
    def png(self) -> bytes:
        """The same as PNG."""
        image = io.BytesIO()
        with _settings():
            self.figure.savefig(image, format="png", dpi=120)
        return image.getvalue()


@frozen
class Band:
    """A line with its interval.

    Attributes:
        label: Names it.
        at: Where its points are, ascending.
        middle: Their values.
        low: Lower bounds of these.
        high: Upper bounds.
    """

    label: str
    at: Sequence[float]
    middle: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def bands_plot(
    name: str,
    caption: str,
    panels: Mapping[str, Sequence[Band]],
    *,
    xlabel: str,
    ylabel: str,
) -> Plot:
    """Lines with their intervals on a logarithmic scale, one panel below the other by title."""
    with drawing(0.3 + 2.6 * len(panels)) as figure:
        for axes, (title, bands) in zip(
            figure.subplots(len(panels), squeeze=False)[:, 0], panels.items(), strict=True
        ):
            for band in bands:
                (line,) = axes.step(
                    band.at, band.middle, where="post", label=plain_label(band.label)
                )
                axes.fill_between(
                    band.at, band.low, band.high, step="post", color=line.get_color(), alpha=0.2
                )
            axes.set_title(plain_label(title))
            axes.set(xlabel=xlabel, ylabel=ylabel)
            axes.set_yscale("log")
            _plain(axes.yaxis)
            if bands:
                axes.legend(fontsize=7)
        return Plot(name, caption, figure)


def curves_plot(number: int, task: TaskContents) -> Plot:
    """The best latency of a task over trials and over time, one line for each run."""
    with drawing(2.6) as figure:
        by_trials, by_seconds = figure.subplots(1, 2, sharey=True)
        for run_id, trials in task.trials.items():
            _curve(by_trials, by_seconds, plain_label(f"run {run_id}"), best_so_far(trials))
        for baseline in task.baselines:
            if baseline.latency is not None:
                for axes in (by_trials, by_seconds):
                    axes.axhline(
                        1e3 * baseline.latency,
                        color="grey",
                        linestyle="--",
                        label=plain_label(baseline_label(task.workload, baseline.baseline)),
                    )
        _name_axes(by_trials, by_seconds, "best latency, ms")
        return Plot(f"task-{number}", f"Best latency of task {number} so far.", figure)


def total_plot(number: int, run: RunContents) -> Plot:
    """Seconds of one inference of a network over trials and over time."""
    with drawing(2.6) as figure:
        by_trials, by_seconds = figure.subplots(1, 2, sharey=True)
        _curve(by_trials, by_seconds, "sum of all tasks", run.total)
        _name_axes(by_trials, by_seconds, "one inference, ms")
        caption = f"Calls times best latency so far, summed over the tasks of run {number}."
        return Plot(f"run-{number}-total", caption, figure)


def time_plot(runs: Sequence[tuple[int, RunContents]]) -> Plot:
    """Plot the time of each run by activity."""
    labels = [f"run {number}" for number, _ in runs]
    parts = [
        (ACTIVITY_LABELS[name], [run.seconds.get(name, 0.0) for _, run in runs])
        for name in ACTIVITIES
    ]
    return _stacked(
        "time", "Where the time went, in seconds of wall time.", labels, parts, "seconds"
    )


def outcomes_plot(contents: Contents) -> Plot:
    """Plot the outcomes of the candidates of each task."""
    labels = [_task_label(number, task) for number, task in enumerate(contents.tasks, 1)]
    parts = [
        (status, [float(task.outcomes[status]) for task in contents.tasks])
        for status in OUTCOME_STATUSES
        if any(task.outcomes[status] for task in contents.tasks)
    ]
    return _stacked("outcomes", "How candidates ended, by task.", labels, parts, "candidates")


def shares_plot(number: int, run: RunContents, numbers: dict[int, int]) -> Plot:
    """The time of a network by task, before and after tuning.

    Args:
        number: Of the run.
        run: The run.
        numbers: The number of each task by its identity.
    """
    shares = run.shares
    labels = [_task_label(numbers[id(share.task)], share.task) for share in shares]
    with drawing(1.2 + 2 * _ROW * len(shares)) as figure:
        axes = figure.subplots()
        places = range(len(shares))
        for offset, name, seconds in (
            (-0.2, "before", [share.before or 0.0 for share in shares]),
            (0.2, "after", [share.after or 0.0 for share in shares]),
        ):
            axes.barh([p + offset for p in places], [1e3 * s for s in seconds], 0.38, label=name)
        _name_rows(axes, labels, "calls times latency, ms")
        caption = f"Time of one inference by task of run {number}, before and after tuning."
        return Plot(f"run-{number}-shares", caption, figure)


def roofline_plot(
    number: int, rates: Rates, programs: Sequence[tuple[int, Roofline, Roofline | None]]
) -> Plot:
    """Programs below the roofs of one target.

    Args:
        number: Of the target.
        rates: What it can do.
        programs: The number of each task, its best program, and the one without tuning.
    """
    with drawing(4.0) as figure:
        axes = figure.subplots()
        at = [best.intensity for _, best, _ in programs if best.intensity]
        low, high = min(at, default=1.0) / 4, max(at, default=1.0) * 4
        bandwidth = rates.target.memory_bandwidth
        for dtype in sorted({best.dtype for _, best, _ in programs}):
            peak = rates.target.peak_flops.get(dtype)
            if peak and bandwidth:
                ridge = peak / bandwidth
                x = [low, ridge, max(high, 2 * ridge)] if low < ridge else [low, high]
                y = [min(peak, bandwidth * at_x) / 1e9 for at_x in x]
                axes.plot(x, y, color="black", linewidth=1.0)
                axes.annotate(plain_label(dtype), (x[-1], y[-1]), ha="right", va="bottom")
        for task, best, before in programs:
            if not best.intensity:
                continue
            axes.plot([best.intensity], [best.rate / 1e9], "o", color="tab:blue", markersize=4)
            axes.annotate(
                str(task),
                (best.intensity, best.rate / 1e9),
                (3, 3),
                textcoords="offset points",
                fontsize=7,
            )
            if before is not None:
                axes.plot([before.intensity], [before.rate / 1e9], "x", color="tab:orange")
        axes.set(xlabel="flop per byte", ylabel="Gflop/s")
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain(axes.xaxis)
        _plain(axes.yaxis)
        caption = "Numbered dots are the programs to use, crosses those without tuning."
        return Plot(f"roofline-{number}", caption, figure)


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """The user's own settings of matplotlib must not change a page."""
    with matplotlib.style.context("default"), matplotlib.rc_context(_SETTINGS):
        yield


@contextlib.contextmanager
def drawing(height: float) -> Iterator[Figure]:
    """An empty figure so many inches high."""
    with _settings():
        yield Figure(figsize=(_WIDTH, height))


def _curve(by_trials: Axes, by_seconds: Axes, label: str, points: Sequence[CurvePoint]) -> None:
    milliseconds = [1e3 * point.seconds for point in points]
    for axes, at in (
        (by_trials, [point.trials for point in points]),
        (by_seconds, [point.elapsed for point in points]),
    ):
        axes.step(at, milliseconds, where="post", marker=".", markersize=3, label=label)


def _name_axes(by_trials: Axes, by_seconds: Axes, what: str) -> None:
    by_trials.set(xlabel="trials", ylabel=what)
    by_seconds.set(xlabel="seconds")
    by_trials.set_yscale("log")  # that of both
    _plain(by_trials.yaxis)
    if by_seconds.get_legend_handles_labels()[1]:
        by_seconds.legend(fontsize=7)


def _plain(axis: Axis) -> None:
    """Names the ticks of a logarithmic axis without formulas."""
    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(2.0, 0.5)))


def _stacked(
    name: str,
    caption: str,
    labels: Sequence[str],
    parts: Sequence[tuple[str, Sequence[float]]],
    unit: str,
) -> Plot:
    """A bar for each label, made of parts."""
    with drawing(1.2 + _ROW * len(labels)) as figure:
        axes = figure.subplots()
        left = [0.0] * len(labels)
        for part, values in parts:
            axes.barh(range(len(labels)), values, 0.7, left=left, label=part)
            left = [before + value for before, value in zip(left, values, strict=True)]
        _name_rows(axes, labels, unit)
        return Plot(name, caption, figure)


def _name_rows(axes: Axes, labels: Sequence[str], unit: str) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=7)


def _task_label(number: int, task: TaskContents) -> str:
    return plain_label(f"{number} {task.title}")


def plain_label(text: str) -> str:
    """A name of others as short text that every font has.

    A label that begins with ``_`` is left out of legends by matplotlib.
    """
    plain = text.encode("ascii", "backslashreplace").decode()
    plain = "".join(char if char.isprintable() else "?" for char in plain).lstrip("_")
    cut = plain[: _LABEL_CHARACTERS - 3] + "..."
    return plain if len(plain) <= _LABEL_CHARACTERS else cut
