"""The interface of a cost model that can be trained before a run, and kept in a file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from attrs import frozen

from autotune.models.cost.cost_model import CostModel
from autotune.sketches import Candidate
from autotune.store.records import Outcome

__all__ = ["TrainableCostModel", "TrainingGroup"]


@frozen(eq=False)
class TrainingGroup:
    """Outcomes of one task, whose latencies compare with each other and with no other group's.

    Attributes:
        name: What a person calls the task.
        workload: Digest of its workload.
        outcomes: Distinct candidates and their outcomes, failures included.
    """

    name: str
    workload: str
    outcomes: tuple[tuple[Candidate, Outcome], ...]

    @property
    def is_informative(self) -> bool:
        """True if there is anything to learn: some candidate has a latency."""
        return any(outcome.ok for _, outcome in self.outcomes)


class TrainableCostModel(CostModel):
    """A cost model that learns from recorded data of many tasks before it is used.

    A run that begins with such a model in a file updates it with its own outcomes. What
    :meth:`state` returns need not hold the weights of the file: it is loaded into a model that
    has loaded the same file, and should be refused by any other.
    """

    @abstractmethod
    def fit(self, groups: Sequence[TrainingGroup]) -> Mapping[str, float]:
        """Learn from scratch; what was learned before, from updates too, is forgotten.

        Where no group is informative, nothing changes.

        Returns:
            What is worth knowing of the training, such as its loss; empty where nothing changed.
        """

    @abstractmethod
    def save(self, stream: BinaryIO) -> None:
        """Write what decides the predictions, also of a model that has learned nothing.

        The file says which model it is of and which version its features have, and holds nothing
        that would be executed when it is read; see :func:`autotune.models.cost.write_model`.
        """

    @abstractmethod
    def load(self, stream: BinaryIO) -> None:
        """Become what :meth:`save` wrote; updates continue from there.

        Raises:
            InvalidValueError: the file is damaged, of another model, or its features have
                another version, which is named together with the own one.
        """
