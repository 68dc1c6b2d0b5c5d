"""Selection of parents and of picks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Matrix, Positions
from autotune_heron.options import ParentsOptions

__all__ = ["Pairs", "mates", "one_point_children", "pairs", "pairs_of", "roulette"]

Pairs = Iterator[tuple[int, Matrix, Matrix]]
"""Parents of the children of each sketch: its index, mothers [n, params], fathers [n, params]."""


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


def pairs(
    population: CandidateBatch,
    scores: NDArray[np.float64],
    options: ParentsOptions,
    rng: np.random.Generator,
) -> Pairs:
    """Pairs of parents that are drawn from a population by score, each of one sketch.

    Args:
        population: Rows, at least one.
        scores: Their scores [n].
        options: How many parents there are, drawn how, and how many pairs.
        rng: Where chance comes from.
    """
    parents = population
    if len(population) > options.parent_count:
        drawn = roulette(scores, options.parent_count, options.variant != "paper", rng)
        parents = population.select(drawn)
    return pairs_of(parents, options.children, rng)


def pairs_of(parents: CandidateBatch, n: int, rng: np.random.Generator) -> Pairs:
    """``n`` pairs of parents, each of one sketch; parents are drawn uniformly."""
    mothers, fathers = mates(parents.owners, n, rng)
    left, right = parents.select(mothers), parents.select(fathers)
    for index, (one, other) in enumerate(zip(left.matrices, right.matrices, strict=True)):
        if len(one):
            yield index, one, other


def one_point_children(
    mothers: Matrix,
    fathers: Matrix,
    values: Sequence[NDArray[np.int64]],
    rng: np.random.Generator,
) -> Matrix:
    """Make a child for each pair: the mother's first columns, the father's last, one gene new.

    Feasibility is not checked.

    Args:
        mothers: Rows [n, params].
        fathers: Rows [n, params].
        values: Values that each column may take, of which the new gene is one.
        rng: Where chance comes from.
    """
    n, width = mothers.shape
    cut = rng.integers(width + 1, size=n)
    children = np.where(np.arange(width) < cut[:, None], mothers, fathers)
    genes = rng.integers(width, size=(n,))
    for row, gene in enumerate(genes.tolist()):
        children[row, gene] = rng.choice(values[gene])
    return children
