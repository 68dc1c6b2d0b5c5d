"""A strategy written against the public interfaces only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CoordinateStrategy:
    """Asks for neighbours of the best candidate so far, each different in one parameter.

    Args:
        space: The search space of the task.
        rng: The source of randomness.
        step: How many neighbours are asked for at once, at most.
    """

    def __init__(self, space: Any, rng: Any, *, step: int = 8) -> None:
        self._space = space
        self._rng = rng
        self._step = step
        self._best: tuple[float, Any] | None = None

    def ask(self, n: int) -> list[Any]:
        """Returns at most `n` candidates."""
        if self._best is None:
            return [self._space.default()]
        return [self._space.neighbour(self._best[1], self._rng) for _ in range(min(n, self._step))]

    def tell(self, outcomes: Sequence[tuple[Any, Any]]) -> None:
        """Takes the measured outcomes."""
        for candidate, outcome in outcomes:
            if outcome.latency is None:
                continue
            if self._best is None or outcome.latency < self._best[0]:
                self._best = (outcome.latency, candidate)
