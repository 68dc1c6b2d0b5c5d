"""Selection of parents and of picks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.sketches.candidates import Positions

__all__ = ["mates", "roulette"]


def roulette(
    scores: NDArray[np.float64], n: int, replace: bool, rng: np.random.Generator
) -> Positions:
    """``n`` positions, each with a chance in proportion to its score above the lowest one.

    Args:
        scores: Scores [m]; what is not finite counts as the lowest that is.
        n: How many to draw; without replacement at most m are.
        replace: Whether a position may be drawn again.
        rng: Where chance comes from.
    """
    n = n if replace else min(n, len(scores))
    if not n or not len(scores):
        return np.zeros(0, dtype=np.int64)
    finite = np.isfinite(scores)
    low = scores[finite].min() if finite.any() else 0.0
    weights = np.where(finite, scores, low) - low
    # As published, so that the lowest one has a chance too; scaled, so that it stays above zero.
    weights = weights / (weights.max() or 1.0) + 1e-9
    found: Positions = rng.choice(len(scores), size=n, replace=replace, p=weights / weights.sum())
    return found


def mates(
    owners: NDArray[np.int64], n: int, rng: np.random.Generator
) -> tuple[Positions, Positions]:
    """``n`` pairs of parents of the same sketch, each drawn uniformly; they may coincide.

    Args:
        owners: Sketch of each parent [m], m > 0.
        n: How many pairs.
        rng: Where chance comes from.

    Returns:
        Places of mothers, and of fathers, grouped by sketch.
    """
    drawn = rng.integers(len(owners), size=n)
    mothers = drawn[np.argsort(owners[drawn], kind="stable")]
    fathers = np.empty_like(mothers)
    for owner in np.unique(owners[mothers]):
        places = owners[mothers] == owner
        fathers[places] = rng.choice(np.flatnonzero(owners == owner), size=int(places.sum()))
    return mothers, fathers
