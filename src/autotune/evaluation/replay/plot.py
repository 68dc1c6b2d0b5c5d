"""Plots of a replay: score over evaluations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.evaluation.replay.runs import Replay, score_curve
from autotune.evaluation.replay.summary import SEED, Summary
from autotune.report.pages.plots import Plot, drawing, plain_label

__all__ = ["score_plot", "space_plot"]

RESAMPLES = 500
_LOWEST = -1.0
_FIRST = 2


def score_plot(summary: Summary) -> Plot:
    """Mean score over spaces and seeds after each evaluation, with bands of 95 %."""
    caption = (
        "Mean score over spaces and seeds, with 95 % intervals of drawing both; 0 is random "
        "search, 1 the optimum."
    )
    return _plot("scores", caption, summary, summary.runs)


def space_plot(number: int, space: str, summary: Summary) -> Plot:
    """The same on one space, over seeds."""
    runs = [run for run in summary.runs if run.space == space]
    caption = f"Mean score on {space} over seeds, with 95 % intervals."
    return _plot(f"space-{number}", caption, summary, runs)


def _plot(name: str, caption: str, summary: Summary, runs: Sequence[Replay]) -> Plot:
    with drawing(4.2) as figure:
        axes = figure.subplots()
        axes.axhline(0.0, color="grey", linewidth=0.8)
        for own in summary.strategies:
            curves = _curves([run for run in runs if run.strategy == own.strategy], summary)
            if not curves:
                continue
            mean, low, high = _band(curves)
            at = np.arange(1, len(mean) + 1)
            line = axes.plot(at[_FIRST:], mean[_FIRST:], label=plain_label(own.strategy))[0]
            axes.fill_between(
                at[_FIRST:], low[_FIRST:], high[_FIRST:], color=line.get_color(), alpha=0.12
            )
        axes.set(xlabel="evaluations", ylabel="score", ylim=(_LOWEST, 1.02))
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=7, loc="lower right", ncols=2)
        return Plot(name, caption, figure)


def _curves(runs: Sequence[Replay], summary: Summary) -> list[NDArray[np.float64]]:
    """Score curves of each space, [seeds, evaluations]; 0 where nothing is to be gained."""
    by_space: dict[str, list[Replay]] = {}
    for run in runs:
        by_space.setdefault(run.space, []).append(run)
    found = []
    for space, own in by_space.items():
        by = summary.yardsticks[space]
        best = np.array([run.best(len(by.random), by.worst) for run in own])
        found.append(np.nan_to_num(score_curve(best, by)))
    return found


def _band(
    curves: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean of means by space, and the bounds of it when spaces and seeds are drawn."""
    rng = np.random.default_rng(SEED)
    mean = np.mean([own.mean(axis=0) for own in curves], axis=0)
    drawn = np.empty((RESAMPLES, len(mean)))
    for number in range(RESAMPLES):
        spaces = rng.integers(len(curves), size=len(curves))
        drawn[number] = np.mean(
            [
                curves[it][rng.integers(len(curves[it]), size=len(curves[it]))].mean(0)
                for it in spaces
            ],
            axis=0,
        )
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return mean, low, high
