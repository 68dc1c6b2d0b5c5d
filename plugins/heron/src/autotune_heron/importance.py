"""Dependence of a cost model's scores on each parameter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.sketches.candidates import Matrix

__all__ = ["importances"]


def importances(matrix: Matrix, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the variance of scores that each parameter explains alone; [params], at most 1.

    Kelley's adjusted correlation ratio, 1 - (SSW / (n - values)) / (SST / (n - 1)) (PNAS 1935):
    its mean is 0 for an uninformative parameter, however many values it has. Any model will
    do, and only feasible rows are looked at: no parameter is changed alone.

    Args:
        matrix: Rows of one sketch [n, params].
        scores: Their scores [n]; those that are not finite are left out.

    Returns:
        0 too for a parameter with a single value, or as many values as rows, and where all
        scores are equal.
    """
    finite = np.isfinite(scores)
    matrix, scores = matrix[finite], scores[finite]
    result = np.zeros(matrix.shape[1])
    if len(scores) < 3 or scores.min() == scores.max():
        return result
    n, total = len(scores), float(((scores - scores.mean()) ** 2).sum())
    for column, values in enumerate(matrix.T):
        _, owners = np.unique(values, return_inverse=True)
        counts = np.bincount(owners)
        if 1 < len(counts) < n:
            means = np.bincount(owners, scores) / counts
            within = float(((scores - means[owners]) ** 2).sum())
            result[column] = max(0.0, 1.0 - (within / (n - len(counts))) / (total / (n - 1)))
    return result
