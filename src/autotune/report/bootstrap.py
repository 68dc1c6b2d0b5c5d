"""Bootstrap intervals: how far a figure of a few runs can be trusted. Pure functions of numbers.

The bounds are percentiles of the figure over resamples (Efron and Tibshirani, "An Introduction to
the Bootstrap", 1993, chapter 13). With fewer than about ten values they are too narrow: what did
not happen in five runs is in no resample of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError

__all__ = [
    "CONFIDENCE",
    "RESAMPLES",
    "ConfidenceInterval",
    "PairedDifference",
    "Statistic",
    "bootstrap_interval",
    "paired_difference",
]

RESAMPLES = 10_000
CONFIDENCE = 0.95

Numbers = Sequence[float] | NDArray[np.float64]


class Statistic(Protocol):
    """A figure of values along an axis, such as ``numpy.mean`` or ``numpy.median``."""

    def __call__(self, values: NDArray[np.float64], /, *, axis: int) -> Any:
        """The figure of ``values`` along ``axis``, which the result lacks."""


@frozen
class ConfidenceInterval:
    """A figure with the bounds of its confidence interval, in the unit of the figure."""

    value: float
    low: float
    high: float


@frozen
class PairedDifference:
    """Excess of one side of pairs over the other.

    Attributes:
        interval: Of the difference, first side minus second.
        above: Share of the resamples in which the difference is above 0; those in which it is 0
            count half.
        pairs: How many there were.
    """

    interval: ConfidenceInterval
    above: float
    pairs: int


def bootstrap_interval(
    values: Numbers,
    statistic: Statistic,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> ConfidenceInterval:
    """A figure of values with its bootstrap interval.

    Args:
        values: ``[n]``; infinite ones are allowed where the statistic can take them.
        statistic: The figure.
        rng: Draws the resamples.
        resamples: How many.
        confidence: Share of the resampled figures that lie within the bounds.

    Raises:
        InvalidValueError: there are no values, one is NaN, or ``resamples`` or ``confidence`` is
            out of its range.
    """
    column = _column(values)
    drawn = _resampled(column, statistic, rng, resamples)
    return _interval(float(statistic(column, axis=-1)), drawn, confidence)


def paired_difference(
    ours: Numbers,
    theirs: Numbers,
    rng: np.random.Generator,
    *,
    groups: Sequence[Hashable] | None = None,
    statistic: Statistic = np.mean,
    draw_groups: bool = False,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> PairedDifference:
    """Compute the statistic of differences of values from those that they pair with.

    Pairs are drawn, never their halves, so that what both have in common drops out. Of positive
    values, differences of logarithms make ratios: ``exp`` of the interval.

    Args:
        ours: ``[n]``.
        theirs: ``[n]``, in the same order.
        rng: Draws the resamples.
        groups: The group of each pair, such as its workload. Pairs are drawn within their group,
            and the figure is the mean over the groups of their statistics, whatever their sizes.
        statistic: The figure of the differences of a group.
        draw_groups: Whether the groups are drawn, too: for what holds of groups that are not
            there, and not only of these.
        resamples: How many resamples are drawn.
        confidence: Share of the resampled figures that lie within the bounds.

    Raises:
        InvalidValueError: lengths differ, there are no pairs, a difference is NaN, or
            ``resamples`` or ``confidence`` is out of its range.
    """
    one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if one.shape != other.shape or one.ndim != 1 or not len(one):
        raise InvalidValueError(f"{one.size} values do not pair with {other.size}")
    with np.errstate(invalid="ignore"):
        differences = _column(one - other)
    parts = _grouped(differences, groups)
    value = float(np.mean([statistic(part, axis=-1) for part in parts]))
    # One row for each group.
    rows = np.stack([_resampled(part, statistic, rng, resamples) for part in parts])
    if draw_groups:
        chosen = rng.integers(len(rows), size=rows.shape)
        rows = np.take_along_axis(rows, chosen, axis=0)
    drawn = rows.mean(axis=0)
    above = float(np.mean(drawn > 0) + np.mean(drawn == 0) / 2)
    return PairedDifference(_interval(value, drawn, confidence), above, len(differences))


def _column(values: Numbers) -> NDArray[np.float64]:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or not len(column) or np.isnan(column).any():
        raise InvalidValueError(
            f"a bootstrap needs numbers in a row, at least one and none of them NaN: "
            f"got {column.tolist()}"
        )
    return column


def _grouped(
    values: NDArray[np.float64], groups: Sequence[Hashable] | None
) -> list[NDArray[np.float64]]:
    """The values of each group, in order of appearance."""
    if groups is None:
        return [values]
    if len(groups) != len(values):
        raise InvalidValueError(f"{len(groups)} names of groups for {len(values)} pairs")
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    return [values[found] for found in places.values()]


def _resampled(
    column: NDArray[np.float64], statistic: Statistic, rng: np.random.Generator, resamples: int
) -> NDArray[np.float64]:
    """The statistic of every resample ``[resamples]``."""
    if resamples < 1:
        raise InvalidValueError(f"resamples must be at least 1, not {resamples}")
    drawn = rng.integers(len(column), size=(resamples, len(column)))
    return np.asarray(statistic(column[drawn], axis=-1), np.float64)


def _interval(value: float, drawn: NDArray[np.float64], confidence: float) -> ConfidenceInterval:
    if not 0 < confidence < 1:
        raise InvalidValueError(f"confidence must lie between 0 and 1, not {confidence}")
    tail = (1 - confidence) / 2
    # One of the resamples each: between two of them infinite ones have no mean.
    low, high = np.quantile(drawn, [tail, 1 - tail], method="inverted_cdf")
    return ConfidenceInterval(value, float(low), float(high))
