"""Draws what the searches of `benchmarks/bench.py strategies` had found over trials and seconds.

    python research/curves.py RESULTS FOLDER

One SVG for each workload goes to the folder. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import matplotlib
from matplotlib.figure import Figure
from strategies import TRIALS
from support.search_quality import curve_at, shared_seconds
from support.strategy_report import METASCHEDULE, Study

from autotune.evaluation.compare import Course, read_pieces

MARKS = 60


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="what --results of strategies.py wrote")
    parser.add_argument("folder", type=Path, help="where the curves go")
    parser.add_argument("--trials", type=int, default=TRIALS, help="the budget of the runs")
    options = parser.parse_args()
    study = Study.read(read_pieces(options.results), options.trials)
    options.folder.mkdir(parents=True, exist_ok=True)
    for workload, runs in study.by_workload().items():
        draw(workload, runs, (METASCHEDULE,), options.folder / f"{workload}.svg")
    return 0


def draw(
    workload: str, runs: Mapping[str, Sequence[Course]], ends_only: Collection[str], path: Path
) -> None:
    """Latency over trials and over wall time, with intervals, as a figure in a file.

    Args:
        workload: What was tuned.
        runs: Runs by contender.
        ends_only: Contenders of which the end is known, and nothing before.
        path: Where the figure goes; its ending says in which format.
    """
    matplotlib.rcParams["svg.hashsalt"] = workload
    figure = Figure(figsize=(10, 4), layout="constrained")
    by_trials, by_seconds = figure.subplots(1, 2, sharey=True)
    every = [run for found in runs.values() for run in found]
    budget = max(run.budget for run in every)
    for number, (contender, found) in enumerate(runs.items()):
        colour = f"C{number}"
        if contender in ends_only:
            _cross(by_trials, found, lambda run: run.budget, contender, colour)
            _cross(by_seconds, found, lambda run: run.seconds, contender, colour)
            continue
        marks = [1 + (budget - 1) * step / MARKS for step in range(MARKS + 1)]
        _band(
            by_trials, found, Course.after_trials, [int(mark) for mark in marks], contender, colour
        )
        last = shared_seconds(found)
        # Evenly on a logarithmic axis, from a second on.
        seconds = [last ** (step / MARKS) for step in range(MARKS + 1)]
        _band(by_seconds, found, Course.after_seconds, seconds, contender, colour)
    for axes, label in ((by_trials, "trials"), (by_seconds, "wall time, s")):
        axes.set_xlabel(label)
        axes.set_yscale("log")
        axes.grid(alpha=0.3, which="both")
    by_seconds.set_xscale("log")
    by_trials.set_ylabel("latency, ms")
    by_trials.legend()
    figure.suptitle(workload)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _cross(
    axes: Any, runs: Sequence[Course], place: Callable[[Course], float], label: str, colour: str
) -> None:
    axes.plot(
        [place(run) for run in runs],
        [run.latency * 1e3 for run in runs],
        "x",
        color=colour,
        label=label,
    )


def _band(
    axes: Any,
    runs: Sequence[Course],
    latency: Callable[[Course, Any], float],
    marks: Sequence[float],
    label: str,
    colour: str,
) -> None:
    known = []
    for mark in marks:
        at = curve_at(runs, lambda run, mark=mark: latency(run, mark))  # type: ignore[misc]
        if at is not None:
            known.append((mark, at))
    places = [mark for mark, _ in known]
    axes.plot(places, [at.value * 1e3 for _, at in known], color=colour, label=label)
    low, high = [at.low * 1e3 for _, at in known], [at.high * 1e3 for _, at in known]
    axes.fill_between(places, low, high, color=colour, alpha=0.2)


if __name__ == "__main__":
    sys.exit(main())
