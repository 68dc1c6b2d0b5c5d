from __future__ import annotations

import numpy as np
import pytest
from autotune_heron.strategies import importances


def test_a_parameter_that_decides_alone_has_all_of_the_variance() -> None:
    matrix = np.array([[a, b] for a in (1, 2, 4) for b in (1, 2, 4)])
    assert importances(matrix, np.log2(matrix[:, 0])) == pytest.approx([1.0, 0.0])


def test_the_stronger_of_two_parameters_is_more_important() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(1, 5, size=(400, 3))
    weak, strong, none = importances(matrix, matrix[:, 0] + 3.0 * matrix[:, 1])
    assert none < 0.05 < weak < strong
    assert (weak, strong) == pytest.approx((0.1, 0.9), abs=0.05)


def test_many_values_do_not_make_a_parameter_important() -> None:
    """Without the adjustment the mean of the first would be 99 / 299."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        matrix = np.column_stack([rng.integers(100, size=300), rng.integers(2, size=300)])
        found.append(importances(matrix, rng.normal(size=300)))
    assert np.mean(found, axis=0) == pytest.approx([0.0, 0.0], abs=0.05)


def test_what_says_nothing_is_not_important() -> None:
    rows = np.array([[1, 5, 7], [2, 5, 7], [3, 5, 8], [4, 5, 8]])
    scores = np.array([1.0, 2.0, 5.0, 6.0])
    distinct, constant, useful = importances(rows, scores)
    assert (distinct, constant) == (0.0, 0.0) and useful > 0.8
    assert not importances(rows, np.zeros(4)).any()
    assert not importances(rows[:2], scores[:2]).any()
    assert not importances(rows, np.full(4, -np.inf)).any()


def test_scores_that_are_not_finite_are_left_out() -> None:
    rows = np.array([[1], [1], [2], [2], [2]])
    scores = np.array([1.0, 1.0, 3.0, 3.0, -np.inf])
    assert importances(rows, scores) == pytest.approx([1.0])
