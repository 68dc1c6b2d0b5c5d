from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.search.strategies.auto import (
    Covariance,
    Cross,
    Factorised,
    fit_covariance,
    log_expected_improvement,
)

GROUPS = np.array([0, 1, 1])
COVARIANCE = Covariance([0.5, -0.5], math.log(1e-2))


def _kernel(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Matern 5/2 as in Rasmussen and Williams, 4.17, entry by entry."""
    weights = np.exp(COVARIANCE.log_weights)[GROUPS]
    result = np.empty((len(left), len(right)))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            r = math.sqrt(5 * float((weights * (one - other) ** 2).sum()))
            result[i, j] = (1 + r + r * r / 3) * math.exp(-r)
    return result


def _direct(
    points: NDArray[np.float64], values: NDArray[np.float64], candidates: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    gram = _kernel(points, points) + 1e-2 * np.eye(len(points))
    across = _kernel(points, candidates)
    solved = np.linalg.solve(gram, across)
    return values @ solved, 1 - (across * solved).sum(axis=0)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 6))
def test_prediction_is_that_of_the_textbook(seed: int, first: int, later: int) -> None:
    rng = np.random.default_rng(seed)
    points, candidates = rng.random((first + later, 3)), rng.random((7, 3))
    values = rng.normal(size=first + later)
    observed = Factorised(COVARIANCE, GROUPS, points[:first])
    cross = Cross(candidates, observed)
    for point in points[first:]:
        observed.add(point)
    cross.extend(observed)
    mean, variances = _direct(points, values, candidates)
    whitened = observed.whitened(values, np.ones(len(values), dtype=np.bool_))
    np.testing.assert_allclose(cross.mean(whitened), mean, atol=2e-3)
    np.testing.assert_allclose(cross.variances, variances, atol=1e-4)


def test_truncated_is_as_before() -> None:
    rng = np.random.default_rng(0)
    points, candidates = rng.random((9, 3)), rng.random((20, 3))
    observed = Factorised(COVARIANCE, GROUPS, points[:5])
    cross = Cross(candidates, observed)
    before = cross.variances
    for point in points[5:]:
        observed.add(point)
    cross.extend(observed)
    assert (cross.variances < before).any()
    observed.truncate(5)
    cross.truncate(5, before)
    whitened = observed.whitened(points[:5, 0], np.ones(5, dtype=np.bool_))
    mean, variances = _direct(points[:5], points[:5, 0], candidates)
    np.testing.assert_allclose(cross.mean(whitened), mean, atol=2e-3)
    np.testing.assert_allclose(cross.variances, variances, atol=1e-4)


def test_an_unknown_value_leaves_the_mean_as_it_is() -> None:
    rng = np.random.default_rng(1)
    points, candidates = rng.random((8, 3)), rng.random((20, 3))
    values = np.append(rng.normal(size=6), [99.0, 99.0])
    known = np.arange(8) < 6
    observed = Factorised(COVARIANCE, GROUPS, points)
    mean, _ = _direct(points[:6], values[:6], candidates)
    found = Cross(candidates, observed).mean(observed.whitened(values, known))
    np.testing.assert_allclose(found, mean, atol=2e-3)


def _sample(n: int, noise: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(2)
    points = rng.random((n, 3))
    values = np.sin(5 * points[:, 0]) + noise * rng.normal(size=n)
    return points, (values - values.mean()) / values.std()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_fit_finds_what_matters_and_the_noise(noise: float) -> None:
    points, values = _sample(60, noise)
    start = Covariance.prior(3)
    fitted = fit_covariance(points, values, np.arange(3), start, 60)
    assert fitted.log_weights[0] > max(fitted.log_weights[1:]) + 1
    assert (fitted.noise > 0.02) == (noise > 0)


def test_a_fit_predicts_better_than_the_prior() -> None:
    points, values = _sample(80, 0.0)
    known = np.ones(40, dtype=np.bool_)
    errors = []
    for steps in (1, 40):
        # One step evaluates the start alone.
        fitted = fit_covariance(points[:40], values[:40], np.arange(3), Covariance.prior(3), steps)
        observed = Factorised(fitted, np.arange(3), points[:40])
        mean = Cross(points[40:], observed).mean(observed.whitened(values[:40], known))
        errors.append(float(np.abs(mean - values[40:]).mean()))
    assert errors[1] < 0.8 * errors[0]


@given(st.floats(-8, 8), st.floats(0.01, 100))
def test_expected_improvement_is_near_the_exact_one(ratio: float, deviation: float) -> None:
    below = 0.5 * math.erfc(-ratio / math.sqrt(2))
    density = math.exp(-0.5 * ratio**2) / math.sqrt(2 * math.pi)
    exact = deviation * (density + ratio * below)
    gains = np.array([ratio * deviation], dtype=np.float32)
    found = log_expected_improvement(gains, np.array([deviation], dtype=np.float32))
    assert abs(math.exp(float(found[0])) / exact - 1) < 0.12


def test_expected_improvement_never_underflows() -> None:
    gains = -np.logspace(0, 4, 50, dtype=np.float32)
    scores = log_expected_improvement(gains, np.ones(50, dtype=np.float32))
    assert np.isfinite(scores).all() and (np.diff(scores) < 0).all()
