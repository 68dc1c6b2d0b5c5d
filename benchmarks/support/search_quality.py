"""Figures of a search: pure functions of what tuning runs had found after each trial."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import evolve

from autotune.evaluation.compare import Course, Point, geometric_mean
from autotune.report.bootstrap import CONFIDENCE, ConfidenceInterval, bootstrap_interval

__all__ = [
    "area_over",
    "curve_at",
    "interval_of",
    "knowing",
    "latency_over",
    "seconds_over",
    "shared_seconds",
    "target_of",
    "trials_to_target",
]

RESAMPLES = 1000


Runs = Mapping[str, Sequence[Course]]
"""Runs of one contender, by workload."""
Figure = Callable[[Runs, Runs], float]
"""A figure of some runs beside those of a reference."""


def target_of(reference: Sequence[Course], tolerance: float = 0.0) -> float:
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
    """Final latencies of runs over those of the reference, in geometric means. Less is better."""
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

    def told(run: Course) -> Course:
        kept = tuple(point for point in run.points if point.trials <= after)
        found = Point(after + 1, run.seconds, min(fastest[run.workload], run.after_trials(after)))
        return evolve(run, points=(*kept, found))

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
    runs: Sequence[Course], latency: Callable[[Course], float], seed: int = 0
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
    logs = bootstrap_interval(np.log(found), np.mean, rng, resamples=RESAMPLES)
    return ConfidenceInterval(*(math.exp(it) for it in (logs.value, logs.low, logs.high)))


def shared_seconds(runs: Sequence[Course]) -> float:
    """Wall seconds that every run had: equal budgets of time, cut from runs of equal trials."""
    return min(run.seconds for run in runs)


def _bounds(ordered: Sequence[float]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    last = len(ordered) - 1
    return ordered[round(tail * last)], ordered[round((1 - tail) * last)]
