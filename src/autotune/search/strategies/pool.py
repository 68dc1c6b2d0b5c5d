"""Everything that one search looked at: distinct rows with their scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions

Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


class Pool:
    """Distinct rows and their scores. A row is scored once, when it is first added."""

    def __init__(self, score: Scorer, batch: CandidateBatch) -> None:
        self._score = score
        self._known: set[bytes] = set()
        self.batch = batch.select(np.zeros(len(batch), dtype=np.bool_))
        self.scores: NDArray[np.float64] = np.zeros(0)
        self.add(batch)

    def add(self, batch: CandidateBatch) -> None:
        """Add the rows that are not here yet."""
        fresh = batch.select(self._fresh(batch))
        if not len(fresh):
            return
        # A score that is not a number ranks last instead of spoiling every comparison.
        scores = np.asarray(self._score(fresh.without_empty()), dtype=np.float64)
        scores = np.where(np.isnan(scores), -np.inf, scores)
        self.scores = self.batch.joined_values(self.scores, fresh, scores)
        self.batch = self.batch.joined(fresh)

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
