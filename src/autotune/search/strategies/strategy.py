"""The interface of a search strategy, and what it is given to work with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from autotune.models.cost.cost_model import CostModel
from autotune.models.pruning.pruning_model import PruningModel
from autotune.sketches import Candidate
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome


@frozen(eq=False)
class StrategyContext:
    """Everything a strategy may use: time, randomness and machine come from here only.

    ``options`` are the user's strategy options, already strings-to-numbers converted where
    they came from a command line; a strategy refuses those it does not know.

    A model may score all candidates the same, at first or from any moment on (one that fails in
    the middle of a run does): ties are best broken at random.
    """

    space: SearchSpace
    rng: np.random.Generator
    cost_model: CostModel
    pruning_model: PruningModel | None = None
    options: Mapping[str, Any] = field(factory=dict)


class Strategy(ABC):
    """Serves one task through ask and tell.

    Constructed as ``Strategy(context)``. Given the same outcomes, one seed gives the same
    candidates in any process.
    """

    name: str

    @abstractmethod
    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, never one that was asked before; none when exhausted."""

    @abstractmethod
    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Outcomes of asked candidates, in the order asked, possibly only some of them."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON object, the generator's state included, for :meth:`load_state`."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned, in a strategy made with an equal context."""
