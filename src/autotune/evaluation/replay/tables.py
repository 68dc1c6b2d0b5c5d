"""Search space with a recorded outcome for every candidate, for replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.recorded import RecordedSpace
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import Matrix
from autotune.spaces import SearchSpace
from autotune.spaces.parameters import Parameter, ParameterSpace, recorded_space
from autotune.store.records import Outcome
from autotune.targets import Target

__all__ = ["OutcomeTable", "listed_space", "table_of"]

Place = tuple[str, tuple[int, ...]]


@frozen(eq=False)
class OutcomeTable:
    """A search space whose candidates have all been measured.

    Attributes:
        name: What it is called.
        kernel: Of what kernel or workload; spaces of one kernel are alike.
        digest: Of everything in it that decides a replay.
        space: The candidates that there are, no others.
        outcomes: How each of them ended.
        costs: What evaluating each of them takes on the virtual clock, in seconds; [n].
        places: Number of each candidate, by digest of its sketch and values.
        recorded: The recorded space that it was made of, or None: other tuners can be replayed
            against that only.
        target: The machine that was measured, where it is known.
        has_nest: Whether candidates have symbolic loop nests.
        notes: What a person should know of the data.
    """

    name: str
    kernel: str
    digest: str
    space: SearchSpace
    outcomes: tuple[Outcome, ...]
    costs: NDArray[np.float64]
    places: Mapping[Place, int] = field(repr=False)
    recorded: RecordedSpace | None = None
    target: Target | None = None
    has_nest: bool = False
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.outcomes)

    def place(self, candidate: Candidate) -> int:
        """Number of a candidate.

        Raises:
            InvalidValueError: it was not measured.
        """
        found = self.places.get((candidate.sketch.digest, candidate.values))
        if found is None:
            raise InvalidValueError(
                f"{dict(candidate.config)} is no configuration of {self.name}, which was recorded"
            )
        return found

    @cached_property
    def seconds(self) -> NDArray[np.float64]:
        """Latency of each candidate, in seconds; infinite for those that failed; [n]."""
        found = [np.inf if it.latency is None else it.latency for it in self.outcomes]
        return np.array(found, dtype=np.float64)


def table_of(recorded: RecordedSpace) -> OutcomeTable:
    """The table of a recorded space; its search space has exactly the recorded configurations."""
    columns = np.empty_like(recorded.positions)
    for number, parameter in enumerate(recorded.parameters):
        codes = np.array([parameter.encode(value) for value in parameter.values], dtype=np.int64)
        columns[:, number] = codes[recorded.positions[:, number]]
    space = listed_space(recorded.kernel, recorded.parameters, columns)
    digest = space.sketch.digest
    outcomes = []
    for it in recorded.evaluations:
        timings = {"build": it.compiling, "run": it.running}
        message = "" if it.seconds is not None else "recorded"
        outcomes.append(Outcome(it.status, it.seconds, it.samples, timings, message))
    rows = map(tuple, columns.tolist())
    return OutcomeTable(
        recorded.name,
        recorded.kernel,
        recorded.digest,
        space,
        tuple(outcomes),
        recorded.costs,
        {(digest, row): number for number, row in enumerate(rows)},
        recorded,
        notes=recorded.notes,
    )


NEAREST = 10
_FIXED_POINT = 65536.0
_BELOW_ONE = 0.5


class ListedSpace(ParameterSpace):
    """A space of listed configurations that remembers what is near each of them.

    The moves are those of the feasible set, in which all parameters are one group: one of the ten
    nearest configurations, by the sum of differences of logarithms, drawn uniformly. To find them
    takes a look at the whole list, which one run after the other would repeat.
    """

    def __init__(self, space: ParameterSpace) -> None:
        feasible = space.feasible_set(space.sketch)
        super().__init__(space.sketch.workload, space.parameters, (), feasible)
        self._rows = feasible.listed(0, feasible.count)
        self._places = {row: place for place, row in enumerate(map(tuple, self._rows.tolist()))}
        logarithms = np.log2(np.maximum(self._rows, _BELOW_ONE))
        self._at = np.rint(logarithms * _FIXED_POINT).astype(np.int64)
        count = min(NEAREST, len(self._rows) - 1)
        self._near = np.full((len(self._rows), count), -1, dtype=np.int64)

    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        source = np.random.default_rng(int(rng.integers(2**64, dtype=np.uint64)))
        return CandidateBatch(
            tuple((sketch, self._moved(matrix, source)) for sketch, matrix in batch.parts)
        )

    def _moved(self, matrix: Matrix, rng: np.random.Generator) -> Matrix:
        moved: Matrix = matrix.copy()
        places = np.array([self._places.get(row, -1) for row in map(tuple, matrix.tolist())])
        inside = places >= 0
        count = self._near.shape[1]
        if not count or not inside.any():
            return moved
        for place in np.unique(places[inside]):
            if self._near[place, 0] < 0:
                self._near[place] = self._nearest(int(place))
        chosen = rng.integers(count, size=int(inside.sum()))
        moved[inside] = self._rows[self._near[places[inside], chosen]]
        return moved

    def _nearest(self, place: int) -> NDArray[np.int64]:
        """Numbers of the nearest rows other than this one; of equally near ones the first."""
        total, count = self._near.shape[0], self._near.shape[1]
        distances = np.abs(self._at - self._at[place]).sum(axis=1)
        # Numbers break ties, and are found again in the sum.
        keys = distances * total + np.arange(total)
        keys[place] = np.iinfo(np.int64).max
        nearest: NDArray[np.int64] = np.sort(np.partition(keys, count - 1)[:count]) % total
        return nearest


def listed_space(program: str, parameters: Sequence[Parameter], rows: Matrix) -> ListedSpace:
    """The space of these configurations, as of :func:`~autotune.spaces.parameters.recorded_space`.

    Raises:
        InvalidValueError: there is no row, one is there twice, or the shape is another.
    """
    return ListedSpace(recorded_space(program, parameters, rows))
