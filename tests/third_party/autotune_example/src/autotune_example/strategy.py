"""A strategy written against the public interfaces only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from autotune.errors import InvalidValueError
from autotune.plugins import Context
from autotune.search.strategies import Strategy
from autotune.sketches import Candidate, CandidateBatch
from autotune.store.records import Outcome


class CoordinateStrategy(Strategy):
    """Asks for neighbours of the best candidate so far; samples where it has none left.

    Options:
        tries: Neighbours drawn for each candidate asked for.
    """

    name = "example-coordinate"

    def __init__(self, context: Context) -> None:
        options = dict(context.options)
        self._tries = options.pop("tries", 4)
        if options or not isinstance(self._tries, int) or self._tries < 1:
            raise InvalidValueError(f"{self.name} takes 'tries', at least 1: {context.options}")
        self._space = context.space
        self._rng = context.rng
        self._seen: set[str] = set()
        self._best: tuple[float, Candidate] | None = None

    def ask(self, n: int) -> list[Candidate]:
        """Returns up to `n` new candidates; fewer only when the space is used up."""
        chosen: list[Candidate] = []
        for candidate in chain(self._near(n), self._space.sample(n, self._rng), self._rest()):
            if len(chosen) == n:
                break
            if candidate.digest not in self._seen:
                self._seen.add(candidate.digest)
                chosen.append(candidate)
        return chosen

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Takes the measured outcomes."""
        for candidate, outcome in outcomes:
            if outcome.latency is None:
                continue
            if self._best is None or outcome.latency < self._best[0]:
                self._best = (outcome.latency, candidate)

    def state(self) -> dict[str, Any]:
        """Returns a JSON object from which `load_state` continues."""
        return {
            "best": None if self._best is None else [self._best[0], self._best[1].to_json()],
            "seen": sorted(self._seen),
            "rng": self._rng.bit_generator.state,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continues from what `state` returned."""
        workload = self._space.sketches()[0].workload
        best = state["best"]
        self._best = best and (best[0], Candidate.from_json(best[1], workload))
        self._seen = set(state["seen"])
        self._rng.bit_generator.state = state["rng"]

    def _near(self, n: int) -> Iterable[Candidate]:
        if self._best is None:
            return ()
        batch = CandidateBatch.of([self._best[1]] * (n * self._tries))
        return self._space.neighbours(batch, self._rng)

    def _rest(self) -> Iterable[Candidate]:
        yield from self._space.enumerate()
