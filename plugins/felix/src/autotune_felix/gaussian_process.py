"""Gaussian processes over columns of programs: predictions with uncertainty from few outcomes.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), sections 2.2 and 5.4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["Fit", "Process", "Scales", "conditioned", "fitted"]

Values = NDArray[np.float64]
Groups = NDArray[np.int64]

# Each scale is a power of two times its first value, at most so many octaves from it; how far
# it is expected to be, as a standard deviation.
_OCTAVES, _EXPECTED = 3, 1.5
# Most times that all scales are tried one up and one down: nearly always, four are enough.
_SWEEPS = 4
# Variance of the level of all outcomes, which is not known beforehand.
_LEVEL = 1.0
# A column that varies by less than this is scaled as if it varied by one: it must not count more
# where it does vary.
_LEAST_SPREAD = 0.1
_LEAST_VARIANCE = 1e-9


@frozen
class Scales:
    """Scales at which outcomes are expected to be alike; of natural logarithms.

    Attributes:
        length: Root mean square distance of scaled columns over which outcomes differ.
        smooth: Deviation of what depends on the columns.
        group: Deviation of what all of a group have in common.
        noise: Deviation of what each outcome has alone.
    """

    length: float = 1.0
    smooth: float = 0.4
    group: float = 0.3
    noise: float = 0.1

    def moved(self, name: str, octaves: int) -> Scales:
        """With one of them so many octaves up."""
        return attrs.evolve(self, **{name: getattr(self, name) * 2.0**octaves})

    @property
    def octaves(self) -> Values:
        """Distance of each of them from its first value."""
        first = attrs.astuple(Scales())
        return np.asarray(np.log2(np.divide(attrs.astuple(self), first)))

    def to_json(self) -> dict[str, float]:
        """As a JSON object."""
        return attrs.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Scales:
        """Read what :meth:`to_json` returned."""
        return Scales(**{name: float(value) for name, value in data.items()})


@frozen(eq=False)
class Process:
    """The posterior over programs, given outcomes.

    Attributes:
        scales: What it was fitted with.
        evidence: Logarithm of the density of the outcomes with these scales, and of the scales.
    """

    scales: Scales
    evidence: float
    _centre: Values  # [columns]
    _weights: Values  # [columns]: columns are multiplied by these
    _points: Values  # [n, columns]: centred and weighted
    _groups: Groups  # [n]
    _level: float
    _whitener: Values  # [n, n]: of the covariance of the outcomes
    _answers: Values  # [n]: its inverse times the outcomes

    def predicted(self, columns: Values, group: int, caution: float) -> tuple[Values, Values]:
        """Expectation plus ``caution`` deviations of it, ``[m]``, and its gradient.

        Args:
            columns: Of programs, ``[m, columns]``.
            group: Of all of them.
            caution: Standard deviations.

        Returns:
            ``[m]``, and derivatives by the columns, ``[m, columns]``.
        """
        scales = self.scales
        points = (columns - self._centre) * self._weights
        alike = scales.smooth**2 * np.exp(-0.5 * _squares(points, self._points) / scales.length**2)
        cross = alike + scales.group**2 * (self._groups == group) + _LEVEL
        white = cross @ self._whitener.T
        before = scales.smooth**2 + scales.group**2 + _LEVEL
        variance = np.maximum(before - (white**2).sum(axis=1), _LEAST_VARIANCE)
        deviation = np.sqrt(variance)
        value = self._level + cross @ self._answers + caution * deviation
        # Derivative by each covariance; that of the variance is -2 times its inverse's product.
        by_cross = self._answers - caution * (white @ self._whitener) / deviation[:, None]
        pull = by_cross * alike / scales.length**2
        slope = pull @ self._points - pull.sum(axis=1, keepdims=True) * points
        return value, slope * self._weights


Fit = Callable[[Values, Values, Groups, Values, Scales], Process]
"""What makes a process of outcomes: :func:`conditioned`, or :func:`fitted`."""


def conditioned(
    columns: Values, shares: Values, groups: Groups, labels: Values, scales: Scales
) -> Process:
    """The process with these scales that has had the outcomes.

    Args:
        columns: Of programs with an outcome, ``[n, columns]`` with n > 0.
        shares: What each column counts in a squared distance, ``[columns]``.
        groups: Of each program, ``[n]``.
        labels: Its outcome, ``[n]``.
        scales: How alike outcomes are.
    """
    spread = columns.std(axis=0)
    weights = np.sqrt(shares) / np.where(spread < _LEAST_SPREAD, 1.0, spread)
    centre, level = columns.mean(axis=0), float(labels.mean())
    points = (columns - centre) * weights
    squares = _squares(points, points)
    covariance = scales.smooth**2 * np.exp(-0.5 * squares / scales.length**2)
    covariance += scales.group**2 * (groups[:, None] == groups) + _LEVEL
    covariance[np.diag_indices_from(covariance)] += scales.noise**2
    root = np.linalg.cholesky(covariance)
    whitener = np.linalg.inv(root)
    white = whitener @ (labels - level)
    fit = -0.5 * float(white @ white) - float(np.log(np.diag(root)).sum())
    evidence = fit - 0.5 * float((scales.octaves**2).sum()) / _EXPECTED**2
    answers = whitener.T @ white
    return Process(scales, evidence, centre, weights, points, groups, level, whitener, answers)


def fitted(
    columns: Values, shares: Values, groups: Groups, labels: Values, start: Scales
) -> Process:
    """The same with scales near ``start`` that make the outcomes more likely, one at a time."""
    best = conditioned(columns, shares, groups, labels, start)
    for _ in range(_SWEEPS):
        before = best
        for name in ("length", "smooth", "group", "noise"):
            for octaves in (-1, 1):
                scales = best.scales.moved(name, octaves)
                if np.abs(scales.octaves).max() <= _OCTAVES:
                    other = conditioned(columns, shares, groups, labels, scales)
                    best = max(best, other, key=lambda process: process.evidence)
        if best is before:
            break
    return best


def _squares(one: Values, other: Values) -> Values:
    """Squared distances of all pairs of rows."""
    found = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2.0 * one @ other.T
    return np.asarray(np.maximum(found, 0.0))
