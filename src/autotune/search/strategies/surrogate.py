"""Surrogate of unmeasured candidates' outcomes, from parameters alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.search.strategies.encoding import Encoding
from autotune.search.strategies.gaussian_process import (
    Covariance,
    Cross,
    Factorised,
    fit_covariance,
)
from autotune.sketches import CandidateBatch

__all__ = ["Observation", "Surrogate", "log_expected_improvement"]

Observation = tuple[int, tuple[int, ...], float | None]
"""Number of the sketch, values, and the latency in seconds; None for a failure."""

_LEAST_CHANCE = 1e-6
_LEAST_DEVIATION = 1e-9
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


@frozen
class _Fit:
    """A covariance, the numbers of the observations that it stands on, and how many there were."""

    covariance: Covariance
    members: tuple[int, ...] = ()
    told: int = 0


class Surrogate:
    """Two Gaussian processes with one covariance: logarithm of the latency, and failures.

    A failure says nothing about latencies: there, the process of latencies is given what it
    predicts itself. The process of failures has 0 where a candidate worked, 1 where it failed.

    Args:
        encoding: Where configurations are.
        growth: Ratio of observations at which the covariance is fitted again.
        fit_steps: Steps of each fit.
        most_observed: Observations that a fit takes in: half of them the fastest, the others the
            latest.
    """

    def __init__(
        self, encoding: Encoding, growth: float, fit_steps: int, most_observed: int
    ) -> None:
        self._encoding = encoding
        self._growth, self._fit_steps, self._most = growth, fit_steps, most_observed
        self._fit = _Fit(Covariance.prior(int(encoding.groups.max(initial=-1)) + 1))
        self._points: list[NDArray[np.float64]] = []
        self._members: list[int] = []
        self._values, self._known = np.zeros(0), np.zeros(0, dtype=np.bool_)
        self.observed: Factorised | None = None
        """The observations, another object after each fit."""

    def learn(self, outcomes: Sequence[Observation]) -> Factorised:
        """Take in all outcomes, at least one of them a latency; those of before in the order
        of before."""
        for sketch, values, _ in outcomes[len(self._points) :]:
            self._points.append(self.point(sketch, values))
        if len(outcomes) - self._fit.told >= (self._growth - 1) * len(self._fit.members):
            self._refit(outcomes)
        elif self.observed is None:
            self._begin()
        assert self.observed is not None
        for number in range(self._told(), len(outcomes)):
            self._members.append(number)
            self.observed.add(self._points[number])
        self._set_values([outcomes[number][2] for number in self._members])
        return self.observed

    def _told(self) -> int:
        """Number of observations that are taken in, or were left out of the fit."""
        return self._fit.told + len(self._members) - len(self._fit.members)

    def point(self, sketch: int, values: Sequence[int]) -> NDArray[np.float64]:
        """Where a configuration of a sketch is; [coordinates]."""
        rows: list[list[Sequence[int]]] = [[] for _ in self._encoding.sketches]
        rows[sketch].append(values)
        batch = CandidateBatch.of_rows(self._encoding.sketches, rows)
        return np.asarray(self._encoding.encode(batch)[0])

    def _refit(self, outcomes: Sequence[Observation]) -> None:
        valid = [number for number, it in enumerate(outcomes) if it[2] is not None]
        failed = [number for number, it in enumerate(outcomes) if it[2] is None]
        if len(outcomes) > self._most:
            fastest = sorted(valid, key=lambda number: outcomes[number][2] or 0.0)
            kept = {*fastest[: self._most // 2]}
            rest = [number for number in range(len(outcomes)) if number not in kept]
            kept |= {*rest[len(kept) - self._most :]}
            valid = [number for number in valid if number in kept]
            failed = [number for number in failed if number in kept]
        self._set_values([outcomes[number][2] for number in valid])
        covariance = fit_covariance(
            np.array([self._points[number] for number in valid]),
            self._values,
            self._encoding.groups,
            self._fit.covariance,
            self._fit_steps,
        )
        # Failures last: at them, all latencies of now are what is predicted from.
        self._fit = _Fit(covariance, (*valid, *failed), len(outcomes))
        self._begin()

    def _begin(self) -> None:
        self._members = list(self._fit.members)
        points = np.array([self._points[number] for number in self._members])
        self.observed = Factorised(self._fit.covariance, self._encoding.groups, points)

    def _set_values(self, latencies: Sequence[float | None]) -> None:
        self._known = np.array([it is not None for it in latencies])
        logs = np.log([it for it in latencies if it is not None])
        self._values = np.zeros(len(latencies))
        self._values[self._known] = (logs - logs.mean()) / max(logs.std(), _LEAST_DEVIATION)

    def scores(self, cross: Cross) -> NDArray[np.float32]:
        """Logarithm of the expected improvement, failures counted as none, for each candidate.

        ``cross`` may have been extended by points beyond those observed, which then only lower
        the variance.
        """
        assert self.observed is not None
        whitened = self.observed.whitened(self._values, self._known)
        variance = float(whitened @ whitened) / max(int(self._known.sum()), 1)
        deviations = np.sqrt(np.maximum(cross.variances * variance, _LEAST_DEVIATION))
        best = self._values[self._known].min()
        scores = log_expected_improvement(best - cross.mean(whitened), deviations)
        if not self._known.all():
            failed = (~self._known).astype(np.float64)
            share, everywhere = failed.mean(), np.ones(len(failed), dtype=np.bool_)
            excess = cross.mean(self.observed.whitened(failed - share, everywhere))
            chances = 1 - share - excess
            scores += np.log(np.clip(chances, _LEAST_CHANCE, 1))
        return scores

    def state(self) -> dict[str, Any]:
        """A JSON object: the last fit, which depends on those before it."""
        return {
            "log_weights": self._fit.covariance.log_weights.tolist(),
            "log_noise": self._fit.covariance.log_noise,
            "members": list(self._fit.members),
            "told": self._fit.told,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` returned, once the outcomes are given to
        :meth:`learn`."""
        covariance = Covariance(state["log_weights"], state["log_noise"])
        self._fit = _Fit(covariance, tuple(state["members"]), state["told"])
        self._points, self._members, self.observed = [], [], None


def log_expected_improvement(
    gains: NDArray[np.float32], deviations: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Logarithm of the expectation of max(0, gain) of normal gains, up to 10 %.

    With u = gain / deviation it is deviation * (phi(u) + u * Phi(u)), which for u < 0 is
    phi(u) / (u**2 + 0.905 |u| + 1), exact for u = 0 and within 10 % from there to -8, and for
    u > 0 as much plus u. So nothing underflows far from what is promising.

    Args:
        gains: Expected gains, [n].
        deviations: Their standard deviations, [n].
    """
    u = gains / deviations
    size = np.abs(u)
    log_tail = -0.5 * u * u - np.float32(_LOG_ROOT_2PI) - np.log(u * u + 0.905 * size + 1)
    above = np.maximum(u, np.float32(0)) + np.exp(np.maximum(log_tail, np.float32(-80)))
    log_ratio = np.where(u > 0, np.log(above), log_tail)
    return np.asarray(log_ratio + np.log(deviations))
