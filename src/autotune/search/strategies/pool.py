"""Everything that one search looked at: distinct rows with their scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies.rows import Positions, Rows
from autotune.sketches import CandidateBatch

Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


class Pool:
    """Distinct rows and their scores. A row is scored once, when it is first added."""

    def __init__(self, score: Scorer, rows: Rows) -> None:
        self._score = score
        self._known: set[bytes] = set()
        self.rows = rows.select(np.zeros(len(rows), dtype=np.bool_))
        self.scores: NDArray[np.float64] = np.zeros(0)
        self.add(rows)

    def add(self, rows: Rows) -> None:
        """Add the rows that are not here yet."""
        fresh = rows.select(self._fresh(rows))
        if not len(fresh):
            return
        # A score that is not a number ranks last instead of spoiling every comparison.
        scores = np.asarray(self._score(fresh.batch()), dtype=np.float64)
        scores = np.where(np.isnan(scores), -np.inf, scores)
        pairs = zip(
            np.split(self.scores, self.rows.starts[1:-1]),
            np.split(scores, fresh.starts[1:-1]),
            strict=True,
        )
        self.scores = np.concatenate([part for pair in pairs for part in pair])
        self.rows = self.rows.joined(fresh)

    def _fresh(self, rows: Rows) -> NDArray[np.bool_]:
        fresh = np.ones(len(rows), dtype=np.bool_)
        for position, key in enumerate(rows.keys):
            if key in self._known:
                fresh[position] = False
            self._known.add(key)
        return fresh

    def ranking(self, rng: np.random.Generator) -> Positions:
        """Positions of all rows, best score first, in random order where scores are equal."""
        return np.lexsort((rng.random(len(self.scores)), -self.scores))
