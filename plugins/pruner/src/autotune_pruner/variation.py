"""Children of rows: selection of parents, crossover and mutation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions
from autotune.spaces import SearchSpace

__all__ = ["by_rank", "mixed", "mutated", "roulette"]


def roulette(
    scores: NDArray[np.float64], n: int, first: int, rng: np.random.Generator
) -> Positions:
    """Positions of ``n`` parents, drawn in proportion to max(score, 0), as published.

    Args:
        scores: Scores [m].
        n: How many to draw.
        first: The position that is drawn where no score is positive: the published search finds
            the first of its population then.
        rng: Where chance comes from.
    """
    weights = np.where(np.isfinite(scores), np.maximum(scores, 0.0), 0.0)
    total = weights.sum()
    if not total > 0:
        return np.full(n, first, dtype=np.int64)
    found: Positions = rng.choice(len(weights), size=n, p=weights / total)
    return found


def by_rank(ranking: Positions, n: int, rng: np.random.Generator) -> Positions:
    """``n`` parents from a ranking, best first; the chance falls evenly with the rank."""
    weights = np.arange(len(ranking), 0, -1, dtype=np.float64)
    found: Positions = rng.choice(ranking, size=n, p=weights / weights.sum())
    return found


def mutated(
    batch: CandidateBatch, probability: float, space: SearchSpace, rng: np.random.Generator
) -> CandidateBatch:
    """Each row moved to a feasible one near it with this probability, else as it is."""
    moves = rng.random(len(batch)) < probability
    kept, moving = batch.select(~moves), batch.select(moves)
    if not len(moving):
        return kept
    return kept + space.neighbours(moving.without_empty(), rng)


def mixed(
    batch: CandidateBatch,
    parents: Positions,
    crossover: float,
    mutation: float,
    space: SearchSpace,
    rng: np.random.Generator,
) -> CandidateBatch:
    """A child for each parent, all inside the space.

    Args:
        batch: Where the parents are.
        parents: Their positions, [n].
        crossover: Chance that a child mixes its parent with another parent of its sketch.
        mutation: Chance that such a mixture is mutated too; other children always are.
        space: Mixes and mutates.
        rng: Where chance comes from.
    """
    mixes = rng.random(len(parents)) < crossover
    children = mutated(batch.select(parents[~mixes]), 1.0, space, rng)
    left = np.sort(parents[mixes])
    if not len(left):
        return children
    right = _mates(batch, left, parents, rng)
    mothers, fathers = batch.select(left).without_empty(), batch.select(right).without_empty()
    mixtures = space.crossover(mothers, fathers, rng).over(batch.sketches)
    return children + mutated(mixtures, mutation, space, rng)


def _mates(
    batch: CandidateBatch, left: Positions, parents: Positions, rng: np.random.Generator
) -> Positions:
    """For each position in ``left``, ascending, a parent of the same sketch."""
    owners, parent_owners = batch.owners[left], batch.owners[parents]
    mates = np.empty_like(left)
    for owner in np.unique(owners):
        places = owners == owner
        mates[places] = rng.choice(parents[parent_owners == owner], size=int(places.sum()))
    return mates
