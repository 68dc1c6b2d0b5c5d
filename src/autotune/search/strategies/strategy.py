"""The interface of a search strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from autotune.sketches import Candidate
from autotune.store.records import Outcome


class Strategy(ABC):
    """Serves one task through ask and tell.

    Constructed as ``Strategy(context)``. Given the same outcomes, one seed gives the same
    candidates in any process.
    """

    name: str

    @abstractmethod
    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, never one that was asked before; none when exhausted.

        Outcomes of earlier ones may still be missing: of the round before, or, where several
        machines measure, of any candidates.
        """

    @abstractmethod
    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Outcomes of asked candidates, possibly only some of them.

        They come in the order asked where one machine measures, and otherwise in the order in
        which they became known: the same order gives the same candidates.

        There may be others among them, of candidates that the run begins with; what is asked for
        of these is left out.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """A JSON object, the generator's state included, for :meth:`load_state`."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned, in a strategy made with an equal context."""
