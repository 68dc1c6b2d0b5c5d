"""Everything that one search looked at: distinct rows with their scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies.scored_batch import ScoredBatch, Scorer
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
