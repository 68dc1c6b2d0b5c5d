"""Batches with a score for each row, and the best distinct rows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions

__all__ = ["Asked", "ScoredBatch", "Scorer", "best_distinct"]

Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


class Asked(Protocol):
    """What knows which rows were asked for."""

    def is_asked(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        """Whether each row was asked for; shape [n]."""


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
        """Score rows. What gets no number gets minus infinity."""
        if not len(batch):
            return ScoredBatch(batch, np.zeros(0))
        scores = np.asarray(score(batch.without_empty()), dtype=np.float64)
        return ScoredBatch(batch, np.where(np.isnan(scores), -np.inf, scores))

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, positions: Positions) -> ScoredBatch:
        """The rows at these positions, grouped by sketch in the order given."""
        owners = self.batch.owners[positions]
        grouped = positions[np.argsort(owners, kind="stable")]
        return ScoredBatch(self.batch.select(positions), self.scores[grouped])

    def joined(self, other: ScoredBatch) -> ScoredBatch:
        """These rows followed, sketch by sketch, by the other ones."""
        scores = self.batch.joined_values(self.scores, other.batch, other.scores)
        return ScoredBatch(self.batch.joined(other.batch), scores)


def best_distinct(
    scored: ScoredBatch,
    order: Positions,
    limit: int,
    history: Asked,
    columns: Sequence[NDArray[np.bool_]] | None = None,
) -> Positions:
    """The first rows in an order that were never asked for and differ from each other.

    Args:
        scored: The rows.
        order: Positions, best first. Rows that score minus infinity are left out.
        limit: How many rows to find at most.
        history: Knows what was asked for.
        columns: For each sketch, the parameters in which rows must differ; None for all.

    Returns:
        Positions [m], m <= limit, in the order given.
    """
    order = order[np.isfinite(scored.scores[order])] if limit > 0 else order[:0]
    found: list[int] = []
    known: set[bytes] = set()
    step = max(2 * limit, 64)
    for start in range(0, len(order), step):
        for position, key in _unasked(scored.batch, order[start : start + step], history, columns):
            if key not in known:
                known.add(key)
                found.append(position)
                if len(found) == limit:
                    return np.array(found, dtype=np.int64)
    return np.array(found, dtype=np.int64)


def _unasked(
    batch: CandidateBatch,
    positions: Positions,
    history: Asked,
    columns: Sequence[NDArray[np.bool_]] | None,
) -> list[tuple[int, bytes]]:
    """Those of the positions that were not asked for, with what tells their rows apart."""
    chosen = batch.select(positions)
    asked = history.is_asked(chosen)
    if columns is not None:
        chosen = CandidateBatch(
            tuple(
                (sketch, np.where(mask, matrix, 0))
                for mask, (sketch, matrix) in zip(columns, chosen.parts, strict=True)
            )
        )
    # Selected rows are grouped by sketch: this is where each of the positions went.
    places = np.argsort(np.argsort(batch.owners[positions], kind="stable"), kind="stable")
    keys = chosen.keys
    return [
        (position, keys[place])
        for position, place in zip(positions.tolist(), places.tolist(), strict=True)
        if not asked[place]
    ]
