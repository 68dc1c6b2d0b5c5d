"""Regression by a Gaussian process whose length scales are found by marginal likelihood.

Formulas are those of Rasmussen and Williams, Gaussian Processes for Machine Learning (2006):
covariance 4.17, prediction 2.25 and 2.26, marginal likelihood 5.8 and its derivative 5.9.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

__all__ = ["Covariance", "Cross", "Factorised", "fit_covariance"]

Array = NDArray[np.floating[Any]]

_LOG_WEIGHT = (-1.0, 1.0)
"""Mean and standard deviation of the prior of the logarithm of a coordinate's weight."""
_LOG_NOISE = (math.log(1e-3), 2.0)
_FARTHEST = 4.0
_FIRST_STEP, _LARGEST_STEP = 0.3, 1.0
_SMALLEST_PIVOT = 1e-8


def _array(values: object) -> Array:
    return np.asarray(values, dtype=np.float64)


@frozen(eq=False)
class Covariance:
    """Matern 5/2 of a weighted distance, relative to the signal's variance.

    Attributes:
        log_weights: Logarithm of the weight of each group of coordinates, [groups].
        log_noise: Logarithm of the variance of the noise.
    """

    log_weights: Array = field(converter=_array)
    log_noise: float = _LOG_NOISE[0]

    @staticmethod
    def prior(groups: int) -> Covariance:
        """The mean of the prior."""
        return Covariance(np.full(groups, _LOG_WEIGHT[0]), _LOG_NOISE[0])

    @property
    def noise(self) -> float:
        """The variance of the noise."""
        return math.exp(self.log_noise)

    def scaled(self, points: Array, groups: NDArray[np.int64]) -> Array:
        """Points whose plain distance is the weighted one."""
        return np.asarray(points * np.exp(0.5 * self.log_weights)[groups])


def _squared_distances(left: Array, right: Array) -> Array:
    """Between rows; [left, right], in the precision of the arguments."""
    product: Array = left @ right.T
    product *= -2
    product += (left * left).sum(axis=1)[:, None]
    product += (right * right).sum(axis=1)
    return np.maximum(product, 0, out=product)


def _matern(squared: Array) -> Array:
    """The covariance at squared distances, which are overwritten."""
    squared *= 5
    scaled = np.sqrt(squared)
    squared /= 3
    squared += scaled
    squared += 1
    squared *= np.exp(np.negative(scaled, out=scaled), out=scaled)
    return squared


def _matern_and_slope(squared: Array) -> tuple[Array, Array]:
    """The covariance, and its derivative by the squared distance."""
    scaled = np.sqrt(5 * squared)
    decay = np.exp(-scaled)
    slope = (-5 / 6) * (1 + scaled) * decay
    return decay * (1 + scaled + (5 / 3) * squared), slope


def fit_covariance(
    points: Array, values: Array, groups: NDArray[np.int64], start: Covariance, steps: int
) -> Covariance:
    """The most probable covariance of some observations, by ``steps`` steps of Rprop.

    The variance of the signal is the best one for each set of weights. Priors are log-normal.

    Args:
        points: [n, coordinates], n at least 1.
        values: [n], of mean zero.
        groups: The group of each coordinate.
        start: Where to begin.
        steps: Evaluations of likelihood and gradient, each cubic in n.
    """
    means = np.append(np.full(len(start.log_weights), _LOG_WEIGHT[0]), _LOG_NOISE[0])
    deviations = np.append(np.full(len(start.log_weights), _LOG_WEIGHT[1]), _LOG_NOISE[1])
    theta = np.append(start.log_weights, start.log_noise)
    best, least = theta, math.inf
    sizes, before = np.full(len(theta), _FIRST_STEP), np.zeros(len(theta))
    for _ in range(steps):
        loss, gradient = _likelihood(points, values, groups, theta)
        loss += 0.5 * float((((theta - means) / deviations) ** 2).sum())
        gradient += (theta - means) / deviations**2
        if loss < least:
            best, least = theta, loss
        agreement = gradient * before
        sizes = np.where(agreement > 0, np.minimum(sizes * 1.3, _LARGEST_STEP), sizes)
        sizes = np.where(agreement < 0, sizes * 0.5, sizes)
        before = np.where(agreement < 0, 0.0, gradient)
        reach = _FARTHEST * deviations
        theta = np.clip(theta - np.sign(before) * sizes, means - reach, means + reach)
    return Covariance(best[:-1], float(best[-1]))


def _likelihood(
    points: Array, values: Array, groups: NDArray[np.int64], theta: Array
) -> tuple[float, Array]:
    """Minus the logarithm of the marginal likelihood but for a constant, and its gradient."""
    n, covariance = len(values), Covariance(theta[:-1], float(theta[-1]))
    scaled = covariance.scaled(points, groups)
    squared = _squared_distances(scaled, scaled)
    gram, slope = _matern_and_slope(squared)
    gram[np.diag_indices(n)] = 1 + covariance.noise
    factor = np.linalg.cholesky(gram)
    half = np.linalg.inv(factor)
    inverse = half.T @ half
    dual = inverse @ values
    variance = max(float(values @ dual) / n, np.finfo(float).tiny)
    loss = 0.5 * n * math.log(variance) + float(np.log(np.diag(factor)).sum())
    outer = inverse - np.outer(dual, dual) / variance
    slopes = outer * slope
    # Sum over i, j of slopes * (x_i - x_j)**2, halved, for each coordinate.
    by_coordinate = (scaled * scaled * slopes.sum(axis=1)[:, None]).sum(axis=0)
    by_coordinate -= (scaled * (slopes @ scaled)).sum(axis=0)
    gradient = np.bincount(groups, by_coordinate, minlength=len(theta) - 1)
    return loss, np.append(gradient, 0.5 * covariance.noise * np.trace(outer))


