"""Rows with a score each, and the best distinct ones of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.search.strategies import Rows
from autotune.sketches import CandidateBatch

__all__ = ["Asked", "Positions", "ScoredRows", "Scorer", "best_distinct"]

Positions = NDArray[np.int64]
Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


class Asked(Protocol):
    """What knows which rows were asked for."""

    def is_asked(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether each row was asked for; shape [n]."""


@frozen(eq=False)
class ScoredRows:
    """Rows, possibly with repetition, and a score each.

    Attributes:
        rows: The rows.
        scores: Their scores, [n]; minus infinity for what cannot be used.
    """

    rows: Rows
    scores: NDArray[np.float64]

    @staticmethod
    def of(rows: Rows, score: Scorer) -> ScoredRows:
        """Score rows. What gets no number gets minus infinity."""
        if not len(rows):
            return ScoredRows(rows, np.zeros(0))
        scores = np.asarray(score(rows.batch()), dtype=np.float64)
        return ScoredRows(rows, np.where(np.isnan(scores), -np.inf, scores))

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, positions: Positions) -> ScoredRows:
        """The rows at these positions, grouped by sketch in the order given."""
        owners = self.rows.owners[positions]
        grouped = positions[np.argsort(owners, kind="stable")]
        return ScoredRows(self.rows.select(positions), self.scores[grouped])

    def joined(self, other: ScoredRows) -> ScoredRows:
        """These rows followed, sketch by sketch, by the other ones."""
        return ScoredRows(
            self.rows.joined(other.rows), _interleaved(self.rows, self.scores, other)
        )


def _interleaved(
    rows: Rows, scores: NDArray[np.float64], other: ScoredRows
) -> NDArray[np.float64]:
    pairs = zip(
        np.split(scores, rows.starts[1:-1]),
        np.split(other.scores, other.rows.starts[1:-1]),
        strict=True,
    )
    return np.concatenate([part for pair in pairs for part in pair])


def best_distinct(
    scored: ScoredRows,
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
        for position, key in _unasked(scored.rows, order[start : start + step], history, columns):
            if key not in known:
                known.add(key)
                found.append(position)
                if len(found) == limit:
                    return np.array(found, dtype=np.int64)
    return np.array(found, dtype=np.int64)


def _unasked(
    rows: Rows,
    positions: Positions,
    history: Asked,
    columns: Sequence[NDArray[np.bool_]] | None,
) -> list[tuple[int, bytes]]:
    """Those of the positions that were not asked for, with what tells their rows apart."""
    chosen = rows.select(positions)
    asked = history.is_asked(chosen)
    if columns is not None:
        kept = (
            np.where(mask, matrix, 0)
            for mask, matrix in zip(columns, chosen.matrices, strict=True)
        )
        chosen = Rows(rows.sketches, tuple(kept))
    # Selected rows are grouped by sketch: this is where each of the positions went.
    places = np.argsort(np.argsort(rows.owners[positions], kind="stable"), kind="stable")
    keys = chosen.keys
    return [
        (position, keys[place])
        for position, place in zip(positions.tolist(), places.tolist(), strict=True)
        if not asked[place]
    ]
