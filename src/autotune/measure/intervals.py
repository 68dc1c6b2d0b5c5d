"""Confidence intervals of medians and of ratios, from few samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

__all__ = ["median_interval", "ratio_interval"]

_TAIL = 0.025
# Two-sided 95 % points of Student's distribution with 1 to 4 degrees of freedom.
_STUDENT = (12.706, 4.303, 3.182, 2.776)


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """A 95 % confidence interval of the median, free of assumptions on the distribution.

    Order statistics ``j`` and ``n + 1 - j`` enclose the median unless fewer than ``j`` of ``n``
    samples fall on one side of it, and how many do is binomial. Fewer than six samples give no
    such interval: None.
    """
    count = len(samples)
    rank = 0
    cumulative = 1 / 2**count
    while cumulative <= _TAIL:
        rank += 1
        cumulative += math.comb(count, rank) / 2**count
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[count - rank]


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float]:
    """A 95 % confidence interval of the median of ratios.

    It comes from order statistics, which assume nothing about the distribution, and with fewer
    than six ratios from Student's distribution of the logarithms. A single ratio tells nothing:
    its interval is without bounds.
    """
    interval = median_interval(ratios)
    if interval is not None:
        return interval
    count = len(ratios)
    if count < 2:
        return 0.0, math.inf
    logs = [math.log(ratio) for ratio in ratios]
    half = _STUDENT[count - 2] * statistics.stdev(logs) / math.sqrt(count)
    middle = statistics.fmean(logs)
    return math.exp(middle - half), math.exp(middle + half)
