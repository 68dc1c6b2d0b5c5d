"""Curves of a comparison. Imports matplotlib, which the extra ``report`` installs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from autotune.evaluation.compare.figures import ComparedRuns, curve_of
from autotune.evaluation.compare.runs import Course
from autotune.report.pages.plots import Band, Plot, bands_plot

__all__ = ["compare_plot"]

_MARKS = 120


def compare_plot(study: ComparedRuns, by_time: bool) -> Plot:
    """The best latency so far of each contender on each workload: median over seeds, interval.

    Args:
        study: The runs.
        by_time: Over seconds, and not over trials.
    """
    panels = {
        workload: [
            band
            for name in study.contenders
            if (band := _band(name, study.of(workload, name), by_time)) is not None
        ]
        for workload in study.workloads
    }
    return bands_plot(
        "comparison",
        "Best latency so far, median over seeds with its 95 % interval.",
        panels,
        xlabel="seconds" if by_time else "trials",
        ylabel="best latency so far, ms",
    )


def _band(name: str, runs: Sequence[Course], by_time: bool) -> Band | None:
    """The curve of a contender from where all its runs have found something."""
    points = [run.points for run in runs]
    if not points or not all(points):
        return None
    at, found = [], []
    for mark in _marks(runs, by_time):
        after: Callable[[Course], float] = partial(_after, mark=mark, by_time=by_time)
        interval = curve_of(runs, after)
        if interval is not None:
            at.append(mark)
            found.append(interval)
    return Band(
        name,
        at,
        [1e3 * it.value for it in found],
        [1e3 * it.low for it in found],
        [1e3 * it.high for it in found],
    )


def _marks(runs: Sequence[Course], by_time: bool) -> list[float]:
    """Places at which the curves are drawn: at their falls, or evenly, if these are many."""
    end = min(run.seconds if by_time else float(run.budget) for run in runs)
    falls = {
        point.seconds if by_time else float(point.trials) for run in runs for point in run.points
    }
    marks = sorted({it for it in falls if it <= end} | {end})
    return marks if len(marks) <= _MARKS else np.linspace(marks[0], end, _MARKS).tolist()


def _after(run: Course, mark: float, by_time: bool) -> float:
    return run.after_seconds(mark) if by_time else run.after_trials(mark)
