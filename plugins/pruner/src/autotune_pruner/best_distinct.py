"""The best rows of a scored batch that are distinct and new."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies import History, ScoredBatch
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions

__all__ = ["best_distinct"]


def best_distinct(
    scored: ScoredBatch,
    order: Positions,
    limit: int,
    history: History,
    columns: Sequence[NDArray[np.bool_]] | None = None,
) -> Positions:
    """The first rows in an order that are new and distinct.

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
    history: History,
    columns: Sequence[NDArray[np.bool_]] | None,
) -> list[tuple[int, bytes]]:
    """Positions that were not asked for, with what tells their rows apart."""
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
