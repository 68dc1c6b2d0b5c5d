"""The interface of a search strategy, and the base of those that keep their history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.models.cost import CostModel
from autotune.models.pruning import PruningModel
from autotune.plugins import Context
from autotune.search.strategies.history import History
from autotune.search.strategies.sampling import FreshSampler
from autotune.sketches import Candidate
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome

_ABSENT: Any = None


@frozen(eq=False)
class StrategyContext(Context):
    """The context of a strategy.

    Attributes:
        space: The candidates.
        rng: The strategy's randomness.
        cost_model: May score all candidates the same, at first or from any moment on: ties are
            best broken at random. None where only a strategy is made that asks none.
        pruning_model: Likewise, or None.
    """

    space: SearchSpace
    rng: np.random.Generator
    cost_model: CostModel = _ABSENT
    pruning_model: PruningModel | None = None


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


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """A JSON object for :func:`restore_generator`; any of numpy's bit generators will do."""
    state: dict[str, Any] = _plain(rng.bit_generator.state)
    return state


def restore_generator(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Continue from what :func:`generator_state` returned.

    Raises:
        InvalidValueError: the state is of another bit generator.
    """
    own = rng.bit_generator.state["bit_generator"]
    if state.get("bit_generator") != own:
        raise InvalidValueError(
            f"the state is of generator {state.get('bit_generator')}, this one is {own}"
        )
    rng.bit_generator.state = _shaped(state, rng.bit_generator.state)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _shaped(value: Any, like: Any) -> Any:
    """``value`` with the array types of ``like``."""
    if isinstance(value, dict):
        return {key: _shaped(item, like[key]) for key, item in value.items()}
    return np.array(value, dtype=like.dtype) if isinstance(like, np.ndarray) else value


class RecordedStrategy(Strategy):
    """Base of strategies whose state is the generator, what they asked for and the outcomes."""

    def __init__(self, context: StrategyContext) -> None:
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
