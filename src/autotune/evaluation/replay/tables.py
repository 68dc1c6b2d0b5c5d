"""Search space with a recorded outcome for every candidate, for replay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.evaluation.replay.listed_space import listed_space
from autotune.evaluation.replay.recorded import RecordedSpace
from autotune.sketches import Candidate
from autotune.spaces import SearchSpace
from autotune.store.records import Outcome
from autotune.targets import Target

__all__ = ["OutcomeTable", "table_of"]

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
