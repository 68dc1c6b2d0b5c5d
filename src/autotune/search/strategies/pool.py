"""Batches with a score for each row, and all distinct rows that a search looked at."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions


class Pool:
    """Distinct rows and their scores. A row is scored once, when it is first added."""

    def __init__(self, score: Scorer, batch: CandidateBatch) -> None:
        self._score = score
        self._known: set[bytes] = set()
        self.scored = ScoredBatch.of(batch.select(np.zeros(len(batch), dtype=np.bool_)), score)
        self.add(batch)

    @property
    def batch(self) -> CandidateBatch:
        """The rows."""
        return self.scored.batch

    @property
    def scores(self) -> NDArray[np.float64]:
        """Their scores, [n]."""
        return self.scored.scores

    def scores_of(self, rows: CandidateBatch) -> NDArray[np.float64]:
        """Scores of rows that are here, [n]."""
        places = {key: place for place, key in enumerate(self.batch.keys)}
        return self.scores[np.array([places[key] for key in rows.keys], dtype=np.int64)]

    def add(self, batch: CandidateBatch) -> None:
        """Add the rows that are not here yet."""
        fresh = batch.select(self._fresh(batch))
        if len(fresh):
            self.scored = self.scored.joined(ScoredBatch.of(fresh, self._score))

    def _fresh(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        fresh = np.ones(len(batch), dtype=np.bool_)
        for position, key in enumerate(batch.keys):
            if key in self._known:
                fresh[position] = False
            self._known.add(key)
        return fresh

    def ranking(self, rng: np.random.Generator) -> Positions:
        """Positions of all rows, best score first, in random order where scores are equal."""
        return np.lexsort((rng.random(len(self.scores)), -self.scores))


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
