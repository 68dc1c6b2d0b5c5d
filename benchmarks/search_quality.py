"""How good a search is: pure functions of what tuning runs had found after each trial.

Latencies of different runs compare only after their winners took turns on one machine: see
`true_latencies` and `Run.calibrated`.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = [
    "MISSED",
    "ConfidenceInterval",
    "Point",
    "Run",
    "area_over",
    "curve_at",
    "geometric_mean",
    "improvements",
    "interval_of",
    "knowing",
    "latency_over",
    "seconds_over",
    "shared_seconds",
    "target_of",
    "timed_steps",
    "trials_to_target",
    "true_latencies",
]

# A run that misses its target counts as this many times its budget.
MISSED = 2
RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Point:
    """State of a run: candidates that it has measured, its seconds, its best program's latency."""

    trials: int
    seconds: float
    latency: float


@dataclass(frozen=True)
class Run:
    """What a tuning run had found when.

    Attributes:
        workload: What it tuned.
        contender: What tuned it.
        seed: Its seed.
        budget: Candidates that it was allowed.
        seconds: Wall seconds of the whole run.
        points: Where another program became its best one, in order.
    """

    workload: str
    contender: str
    seed: int
    budget: int
    seconds: float
    points: tuple[Point, ...]

    @property
    def latency(self) -> float:
        """Latency of what it ended with, in seconds; infinite where nothing was valid."""
        return _last([point.latency for point in self.points])

    def reached(self, target: float) -> Point | None:
        """Where its best program first took at most ``target`` seconds; None where none did."""
        return next((point for point in self.points if point.latency <= target), None)

    def trials_to(self, target: float) -> int:
        """Candidates until ``target``; a run that misses it counts as twice its budget."""
        point = self.reached(target)
        return MISSED * self.budget if point is None else point.trials

    def seconds_to(self, target: float) -> float:
        """Wall seconds until ``target``; a run that misses it counts as twice its own."""
        point = self.reached(target)
        return MISSED * self.seconds if point is None else point.seconds

    def after_trials(self, trials: int) -> float:
        """What it would have ended with after so many candidates, in seconds."""
        return _last([p.latency for p in self.points if p.trials <= trials])

    def after_seconds(self, seconds: float) -> float:
        """What it would have ended with after these wall seconds, in seconds."""
        return _last([p.latency for p in self.points if p.seconds <= seconds])

    def calibrated(self, latency: float) -> Run:
        """The run as it were if its winner's latency had been this.

        The machine may have been faster or slower for the whole of a run; what a run says of its
        own candidates has such drift taken out already.
        """
        scale = latency / self.latency
        points = tuple(replace(point, latency=point.latency * scale) for point in self.points)
        return replace(self, points=points)


@dataclass(frozen=True)
class ConfidenceInterval:
    """A figure with the bounds of its confidence interval."""

    value: float
    low: float
    high: float


Runs = Mapping[str, Sequence[Run]]
"""Runs of one contender, by workload."""
Figure = Callable[[Runs, Runs], float]
"""A figure of some runs beside those of a reference."""


def improvements(
    history: Sequence[tuple[int, float, float | None]], before: float
) -> tuple[Point, ...]:
    """Where the best latency became less.

    Args:
        history: ``[trial, elapsed seconds, best latency so far or null]`` of a result file, whose
            trials count from 0.
        before: Seconds between the start of the command and that of the clock of the history.
    """
    points: list[Point] = []
    for trial, elapsed, best in history:
        if best is not None and (not points or best < points[-1].latency):
            points.append(Point(trial + 1, before + elapsed, best))
    return tuple(points)


