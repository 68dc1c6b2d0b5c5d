"""Grid search: every candidate in the order of the space."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.plugins.options import NoOptions, read_options
from autotune.search.strategies.history import check_sketches
from autotune.search.strategies.strategy import (
    Strategy,
    StrategyContext,
    check_count,
    check_strategy,
)
from autotune.sketches import Candidate
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome


class GridStrategy(Strategy):
    """Proposes what :meth:`~autotune.spaces.SearchSpace.enumerate` yields, in that order.

    It draws no random numbers and learns nothing from outcomes.
    """

    name = "grid"

    def __init__(self, context: StrategyContext) -> None:
        """Raises InvalidValueError for any option: there are none."""
        read_options(f"strategy {self.name!r}", NoOptions, context.options)
        self._space: SearchSpace = context.space
        self._restart(0)

    def _restart(self, position: int) -> None:
        self._position = position
        self._rest: Iterator[Candidate] = itertools.islice(self._space.enumerate(), position, None)

    def ask(self, n: int) -> list[Candidate]:
        """The next ``n`` candidates, fewer at the end of the space."""
        check_count(n)
        chosen = list(itertools.islice(self._rest, n))
        self._position += len(chosen)
        return chosen

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Do nothing: the order is fixed."""

    def state(self) -> dict[str, Any]:
        """A JSON object with the number of candidates asked for."""
        digests = [sketch.spelling for sketch in self._space.sketches()]
        return {"strategy": self.name, "sketches": digests, "position": self._position}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy or space.
        """
        check_strategy(self.name, state)
        check_sketches(self._space.sketches(), state)
        self._restart(int(state["position"]))
