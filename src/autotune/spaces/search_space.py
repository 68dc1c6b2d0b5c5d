"""The interface of a search space: which candidates exist for a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.plugins import Context
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.feasible import FeasibleSet
from autotune.targets import Target


@frozen(eq=False, kw_only=True)
class SpaceContext(Context):
    """The context of a search space, and of the sketch rules that are named with it.

    Attributes:
        workload: What is computed.
        target: What programs are made for, with as many cores as they have threads.
        limits: What the backend can print or replay.
        backend: Its name.
        program: Text of the program that the backend has imported, or None.
    """

    workload: Workload
    target: Target
    limits: ScheduleLimits
    backend: str = ""
    program: str | None = None


class SearchSpace(ABC):
    """Candidates of one task: sketches, and sampling inside their constraints.

    Every method that proposes candidates stays inside the feasible set. ``version`` changes
    whenever the same seed would propose other candidates.

    Attributes:
        left_out: Sketches that were generated and are not part of the space: name and reason.
        loosened: Sources of soft constraints that were dropped, by the name of the sketch that
            has no configuration with them.
        notes: What a user should know of it, such as that the target lacks the instructions for a
            product. Sentences without a full stop.
        score_limit: Most candidates of a round that a strategy may ask a cost model about, since
            its features take a compiler; None for any number.
    """

    name: str
    version: str
    left_out: Mapping[str, str] = MappingProxyType({})
    loosened: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    notes: tuple[str, ...] = ()
    score_limit: int | None = None

    @abstractmethod
    def sketches(self) -> tuple[Sketch, ...]:
        """The sketches, in a fixed order."""

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        """``n`` feasible candidates, with repetition.

        Sketches get equal shares; within a sketch half are uniform over the feasible set and
        half stratified (uniform over the values of a random parameter first).
        """

    @abstractmethod
    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        """Draw a feasible candidate near each given one, row for row in the same sketches."""

    @abstractmethod
    def crossover(
        self, left: CandidateBatch, right: CandidateBatch, rng: np.random.Generator
    ) -> CandidateBatch:
        """Make a feasible mixture of each pair of rows; both batches have the same sketches.

        Where no feasible mixture is found the left row is returned.
        """

    @abstractmethod
    def contains(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        """Return whether each row satisfies every constraint, hard and soft; shape [n]."""

    @abstractmethod
    def count(self) -> int:
        """Number of feasible candidates over all sketches."""

    @abstractmethod
    def enumerate(self) -> Iterator[Candidate]:
        """Every feasible candidate once, in a fixed order that interleaves the sketches."""

    def feasible_set(self, sketch: Sketch) -> FeasibleSet:
        """The feasible configurations of a sketch, to be counted, listed, drawn and restricted.

        A space need not have this: one whose constraints only its compiler knows has not.

        Raises:
            InvalidValueError: this space has none, or the sketch is not one of this space.
        """
        raise InvalidValueError(
            f"search space {self.name!r} cannot say exactly which configurations of a sketch are "
            f"feasible; strategies that need it work in the built-in space 'sketch'"
        )