def timed_steps(steps: Sequence[Mapping[str, Any]], before: float) -> tuple[Point, ...]:
    """The best programs of a run by the turns that they took after it.

    One that was slower than the one before it, although the run took it for faster, is what the
    run would have ended with all the same.

    Args:
        steps: Of each program its ``trial``, counted from 0, the ``elapsed`` seconds of the run by
            then, and its ``seconds`` per call in each turn.
        before: Seconds between the start of the command and that of the run's clock.
    """
    if not steps:
        return ()
    latencies = true_latencies({str(number): it["seconds"] for number, it in enumerate(steps)})
    return tuple(
        Point(step["trial"] + 1, before + step["elapsed"], latencies[str(number)])
        for number, step in enumerate(steps)
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; infinite where one of them is."""
    return math.exp(statistics.fmean(map(math.log, values)))


def true_latencies(turns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Latencies of programs that took turns.

    The machine may be slower in one round than in another, for all of them. A program's latency is
    the median over the rounds of its share of the round's level, times the median of the levels.

    Args:
        turns: Seconds of every program, one for each round.
    """
    levels = [statistics.median(round_) for round_ in zip(*turns.values(), strict=True)]
    level = statistics.median(levels)
    return {
        name: level * statistics.median(s / it for s, it in zip(seconds, levels, strict=True))
        for name, seconds in turns.items()
    }


def target_of(reference: Sequence[Run], tolerance: float = 0.0) -> float:
    """Median of what runs have found, plus a tolerance (0.02: 2 %), in seconds."""
    return statistics.median(run.latency for run in reference) * (1 + tolerance)


def trials_to_target(runs: Runs, reference: Runs, tolerance: float = 0.0) -> float:
    """Candidates until the reference's result: geometric mean over seeds, then over workloads."""
    return geometric_mean(
        [
            geometric_mean([run.trials_to(target_of(reference[name], tolerance)) for run in found])
            for name, found in runs.items()
        ]
    )


def seconds_over(runs: Runs, reference: Runs, tolerance: float = 0.0) -> float:
    """Wall seconds until the reference's result, over the median of the reference's own.

    The geometric mean over seeds, then over workloads.
    """
    shares = []
    for name, found in runs.items():
        target = target_of(reference[name], tolerance)
        whole = statistics.median(run.seconds for run in reference[name])
        shares.append(geometric_mean([run.seconds_to(target) / whole for run in found]))
    return geometric_mean(shares)


def latency_over(runs: Runs, reference: Runs) -> float:
    """What runs ended with over what the reference's did, in geometric means. Less is better."""
    return geometric_mean(
        [
            geometric_mean([run.latency for run in found])
            / geometric_mean([run.latency for run in reference[name]])
            for name, found in runs.items()
        ]
    )


def area_over(runs: Runs, reference: Runs) -> float:
    """Median latency after each number of candidates, over the reference's.

    The geometric mean over all numbers of candidates after which both have found something, then
    over workloads: the ratio of the areas under both median curves of log latency. Less is better.
    """
    shares = []
    for name, found in runs.items():
        ratios = []
        for trials in range(1, min(run.budget for run in (*found, *reference[name])) + 1):
            one, other = (
                statistics.median(run.after_trials(trials) for run in of)
                for of in (found, reference[name])
            )
            if max(one, other) < math.inf:
                ratios.append(one / other)
        shares.append(geometric_mean(ratios) if ratios else math.inf)
    return geometric_mean(shares)


def knowing(runs: Runs, fastest: Mapping[str, float], after: int) -> Runs:
    """The same runs, had each found the fastest program right after so many candidates.

    No search can do better that proposes as many before it knows a latency.

    Args:
        runs: Runs by workload.
        fastest: Latency of the fastest program that is known of each workload, in seconds.
        after: How many candidates.
    """

    def told(run: Run) -> Run:
        kept = tuple(point for point in run.points if point.trials <= after)
        found = Point(after + 1, run.seconds, min(fastest[run.workload], run.after_trials(after)))
        return replace(run, points=(*kept, found))

    return {name: [told(run) for run in found] for name, found in runs.items()}


def interval_of(figure: Figure, runs: Runs, reference: Runs, seed: int = 0) -> ConfidenceInterval:
    """A figure with a bootstrap interval: each workload's seeds are drawn anew, of both sides."""
    rng = random.Random(seed)

    def drawn(of: Runs) -> Runs:
        return {name: rng.choices(found, k=len(found)) for name, found in of.items()}

    values = sorted(figure(drawn(runs), drawn(reference)) for _ in range(RESAMPLES))
    low, high = _bounds(values)
    return ConfidenceInterval(figure(runs, reference), low, high)


def curve_at(
    runs: Sequence[Run], latency: Callable[[Run], float], seed: int = 0
) -> ConfidenceInterval | None:
    """Geometric mean over seeds of a latency, with a bootstrap interval.

    None where one of the runs had found nothing valid.

    Args:
        runs: Runs of one contender on one workload.
        latency: Which latency of a run, in seconds.
        seed: Of the bootstrap.
    """
    found = [latency(run) for run in runs]
    if not found or math.inf in found:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.choice(np.log(found), (RESAMPLES, len(found)))
    low, high = _bounds(np.sort(np.exp(drawn.mean(axis=1))).tolist())
    return ConfidenceInterval(geometric_mean(found), low, high)


def shared_seconds(runs: Sequence[Run]) -> float:
    """Wall seconds that every run had: equal budgets of time, cut from runs of equal trials."""
    return min(run.seconds for run in runs)


def _last(latencies: Sequence[float]) -> float:
    return latencies[-1] if latencies else math.inf


def _bounds(ordered: Sequence[float]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    last = len(ordered) - 1
    return ordered[round(tail * last)], ordered[round((1 - tail) * last)]
