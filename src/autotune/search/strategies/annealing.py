"""Simulated annealing with restarts, and the graph of feasible moves that it walks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import asdict, evolve, frozen
from numpy.typing import NDArray

from autotune.plugins.options import option, read_options
from autotune.search.strategies.strategy import RecordedStrategy, StrategyContext, check_count
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.sketches.candidates import Matrix
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome

__all__ = ["AnnealingOptions", "AnnealingStrategy", "FeasibleMoves", "reference_rows"]

_REFERENCE = 2048
_JOINT = 16
"""Moves that the space itself proposes where parameters are so tied that fewer change alone."""
_MOST_VALUES = 32
"""Of one parameter that are tried: the nearest on both sides where it has more."""


def reference_rows(space: SearchSpace) -> CandidateBatch:
    """A sample of a space, one part for each sketch, the same in every run."""
    if not space.count():
        return CandidateBatch.of_rows(space.sketches(), [[] for _ in space.sketches()])
    size = max(_REFERENCE, 8 * len(space.sketches()))
    return space.sample(size, np.random.default_rng(0)).over(space.sketches())


class FeasibleMoves:
    """The configurations that differ from a given one in one parameter.

    Where there are few of these, moves that the space itself proposes are added.

    Args:
        space: Where they are feasible.
        reference: Rows of the space, one part for each sketch, whose values are tried.
    """

    def __init__(self, space: SearchSpace, reference: CandidateBatch) -> None:
        self._space = space
        self._sketches = reference.sketches
        self._values = [
            [np.unique(column) for column in matrix.T] for matrix in reference.matrices
        ]

    def around(self, sketch: int, row: Matrix, rng: np.random.Generator) -> CandidateBatch:
        """Feasible rows next to ``row``, [params], of the sketch with this number.

        A row may be there twice. At most 32 values of a parameter are tried, the nearest.
        """
        own: Sketch = self._sketches[sketch]
        changed = [row[:0].reshape(0, len(row))]
        for place, values in enumerate(self._values[sketch]):
            tried = _nearest(values, int(row[place]))
            rows = np.repeat(row[None], len(tried), axis=0)
            rows[:, place] = tried
            changed.append(rows)
        single = CandidateBatch(((own, np.concatenate(changed)),))
        single = single.select(self._space.contains(single)) if len(single) else single
        if len(single) >= _JOINT:
            return single
        joint = CandidateBatch(((own, np.repeat(row[None], _JOINT, axis=0)),))
        return single + self._space.neighbours(joint, rng)


def _nearest(values: NDArray[np.int64], value: int) -> NDArray[np.int64]:
    others: NDArray[np.int64] = values[values != value]
    if len(others) <= _MOST_VALUES:
        return others
    at = int(np.searchsorted(others, value))
    low = min(max(at - _MOST_VALUES // 2, 0), len(others) - _MOST_VALUES)
    near: NDArray[np.int64] = others[low : low + _MOST_VALUES]
    return near


@frozen
class AnnealingOptions:
    """Options of :class:`AnnealingStrategy`.

    Attributes:
        starts: Candidates that are sampled for each walk, which begins at the fastest.
        start_temperature: First temperature of a walk: where the latency grows by this share, a
            move is made with probability 1/e.
        end_temperature: The lowest temperature.
        cooling: Factor of the temperature after each move that was measured.
        patience: Moves without a gain after which another walk begins.
    """

    starts: int = option(8, low=1, high=1_000_000)
    start_temperature: float = option(0.02, low=1e-9, high=1e3)
    end_temperature: float = option(0.002, low=1e-9, high=1e3)
    cooling: float = option(0.98, low=1e-3, high=1.0)
    patience: int = option(40, low=1, high=1_000_000)


@frozen
class _Walk:
    """Position of a walk: at the fastest of its samples so far, then what it has moved to."""

    temperature: float
    sampled: int = 0
    idle: int = 0
    sketch: int = 0
    row: tuple[int, ...] | None = None
    latency: float | None = None


class AnnealingStrategy(RecordedStrategy):
    """Walks from the fastest of some samples to feasible neighbours, now and then to slower ones.

    A neighbour differs in one parameter, or, where parameters are tied, by a move of the space;
    none is asked for twice. A slower one is moved to with probability
    exp(-ln(new / old) / temperature) (Kirkpatrick, Gelatt, Vecchi 1983, of the logarithm of the
    latency); a failed one never. When no move has brought a gain for a while, or no neighbour is
    left, another walk begins elsewhere.
    """

    name = "annealing"

    def __init__(self, context: StrategyContext) -> None:
        """Raises InvalidValueError for an unknown option or value."""
        self.options = read_options(f"strategy {self.name!r}", AnnealingOptions, context.options)
        super().__init__(context)
        self._walk = _Walk(self.options.start_temperature)

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates; fewer only when the space is used up."""
        check_count(n)
        if n == 0:
            return []
        chosen = self._neighbours(n)
        if not chosen and self._is_walking:
            self._walk = _Walk(self.options.start_temperature)
        return chosen + self._sampler.draw(n - len(chosen))

    @property
    def _is_walking(self) -> bool:
        return self._walk.sampled >= self.options.starts and self._walk.row is not None

    @cached_property
    def _moves(self) -> FeasibleMoves:
        return FeasibleMoves(self._space, reference_rows(self._space))

    def _neighbours(self, n: int) -> list[Candidate]:
        if not self._is_walking:
            return []
        row = np.array(self._walk.row, dtype=np.int64)
        around = self._moves.around(self._walk.sketch, row, self._context.rng)
        fresh = self._history.unseen(around)
        chosen = fresh.take(self._context.rng.permutation(len(fresh))[:n])
        self._history.add(chosen)
        return chosen

    def tell(self, outcomes: Sequence[tuple[Candidate, Outcome]]) -> None:
        """Remember the outcomes, and move.

        Raises:
            InvalidValueError: a candidate's sketch is not one of the space.
        """
        super().tell(outcomes)
        for candidate, outcome in outcomes:
            if self._is_walking:
                self._step(candidate, outcome.latency)
            else:
                self._walk = evolve(self._walk, sampled=self._walk.sampled + 1)
                if self._gain(outcome.latency) > 0:
                    self._move(candidate, outcome.latency)

    def _step(self, candidate: Candidate, latency: float | None) -> None:
        gain, options = self._gain(latency), self.options
        if gain >= 0 or self._context.rng.random() < math.exp(gain / self._walk.temperature):
            self._move(candidate, latency)
        cooled = max(self._walk.temperature * options.cooling, options.end_temperature)
        idle = 0 if gain > 0 else self._walk.idle + 1
        self._walk = evolve(self._walk, temperature=cooled, idle=idle)
        if idle >= options.patience:
            self._walk = _Walk(options.start_temperature)

    def _gain(self, latency: float | None) -> float:
        """Logarithm of how many times as fast as the walk's place this is."""
        if latency is None:
            return -math.inf
        return math.inf if self._walk.latency is None else math.log(self._walk.latency / latency)

    def _move(self, candidate: Candidate, latency: float | None) -> None:
        sketch = self._history.sketch_index(candidate.sketch)
        self._walk = evolve(self._walk, sketch=sketch, row=candidate.values, latency=latency)

    def state(self) -> dict[str, Any]:
        """Return the state of other strategies, with the place of the walk."""
        return {**super().state(), "walk": asdict(self._walk)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        super().load_state(state)
        walk = dict(state["walk"])
        row = walk["row"]
        self._walk = _Walk(**{**walk, "row": None if row is None else tuple(row)})
