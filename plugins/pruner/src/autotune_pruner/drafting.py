"""Drafts: the best of a space by a pruning model, before any learned model ranks them."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from autotune.ir.expressions import IntExpr
from autotune.models.pruning import PruningModel
from autotune.search.strategies import History, ScoredBatch
from autotune.search.strategies.sampling import spread
from autotune.sketches import CandidateBatch, Sketch, Step, Stream, UnrollLimit
from autotune.sketches.candidates import Positions
from autotune.spaces import SearchSpace
from autotune_pruner.best_distinct import best_distinct
from autotune_pruner.strategy_options import PrunerOptions
from autotune_pruner.variation import by_rank, mixed, mutated, roulette

__all__ = ["Drafter", "tile_columns"]

_SORTED = 8


class Drafter:
    """Searches for the best new candidates by a pruning model.

    Args:
        space: The space of a task.
        model: The pruning model; None for one that finds everything equally good.
        options: How much to look at, and how much to keep.
        rng: Where chance comes from.
    """

    def __init__(
        self,
        space: SearchSpace,
        model: PruningModel | None,
        options: PrunerOptions,
        rng: np.random.Generator,
    ) -> None:
        self._space = space
        self._sketches = space.sketches()
        self._model = model
        self._options = options
        self._rng = rng
        self._columns = [tile_columns(sketch) for sketch in self._sketches]
        self._everything: ScoredBatch | None = None

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of the pruning model, [n]."""
        return np.zeros(len(batch)) if self._model is None else self._model.score(batch)

    def nothing(self) -> ScoredBatch:
        """A draft without rows."""
        return ScoredBatch.of(CandidateBatch(()).over(self._sketches), self.score)

    def draft(self, kept: ScoredBatch, history: History) -> ScoredBatch:
        """Look at ``configurations`` rows, or at all of a space that has no more.

        Drawn from each sketch are rows of the best ``draft_share`` of what was looked at, the
        better the likelier: the few that a pruning model finds best are much alike, and often
        not the fastest. Half of the draft goes to the sketches in equal shares, the rest to the
        best of what was drawn. Rows that differ in limits on unrolling only are drafted once:
        PSA does not tell them apart.

        Args:
            kept: The draft before; what is good in it takes part.
            history: Knows what was asked for.
        """
        if self._space.count() <= self._options.configurations:
            if self._everything is None:
                self._everything = ScoredBatch.of(_all_rows(self._space), self.score)
            looked_at = self._everything
        else:
            looked_at = self._searched(kept, history)
        drawn = self._front(looked_at, history, self._options.draft_share)
        return drawn.select(self._shares(drawn))

    def _searched(self, kept: ScoredBatch, history: History) -> ScoredBatch:
        """A sample, and generations of children of the best."""
        options = self._options
        children = options.draft_generations * options.population
        sampled = max(options.population, options.configurations - children)
        sample = self._space.sample(sampled, self._rng).over(self._sketches)
        looked_at = kept.joined(ScoredBatch.of(sample, self.score))
        front = looked_at
        for _ in range(options.draft_generations):
            front = self._front(front, history, 0.0)
            if not len(front):
                break
            rows = mixed(
                front.batch,
                by_rank(self._shares(front), options.population, self._rng),
                options.crossover_probability,
                options.mutation_probability,
                self._space,
                self._rng,
            )
            found = ScoredBatch.of(rows, self.score)
            front, looked_at = front.joined(found), looked_at.joined(found)
        return looked_at

    def _front(self, scored: ScoredBatch, history: History, share: float) -> ScoredBatch:
        """Of each sketch as many rows as a draft may take from one.

        Args:
            scored: The rows.
            history: Knows what was asked for.
            share: Share of a sketch's rows, best first, that they are drawn from; where that is
                less than is wanted, the best.
        """
        limit = self._options.drafts
        queues = []
        for index in range(len(self._sketches)):
            positions = scored.batch.positions_of(index)
            enough = int(share * len(positions))
            if enough > limit:
                positions = self._drawn(positions, scored.scores[positions], enough)
                found = best_distinct(scored, positions, limit, history, self._columns)
            else:
                found = self._best(scored, positions, limit, history)
            queues.append(found)
        return scored.select(np.concatenate([np.zeros(0, dtype=np.int64), *queues]))

    def _drawn(self, positions: Positions, scores: NDArray[np.float64], n: int) -> Positions:
        """The ``n`` best in random order, the better the sooner; the chance falls evenly."""
        shuffled = self._rng.permutation(len(positions))
        best = shuffled[np.argsort(-scores[shuffled], kind="stable")[:n]]
        # The order of exponential times with these rates is that of draws without return.
        times = self._rng.exponential(size=n) / np.arange(n, 0, -1)
        return np.asarray(positions[best[np.argsort(times)]], dtype=np.int64)

    def _shares(self, front: ScoredBatch) -> Positions:
        """Positions of a draft, best first: half of it in equal shares of the sketches."""
        limit = self._options.drafts
        ranking = np.lexsort((self._rng.random(len(front)), -front.scores))
        queues = front.batch.by_part(ranking)
        shared = np.isin(ranking, spread([0] * len(queues), queues, limit // 2))
        rest = np.cumsum(~shared) <= limit - shared.sum()
        return np.asarray(ranking[shared | rest], dtype=np.int64)

    def _best(
        self, scored: ScoredBatch, positions: Positions, limit: int, history: History
    ) -> Positions:
        """Select the best distinct rows, best first, in random order where equal."""
        shuffled = self._rng.permutation(positions)
        costs = -scored.scores[shuffled]
        enough = _SORTED * limit
        if len(shuffled) > enough:
            # Seldom is more needed than the first few, so the others are not put in order.
            front = np.argpartition(costs, enough)[:enough]
            order = shuffled[front[np.argsort(costs[front], kind="stable")]]
            found = best_distinct(scored, order, limit, history, self._columns)
            if len(found) == limit:
                return found
        order = shuffled[np.argsort(costs, kind="stable")]
        return best_distinct(scored, order, limit, history, self._columns)

    def published(self, sample: CandidateBatch, history: History) -> ScoredBatch:
        """Evolve a sample by roulette and mutation, as published; no sketch has a share.

        Rows that differ in limits on unrolling only are drafted each.

        Args:
            sample: The first generation.
            history: Knows what was asked for.
        """
        options, rng = self._options, self._rng
        looked_at = current = ScoredBatch.of(sample, self.score)
        for _ in range(options.draft_generations):
            if not len(current):
                break
            parents = roulette(current.scores, options.population, 0, rng)
            rows = current.batch.select(parents)
            rows = mutated(rows, options.mutation_probability, self._space, rng)
            current = ScoredBatch.of(rows, self.score)
            looked_at = looked_at.joined(current)
        order = np.lexsort((rng.random(len(looked_at)), -looked_at.scores))
        return looked_at.select(best_distinct(looked_at, order, options.drafts, history))


# Steps of which PSA sees nothing.
_UNSEEN = (Stream, UnrollLimit)


def tile_columns(sketch: Sketch) -> NDArray[np.bool_]:
    """Which parameters say more than how far to unroll, or how to store; shape [params].

    PSA gives rows that differ in the others only one score.
    """
    limits, others = set[str](), set[str]()
    for step in sketch.steps:
        (limits if isinstance(step, _UNSEEN) else others).update(_variables(step))
    return np.array([name not in limits - others for name in sketch.param_names], dtype=np.bool_)


def _variables(step: Step) -> set[str]:
    names = set[str]()
    for value in attrs.astuple(step, recurse=False):
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, IntExpr):
                names |= item.variables
    return names


def _all_rows(space: SearchSpace) -> CandidateBatch:
    """All rows of a space, each sketch's in the order of their enumeration."""
    feasible_sets = [(sketch, space.feasible_set(sketch)) for sketch in space.sketches()]
    return CandidateBatch(
        tuple((sketch, feasible.listed(0, feasible.count)) for sketch, feasible in feasible_sets)
    )
