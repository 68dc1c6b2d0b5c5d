"""Configurations of a whole space as one matrix per sketch, and what was asked and told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidate import Matrix
from autotune.store.records import Outcome

Positions = NDArray[np.int64]


@frozen(eq=False)
class Rows:
    """One int64 matrix [n_s, params_s] for each sketch s of a space, empty ones included.

    Positions count rows over the sketches in order.
    """

    sketches: tuple[Sketch, ...]
    matrices: tuple[Matrix, ...]

    @staticmethod
    def of(sketches: tuple[Sketch, ...], batch: CandidateBatch) -> Rows:
        """The rows of a batch.

        Raises:
            InvalidValueError: the batch has a sketch that is not among ``sketches``.
        """
        index = {sketch.digest: position for position, sketch in enumerate(sketches)}
        found: list[list[Matrix]] = [[] for _ in sketches]
        for sketch, matrix in batch.parts:
            if sketch.digest not in index:
                raise InvalidValueError(f"sketch {sketch.name!r} is not one of this space")
            found[index[sketch.digest]].append(matrix)
        return Rows(sketches, tuple(map(_stack, sketches, found)))

    def __len__(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def starts(self) -> Positions:
        """Position of the first row of each sketch, then the number of rows."""
        return np.cumsum([0, *map(len, self.matrices)], dtype=np.int64)

    @cached_property
    def owners(self) -> Positions:
        """Index of the sketch of each row; shape [n]."""
        return np.repeat(np.arange(len(self.sketches)), np.diff(self.starts))

    @cached_property
    def keys(self) -> list[bytes]:
        """Bytes of (index of the sketch, values) of each row: equal for equal rows only."""
        keys: list[bytes] = []
        for index, matrix in enumerate(self.matrices):
            indexed = np.full((len(matrix), matrix.shape[1] + 1), index, dtype=np.int64)
            indexed[:, 1:] = matrix
            keys += indexed.view(np.dtype((np.void, indexed.shape[1] * 8))).ravel().tolist()
        return keys

    def positions_of(self, sketch: int) -> Positions:
        """Positions of the rows of one sketch."""
        return np.arange(self.starts[sketch], self.starts[sketch + 1])

    def select(self, positions: Positions | NDArray[np.bool_]) -> Rows:
        """The rows at the given positions or where the mask is true, grouped by sketch.

        Within a sketch they keep the order given; a position may occur more than once.
        """
        if positions.dtype == np.bool_:
            positions = np.flatnonzero(positions)
        owners = self.owners[positions]
        return Rows(
            self.sketches,
            tuple(
                matrix[positions[owners == index] - self.starts[index]]
                for index, matrix in enumerate(self.matrices)
            ),
        )

    def joined(self, other: Rows) -> Rows:
        """These rows followed, sketch by sketch, by the other ones."""
        pairs = zip(self.matrices, other.matrices, strict=True)
        return Rows(self.sketches, tuple(np.concatenate(pair) for pair in pairs))

    def batch(self) -> CandidateBatch:
        """The rows as a batch, without the sketches that have none."""
        parts = zip(self.sketches, self.matrices, strict=True)
        return CandidateBatch(tuple(part for part in parts if len(part[1])))

    def candidates(self, positions: Iterable[int]) -> list[Candidate]:
        """The candidates at the given positions, in the order given."""
        result = []
        for position in positions:
            index = int(self.owners[position])
            row = self.matrices[index][position - self.starts[index]]
            result.append(Candidate(self.sketches[index], tuple(row.tolist())))
        return result


def _stack(sketch: Sketch, matrices: list[Matrix]) -> Matrix:
    if len(matrices) == 1:
        return matrices[0]
    empty = np.zeros((0, len(sketch.params)), dtype=np.int64)
    return np.concatenate([empty, *matrices])


def _key(index: int, values: tuple[int, ...]) -> bytes:
    """What :attr:`Rows.keys` has for this row."""
    return np.array([index, *values], dtype=np.int64).tobytes()


class History:
    """What a strategy asked for and what it was told.

    Candidates that it is told about without having asked count as asked: they are known.
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
            self._add(self._sketch_index(candidate.sketch), candidate.values)

    def _add(self, index: int, values: tuple[int, ...]) -> int:
        place = self._place.setdefault(_key(index, values), len(self._asked[index]))
        if place == len(self._asked[index]):
            self._asked[index].append(values)
        return place

    def _sketch_index(self, sketch: Sketch) -> int:
        if sketch.digest not in self._index:
            raise InvalidValueError(f"sketch {sketch.name!r} is not one of this space")
        return self._index[sketch.digest]

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Note outcomes; the last one told of a candidate counts.

        Raises:
            InvalidValueError: a candidate's sketch is not one of the space.
        """
        indices = [self._sketch_index(candidate.sketch) for candidate, _ in outcomes]
        for index, (candidate, outcome) in zip(indices, outcomes, strict=True):
            self._told[index, self._add(index, candidate.values)] = outcome.latency

    def knows(self, candidate: Candidate) -> bool:
        """Whether the candidate was asked for."""
        return _key(self._sketch_index(candidate.sketch), candidate.values) in self._place

    def is_asked(self, rows: Rows) -> NDArray[np.bool_]:
        """Whether each row was asked for; shape [n]."""
        return np.array([key in self._place for key in rows.keys], dtype=np.bool_)

    def unseen(self, rows: Rows) -> Rows:
        """The rows that were not asked for, each once, in order."""
        fresh = np.ones(len(rows), dtype=np.bool_)
        seen = set()
        for position, key in enumerate(rows.keys):
            if key in self._place or key in seen:
                fresh[position] = False
            seen.add(key)
        return rows.select(fresh)

    def best(self, n: int) -> Rows:
        """The ``n`` fastest rows that have a latency; the earlier told first where equal."""
        valid = [(latency, place) for place, latency in self._told.items() if latency is not None]
        valid.sort(key=lambda item: item[0])
        found: list[list[tuple[int, ...]]] = [[] for _ in self.sketches]
        for _, (index, place) in valid[:n]:
            found[index].append(self._asked[index][place])
        return Rows(
            self.sketches,
            tuple(
                np.array(rows, dtype=np.int64).reshape(len(rows), len(sketch.params))
                for sketch, rows in zip(self.sketches, found, strict=True)
            ),
        )

    def state(self) -> dict[str, Any]:
        """A JSON object: rows asked by sketch; [sketch, row, latency] told, in order."""
        return {
            "sketches": [sketch.digest for sketch in self.sketches],
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
    """Refuse a state whose ``"sketches"`` are not the digests of ``sketches``.

    Raises:
        InvalidValueError: they differ.
    """
    digests = [sketch.digest for sketch in sketches]
    if state["sketches"] != digests:
        raise InvalidValueError(
            f"the state is of a space with sketches {state['sketches']}, this one has {digests}"
        )
