"""The history of a strategy: candidates asked for, and outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import row_key
from autotune.store.records import Outcome


class History:
    """The candidates a strategy asked for, and the outcomes.

    Observed candidates count as asked for, whichever strategy proposed them.
    """

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self.sketches = tuple(sketches)
        self._index = {sketch.digest: index for index, sketch in enumerate(self.sketches)}
        self._asked: list[list[tuple[int, ...]]] = [[] for _ in self.sketches]
        self._place: dict[bytes, int] = {}
        self._told: dict[tuple[int, int], float | None] = {}

    def __len__(self) -> int:
        return len(self._place)

    @property
    def counts(self) -> list[int]:
        """Number of candidates asked for, by sketch."""
        return [len(rows) for rows in self._asked]

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Note candidates as asked for."""
        for candidate in candidates:
            self._add(self.sketch_index(candidate.sketch), candidate.values)

    def _add(self, index: int, values: tuple[int, ...]) -> int:
        place = self._place.setdefault(row_key(index, values), len(self._asked[index]))
        if place == len(self._asked[index]):
            self._asked[index].append(values)
        return place

    def sketch_index(self, sketch: Sketch) -> int:
        """Number of a sketch among those of the space.

        Raises:
            InvalidValueError: it is not one of the space.
        """
        if sketch.digest not in self._index:
            raise InvalidValueError(f"sketch {sketch.name!r} is not one of this space")
        return self._index[sketch.digest]

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Note outcomes; the last one of a candidate counts.

        Raises:
            InvalidValueError: a candidate's sketch is not one of the space.
        """
        indices = [self.sketch_index(candidate.sketch) for candidate, _ in outcomes]
        for index, (candidate, outcome) in zip(indices, outcomes, strict=True):
            self._told[index, self._add(index, candidate.values)] = outcome.latency

    def knows(self, candidate: Candidate) -> bool:
        """Return whether the candidate was asked for."""
        return row_key(self.sketch_index(candidate.sketch), candidate.values) in self._place

    def is_asked(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        """Return whether each row was asked for; shape [n]."""
        return np.array([key in self._place for key in batch.keys], dtype=np.bool_)

    def unseen(self, batch: CandidateBatch) -> CandidateBatch:
        """The rows that were not asked for, each once, one part for each sketch of the space.

        Raises:
            InvalidValueError: the batch has a sketch that is not one of the space.
        """
        return batch.over(self.sketches).without(self._place)

    def best(self, n: int) -> CandidateBatch:
        """The ``n`` fastest rows that have a latency; the earlier first where equal."""
        valid = [(latency, place) for place, latency in self._told.items() if latency is not None]
        valid.sort(key=lambda item: item[0])
        found: list[list[tuple[int, ...]]] = [[] for _ in self.sketches]
        for _, (index, place) in valid[:n]:
            found[index].append(self._asked[index][place])
        return CandidateBatch.of_rows(self.sketches, found)

    def outcomes(self) -> list[tuple[int, tuple[int, ...], float | None]]:
        """Sketch, values and latency of what was told, in the order of the first outcome."""
        return [
            (index, self._asked[index][place], latency)
            for (index, place), latency in self._told.items()
        ]

    def pending(self) -> list[tuple[int, tuple[int, ...]]]:
        """Sketch and values of what was asked for and has no outcome, sketch by sketch."""
        return [
            (index, values)
            for index, rows in enumerate(self._asked)
            for place, values in enumerate(rows)
            if (index, place) not in self._told
        ]

    def state(self) -> dict[str, Any]:
        """A JSON object: rows asked by sketch; [sketch, row, latency] of outcomes, in order."""
        return {
            "sketches": [sketch.spelling for sketch in self.sketches],
            "asked": [[list(values) for values in rows] for rows in self._asked],
            "told": [[*place, latency] for place, latency in self._told.items()],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Become what :meth:`state` described.

        Raises:
            InvalidValueError: the state is of another space.
        """
        check_sketches(self.sketches, state)
        restored = History(self.sketches)
        for index, rows in enumerate(state["asked"]):
            for values in rows:
                restored._add(index, tuple(values))
        for index, place, latency in state["told"]:
            restored._told[index, place] = latency
        vars(self).update(vars(restored))


def check_sketches(sketches: Sequence[Sketch], state: dict[str, Any]) -> None:
    """Refuse a state whose ``"sketches"`` are not ``sketches``, spelled as they are.

    Raises:
        InvalidValueError: they differ.
    """
    digests = [sketch.spelling for sketch in sketches]
    if state["sketches"] != digests:
        raise InvalidValueError(
            f"the state is of a space with sketches {state['sketches']}, this one has {digests}"
        )
