"""Score of a run against the exact expectation of random search.

The score is that of the methodology for optimising tuners by Willemsen et al. ("A methodology for
comparing optimization algorithms for auto-tuning", Future Generation Computer Systems 159, 2024):
after n evaluations it is (random(n) - found(n)) / (random(n) - optimum), 0 for random search and
1 for the optimum. A configuration that failed takes as long as the slowest valid one, and so does
what a run has found before its first valid configuration; both hold for random search as well.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.runs import Run

__all__ = [
    "POINTS",
    "RunScore",
    "Yardstick",
    "expected_best",
    "score_curve",
    "score_run",
    "yardstick",
]

POINTS = 50
"""Equally spaced numbers of evaluations whose scores are averaged."""
SHARE_OF_WAY = 0.95
"""Of the way from the median to the optimum: how far random search has come where P95 ends."""
NEAR = 1.05
"""A run whose best takes at most so many times the optimum has come near it."""
REGRET_AT = 50

# Where random search expects less than this above the optimum, a score would divide by nothing.
_LEAST_ROOM = 1e-9


@frozen(eq=False)
class Yardstick:
    """Yardstick for the runs on a space, in seconds.

    Attributes:
        optimum: The fastest configuration.
        median: Of the valid ones.
        worst: The slowest valid one, which failures count as.
        random: The best that random search is expected to have after 1, 2, ... evaluations.
        cutoff: Evaluations after which it has come 95 % of the way from the median to the
            optimum; all of ``random`` where it has not.
    """

    optimum: float
    median: float
    worst: float
    random: NDArray[np.float64]
    cutoff: int


@frozen
class RunScore:
    """Score of a run.

    Attributes:
        to_cutoff: Mean score up to the cutoff of the space (P95).
        to_budget: Mean score up to the budget (P200 for 200 evaluations).
        regret_early: Natural logarithm of best over optimum after 50 evaluations.
        regret: The same after the budget.
        near: Whether the best is within 5 % of the optimum.
    """

    to_cutoff: float
    to_budget: float
    regret_early: float
    regret: float
    near: bool


def expected_best(seconds: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The expected best of random search without replacement after 1 to ``count`` draws; [count].

    With times sorted, the chance that none of n draws is among the i fastest of N is
    C(N - i, n) / C(N, n); the expectation sums the gaps between neighbours times these chances.

    Args:
        seconds: Time of every configuration; infinite ones count as the slowest finite one.
        count: How many draws; after the last configuration there is nothing new.

    Raises:
        InvalidValueError: no time is finite.
    """
    finite = seconds[np.isfinite(seconds)]
    if not len(finite):
        raise InvalidValueError("there is no valid configuration to be found")
    times = np.sort(np.where(np.isfinite(seconds), seconds, finite.max()))
    total = len(times)
    gaps = np.diff(times)
    faster = np.arange(1, total, dtype=np.float64)
    chances = np.ones(total - 1, dtype=np.float64)
    found = np.full(count, times[0])
    for drawn in range(min(count, total - 1)):
        chances *= np.maximum(total - faster - drawn, 0.0) / (total - drawn)
        found[drawn] += gaps @ chances
    return found


def yardstick(seconds: NDArray[np.float64], budget: int) -> Yardstick:
    """The yardstick of a space for runs of ``budget`` evaluations.

    Args:
        seconds: Time of every configuration, infinite where it failed.
        budget: Evaluations of a run.

    Raises:
        InvalidValueError: no time is finite.
    """
    random = expected_best(seconds, budget)
    valid = seconds[np.isfinite(seconds)]
    optimum, median = float(valid.min()), float(np.median(valid))
    reached = random <= median - SHARE_OF_WAY * (median - optimum)
    cutoff = int(np.argmax(reached)) + 1 if reached.any() else budget
    return Yardstick(optimum, median, float(valid.max()), random, cutoff)


def score_curve(found: NDArray[np.float64], by: Yardstick) -> NDArray[np.float64]:
    """The score after each number of evaluations; NaN where random search has nothing to gain.

    Args:
        found: Best times so far, [..., evaluations].
        by: The yardstick of the space, for as many evaluations.
    """
    room = by.random - by.optimum
    has_room = room > _LEAST_ROOM * by.optimum
    divisor = np.where(has_room, room, 1.0)
    return np.where(has_room, (by.random - found) / divisor, np.nan)


def mean_score(curve: NDArray[np.float64], end: int) -> float:
    """The mean of a score curve at equally spaced points up to ``end`` evaluations.

    Points where random search has nothing to gain are left out; 0 where all of them are.
    """
    places = np.rint(np.linspace(end / POINTS, end, POINTS)).astype(np.int64)
    values = curve[np.maximum(places, 1) - 1]
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else 0.0


def score_run(run: Run, by: Yardstick) -> RunScore:
    """Score a run.

    Args:
        run: The run.
        by: The yardstick of its space, for its budget.
    """
    count = len(by.random)
    best = run.best(count, by.worst)
    curve = score_curve(best, by)
    early = float(best[min(REGRET_AT, count) - 1])
    return RunScore(
        mean_score(curve, by.cutoff),
        mean_score(curve, count),
        math.log(early / by.optimum),
        math.log(float(best[-1]) / by.optimum),
        bool(best[-1] <= NEAR * by.optimum),
    )
