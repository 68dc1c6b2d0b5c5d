"""Batches with a score for each row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions

__all__ = ["ScoredBatch", "Scorer"]

Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


@frozen(eq=False)
class ScoredBatch:
    """Rows, possibly with repetition, and a score each.

    Attributes:
        batch: The rows.
        scores: Their scores, [n]; minus infinity for what cannot be used.
    """

    batch: CandidateBatch
    scores: NDArray[np.float64]

    @staticmethod
    def of(batch: CandidateBatch, score: Scorer) -> ScoredBatch:
        """Score rows. What gets no number ranks last instead of spoiling every comparison."""
        if not len(batch):
            return ScoredBatch(batch, np.zeros(0))
        scores = np.asarray(score(batch.without_empty()), dtype=np.float64)
        return ScoredBatch(batch, np.where(np.isnan(scores), -np.inf, scores))

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, positions: Positions) -> ScoredBatch:
        """The rows at these positions, grouped by part in the order given."""
        grouped = np.concatenate([positions[:0], *self.batch.by_part(positions)])
        return ScoredBatch(self.batch.select(positions), self.scores[grouped])

    def joined(self, other: ScoredBatch) -> ScoredBatch:
        """These rows followed, part by part, by the other ones."""
        pairs = zip(
            np.split(self.scores, self.batch.starts[1:-1]),
            np.split(other.scores, other.batch.starts[1:-1]),
            strict=True,
        )
        scores = np.concatenate([part for pair in pairs for part in pair])
        return ScoredBatch(self.batch + other.batch, scores)
