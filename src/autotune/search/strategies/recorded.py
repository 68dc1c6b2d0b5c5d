"""Base of strategies that sample and keep their history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.errors import InvalidValueError
from autotune.plugins import Context
from autotune.search.strategies.generator_state import generator_state, restore_generator
from autotune.search.strategies.history import History
from autotune.search.strategies.sampling import FreshSampler
from autotune.search.strategies.strategy import Strategy
from autotune.sketches import Candidate
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome


class RecordedStrategy(Strategy):
    """Base of strategies whose state is the generator, what they asked for and the outcomes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._space: SearchSpace = context.space
        self._history = History(context.space.sketches())
        self._sampler = FreshSampler(context.space, context.rng, self._history)

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Remember the outcomes.

        Raises:
            InvalidValueError: a candidate's sketch is not one of the space.
        """
        self._history.tell(outcomes)

    def state(self) -> dict[str, Any]:
        """A JSON object: the generator's state, what was asked by sketch, the outcomes."""
        return {
            "strategy": self.name,
            "rng": generator_state(self._context.rng),
            **self._history.state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        check_strategy(self.name, state)
        self._history.load_state(state)
        restore_generator(self._context.rng, state["rng"])


def check_strategy(name: str, state: dict[str, Any]) -> None:
    """Refuse the state of another strategy.

    Raises:
        InvalidValueError: ``state["strategy"]`` is not ``name``.
    """
    if state.get("strategy") != name:
        raise InvalidValueError(
            f"the state is of strategy {state.get('strategy')!r}, this one is {name!r}"
        )


def check_count(n: int) -> None:
    """Refuse a negative number of candidates.

    Raises:
        InvalidValueError: ``n`` is negative.
    """
    if n < 0:
        raise InvalidValueError(f"cannot ask for {n} candidates")
