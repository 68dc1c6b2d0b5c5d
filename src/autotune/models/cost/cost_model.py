"""The interface of a cost (verify) model: a score learned from outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.sketches import Candidate, CandidateBatch
from autotune.store.records import Outcome

Observation = tuple[Candidate, Outcome]
"""A candidate and its outcome: what cost models learn from."""


class CostModel(ABC):
    """Predicts which candidates are fast. Owned by the tuner and shared by its tasks.

    A model is deterministic: the same updates in the same order give the same predictions.
    """

    name: str

    unused_packages: ClassVar[tuple[str, ...]] = ()
    """Packages that a library of this model imports where they are installed, and that the model
    has no use for.

    In the process of the models they cannot be imported during :meth:`warm_up`.
    """

    def warm_up(self) -> None:  # noqa: B027
        """Load what learning needs, such as a library; called in the background, at most once.

        Raises:
            AutotuneError: something is missing, and the user can do something about it.
        """

    @abstractmethod
    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better. Defined before the first update too."""

    @abstractmethod
    def update(self, outcomes: Sequence[Observation]) -> None:
        """Learn from new outcomes, failures included.

        What is logged as a warning to the logger ``autotune.models.cost`` meanwhile is shown to
        the user.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON object from which :meth:`load_state` restores the model, also when untrained."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
