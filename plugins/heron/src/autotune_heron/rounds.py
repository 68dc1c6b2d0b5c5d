"""A round of these strategies: sample, vary by generations, pick by score."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.search.strategies import Pool, RecordedStrategy, StrategyContext
from autotune.search.strategies.sampling import spread
from autotune.search.strategies.strategy import check_count
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import Matrix, Positions
from autotune.spaces import FeasibleSet
from autotune_heron.options import RoundOptions, checked_options
from autotune_heron.selection import roulette

__all__ = ["Offspring", "RoundStrategy"]

_LOG = logging.getLogger("autotune.search.strategies.heron")

_Options = TypeVar("_Options", bound=RoundOptions)


@define(eq=False)
class Offspring:
    """Children of one generation, and counts over them.

    Attributes:
        rows: Those of each sketch.
        children: How many were made.
        distinct: How many of them differ from each other and from all rows of the round before.
        like_a_parent: How many equal one of their parents.
        infeasible: How many were infeasible; those that were repaired count too.
        keys: Mean number of keys that a child shares with its parents; their sum while children
            are made.
        sampler_seconds: What making them took.
    """

    rows: list[list[NDArray[np.int64]]] = field(repr=False)
    children: int = 0
    distinct: int = 0
    like_a_parent: int = 0
    infeasible: int = 0
    keys: float = 0.0
    sampler_seconds: float = 0.0

    def note(
        self,
        sketch: int,
        children: Matrix,
        mothers: Matrix,
        fathers: Matrix,
        feasible: FeasibleSet,
    ) -> None:
        """Add children [n, params] of these parents, feasible or not."""
        self.rows[sketch] += list(children)
        self.children += len(children)
        self.infeasible += int((~feasible.contains(children)).sum())
        same = [(children == parents).all(axis=1) for parents in (mothers, fathers)]
        self.like_a_parent += int((same[0] | same[1]).sum())


class RoundStrategy(RecordedStrategy, Generic[_Options]):
    """Base of the strategies: they differ in how the children of a generation are made.

    A round: samples, the best measured candidates and what survived the round before are
    scored; the best of them are the population of the first generation. Each generation makes
    children, scores them, and continues with them and the best of all so far. Of all that was
    scored, most picks are the best, and the others are drawn by score.

    Until a candidate has a latency there are no generations. Then the pruning model scores
    samples, with equal shares of the sketches; as published they are taken as they come.

    Attributes:
        reports: What the generations of the last round brought forth.
    """

    options_class: ClassVar[type[RoundOptions]]

    def __init__(
        self, context: StrategyContext, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """``clock`` gives seconds, for reports only.

        Raises:
            InvalidValueError: an option or value is unknown, options contradict each other, or
                the space cannot say exactly what is feasible.
        """
        self.options: _Options = self._checked(context)
        super().__init__(context)
        self._clock = clock
        self._sketches = context.space.sketches()
        self._feasible: tuple[FeasibleSet, ...] = tuple(
            map(context.space.feasible_set, self._sketches)
        )
        self._values = tuple(map(_values_of, self._feasible))
        self._survivors = CandidateBatch(()).over(self._sketches)
        self.reports: list[Offspring] = []

    def _checked(self, context: StrategyContext) -> Any:
        return checked_options(self.name, self.options_class, context.options)

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, best first; fewer only when the space is used up."""
        check_count(n)
        if n == 0:
            return []
        self.reports = []
        if len(self._history.best(1)):
            chosen = self._bred(n)
        else:
            chosen = self._first(n)
        self._history.add(chosen)
        return chosen + self._sampler.draw(n - len(chosen))

    def state(self) -> dict[str, Any]:
        """Return the state of a sampling strategy, and the rows that survived the last round."""
        survivors = [matrix.tolist() for matrix in self._survivors.matrices]
        return {**super().state(), "survivors": survivors}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        super().load_state(state)
        self._survivors = CandidateBatch.of_rows(self._sketches, state["survivors"])

    def _none(self) -> Offspring:
        """Offspring to which children are added."""
        return Offspring([[] for _ in self._sketches])

    @abstractmethod
    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        """Children of a generation; ``population`` is not empty.

        What :meth:`_decoded` makes of it is in the pool.
        """

    def _decoded(self, rows: CandidateBatch) -> CandidateBatch:
        """Configurations scored in place of rows, row for row: by default the rows themselves."""
        return rows

    def _is_feasible(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        """Tell which rows may be measured, [n]; by default all, as no other is ever scored."""
        return np.ones(len(batch), dtype=np.bool_)

    def _next(
        self, pool: Pool, population: CandidateBatch, children: CandidateBatch
    ) -> CandidateBatch:
        """The population after a generation: by default its children and the best of all."""
        ranking = pool.ranking(self._context.rng)
        best = ranking[self._is_feasible(pool.batch)[ranking]]
        return children + pool.batch.select(best[: self.options.elite])

    def _sample(self, n: int) -> CandidateBatch:
        """Fresh rows: half stratified, or as published all uniform; sketches in equal shares."""
        rng = self._context.rng
        if self.options.is_ours:
            return self._space.sample(n, rng).over(self._sketches)
        owners = rng.permutation(n) % max(1, len(self._sketches))
        counts = np.bincount(owners, minlength=len(self._sketches)).tolist()
        seeds = rng.integers(2**63, size=len(self._sketches)).tolist()
        return CandidateBatch.of_rows(
            self._sketches,
            [
                feasible.uniform(count, seed) if feasible.count else []
                for feasible, count, seed in zip(self._feasible, counts, seeds, strict=True)
            ],
        )

    def _first(self, n: int) -> list[Candidate]:
        model = self._context.pruning_model
        if model is None or not self.options.is_ours:
            return []
        # As many rows as the cost model scores in a later round.
        looked_at = self.options.children * (self.options.generations + 1)
        pool = Pool(model.score, self._history.unseen(self._sample(looked_at)))
        ranking = pool.ranking(self._context.rng)
        chosen = spread(self._history.counts, pool.batch.by_part(ranking), n)
        return pool.batch.take(ranking[np.isin(ranking, chosen)].tolist())

    def _bred(self, n: int) -> list[Candidate]:
        """Picks of a round with generations."""
        options, rng = self.options, self._context.rng
        first = self._survivors + self._history.best(options.history)
        pool = Pool(self._context.cost_model.predict, first + self._sample(options.children))
        population = pool.batch.select(pool.ranking(rng)[: options.population])
        for _ in range(options.generations if len(population) else 0):
            population = self._generation(pool, population)
        survivors = self._decoded(population)
        survivors = survivors.select(self._is_feasible(survivors))
        self._survivors = pool.batch.select(_places(pool, survivors))
        return self._picked(pool, n)

    def _generation(self, pool: Pool, population: CandidateBatch) -> CandidateBatch:
        """The population after the next generation, whose children join the pool."""
        began = self._clock()
        offspring = self._children(pool, population)
        offspring.sampler_seconds = self._clock() - began
        offspring.keys /= max(1, offspring.children)
        children = CandidateBatch.of_rows(self._sketches, offspring.rows)
        before = len(pool.batch)
        pool.add(self._decoded(children))
        offspring.distinct = len(pool.batch) - before
        self.reports.append(offspring)
        _LOG.debug("%s: %s", self.name, offspring)
        return self._next(pool, population, children)

    def _picked(self, pool: Pool, n: int) -> list[Candidate]:
        """The best that were never asked for, some of them for their sketch, others by score."""
        options, rng = self.options, self._context.rng
        ranking = pool.ranking(rng)
        usable = self._is_feasible(pool.batch) & ~self._history.is_asked(pool.batch)
        unseen = ranking[usable[ranking]]
        # Rounded up or down at random, so that the share holds for small rounds too.
        greedy = min(n, int(options.greedy_share * n + rng.random()))
        chosen: list[int] = []
        if options.is_ours:
            counts = self._history.counts
            queues = pool.batch.by_part(unseen)
            owed = [
                queue[: max(0, options.sketch_trials - c)]
                for queue, c in zip(queues, counts, strict=True)
            ]
            chosen = spread(counts, owed, (greedy + 1) // 2)
        rest = unseen[~np.isin(unseen, chosen)]
        chosen += rest[: greedy - len(chosen)].tolist()
        rest = rest[~np.isin(rest, chosen)]
        drawn = roulette(pool.scores[rest], n - len(chosen), False, rng)
        return pool.batch.take([*chosen, *rest[drawn].tolist()])


def _places(pool: Pool, batch: CandidateBatch) -> Positions:
    """Positions in a pool of the rows that are in it, each once."""
    places = {key: place for place, key in enumerate(pool.batch.keys)}
    return np.array(sorted({places[key] for key in batch.keys}), dtype=np.int64)


def _values_of(feasible: FeasibleSet) -> tuple[NDArray[np.int64], ...]:
    """The feasible values of each parameter."""
    names = feasible.columns
    return tuple(np.array(feasible.values(name), dtype=np.int64) for name in names)