class Factorised:
    """The Cholesky factor of the covariance between observed points, which may be added to.

    Args:
        covariance: Their covariance.
        groups: The group of each coordinate.
        points: The first ones, [n, coordinates].
    """

    def __init__(self, covariance: Covariance, groups: NDArray[np.int64], points: Array) -> None:
        self.covariance = covariance
        self.groups = groups
        self.first = len(points)
        self.scaled = covariance.scaled(points, groups)
        gram = _matern(_squared_distances(self.scaled, self.scaled))
        gram[np.diag_indices(len(points))] = 1 + covariance.noise
        self.factor: Array = np.linalg.cholesky(gram)
        self.inverse: Array = np.linalg.inv(self.factor)

    def __len__(self) -> int:
        return len(self.scaled)

    def add(self, point: Array) -> None:
        """Append one point, [coordinates]."""
        n = len(self)
        scaled = self.covariance.scaled(point, self.groups)[None]
        row = self.inverse @ _matern(_squared_distances(self.scaled, scaled))[:, 0]
        pivot = math.sqrt(max(1 + self.covariance.noise - float(row @ row), _SMALLEST_PIVOT))
        self.factor = _grown(self.factor, row, pivot)
        self.inverse = _grown(self.inverse, -(row @ self.inverse) / pivot, 1 / pivot)
        self.scaled = np.concatenate([self.scaled, scaled])
        assert len(self.factor) == n + 1

    def truncate(self, n: int) -> None:
        """Forget all but the first ``n`` points."""
        self.scaled = self.scaled[:n]
        self.factor, self.inverse = self.factor[:n, :n], self.inverse[:n, :n]

    def whitened(self, values: Array, known: NDArray[np.bool_]) -> Array:
        """The solution of ``factor @ x = values`` for the first of the points; [values].

        Where ``known`` is false the value is taken to be what those before it predict, so that
        the mean stays as it is and only the variance falls.
        """
        n = len(values)
        if known.all():
            return np.asarray(self.inverse[:n, :n] @ values)
        result = np.zeros(n)
        inner = self.factor[:n, :n][np.ix_(known, known)]
        result[known] = np.linalg.solve(inner, values[known])
        return result


def _grown(matrix: Array, row: Array, corner: float) -> Array:
    n = len(matrix)
    grown = np.zeros((n + 1, n + 1))
    grown[:n, :n], grown[n, :n], grown[n, n] = matrix, row, corner
    return grown


class Cross:
    """Covariances of fixed candidates with the observed points, whitened, in single precision.

    Args:
        points: The candidates, [n, coordinates].
        observed: The observed points; the covariances with its first ones are computed at once,
            those with later ones when :meth:`extend` is called, each linear in candidates and
            observed points.
    """

    def __init__(self, points: Array, observed: Factorised) -> None:
        scaled = observed.covariance.scaled(points, observed.groups)
        self._points = scaled.astype(np.float32)
        self._norms = (self._points * self._points).sum(axis=1)
        first = observed.first
        inner = observed.scaled[:first].astype(np.float32)
        covariances = _matern(_squared_distances(inner, self._points))
        self._rows: Array = np.empty((2 * first + 16, len(points)), dtype=np.float32)
        np.matmul(
            observed.inverse[:first, :first].astype(np.float32),
            covariances,
            out=self._rows[:first],
        )
        self._used = first
        #: Variance that is left of a signal of variance 1, by candidate.
        self.variances: Array = 1 - np.einsum("ij,ij->j", self._rows[:first], self._rows[:first])

    def extend(self, observed: Factorised) -> None:
        """Take in the points that were added since."""
        for n in range(self._used, len(observed)):
            if n == len(self._rows):
                self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            point = observed.scaled[n].astype(np.float32)
            squared = self._norms + (point @ point) - 2 * (self._points @ point)
            row = _matern(np.maximum(squared, 0, out=squared))
            row -= observed.factor[n, :n].astype(np.float32) @ self._rows[:n]
            row /= np.float32(observed.factor[n, n])
            self._rows[n] = row
            self.variances = self.variances - row * row
            self._used = n + 1

    def truncate(self, n: int, variances: Array) -> None:
        """Forget all but the first ``n`` points; ``variances`` are those of then."""
        self._used, self.variances = n, variances

    def mean(self, whitened: Array) -> Array:
        """The prediction for each candidate, from :meth:`Factorised.whitened`."""
        return np.asarray(whitened.astype(np.float32) @ self._rows[: len(whitened)])
