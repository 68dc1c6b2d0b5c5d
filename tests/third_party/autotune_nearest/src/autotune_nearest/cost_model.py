"""A cost model written against the public interfaces only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.cost import CostModel
from autotune.plugins import Context
from autotune.sketches import Candidate, CandidateBatch
from autotune.store.records import Outcome


class NearestNeighbour(CostModel):
    """Scores a candidate like the measured one of its sketch that has the most similar values.

    The score is one over seconds, and 0 for failures and where nothing of the sketch is known.
    """

    name = "nearest"

    def __init__(self, context: Context) -> None:
        self._known: dict[str, list[tuple[list[int], float]]] = {}

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Returns scores of shape [n]."""
        parts = [np.zeros(0)]
        for sketch, matrix in batch.parts:
            known = self._known.get(sketch.digest, [])
            parts.append(_nearest(matrix, known) if known else np.zeros(len(matrix)))
        return np.concatenate(parts)

    def update(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Remembers outcomes."""
        for candidate, outcome in outcomes:
            score = 0.0 if outcome.latency is None else 1.0 / outcome.latency
            values = [int(value) for value in candidate.values]
            self._known.setdefault(candidate.sketch.digest, []).append((values, score))

    def state(self) -> dict[str, Any]:
        """Returns a JSON object from which `load_state` continues."""
        known = {
            digest: [[list(values), score] for values, score in rows]
            for digest, rows in self._known.items()
        }
        return {"model": self.name, "known": known}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues from what `state` returned."""
        if state.get("model") != self.name:
            raise InvalidValueError(f"the state is of cost model {state.get('model')!r}")
        self._known = {
            digest: [(list(values), float(score)) for values, score in rows]
            for digest, rows in state["known"].items()
        }


def _nearest(
    matrix: NDArray[np.int64], known: list[tuple[list[int], float]]
) -> NDArray[np.float64]:
    """The score of the nearest known row, by logarithms of the values; shape [n]."""
    rows = np.log1p(np.array([values for values, _ in known], dtype=np.float64))
    scores = np.array([score for _, score in known])
    distances = ((np.log1p(matrix)[:, None, :] - rows[None]) ** 2).sum(axis=2)
    found: NDArray[np.float64] = scores[distances.argmin(axis=1)]
    return found
