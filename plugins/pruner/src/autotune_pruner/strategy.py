"""The strategies ``pruner`` and ``moa-pruner``: draft with a pruning model, verify with a learned.

A round, as in Pruner (ASPLOS'25): the pruning model drafts a few hundred candidates, which serve
two rounds; the cost model ranks them and their variations; nine of ten picks are the
best of these, one is random.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.plugins import Context
from autotune.search.strategies import Pool, RecordedStrategy, ScoredBatch
from autotune.search.strategies.recorded import check_count
from autotune.search.strategies.sampling import spread
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import Positions
from autotune_pruner.best_distinct import best_distinct
from autotune_pruner.drafting import Drafter
from autotune_pruner.strategy_options import (
    MoAPrunerOptions,
    PrunerOptions,
    checked_strategy_options,
)
from autotune_pruner.variation import by_rank, mixed, mutated, roulette

__all__ = ["MoAPrunerStrategy", "PrunerStrategy"]

# Of the random picks of a round, so many times as many are drawn: some may be known already.
_SPARE_RANDOM = 3


class PrunerStrategy(RecordedStrategy):
    """Drafts with the pruning model of the run, and verifies with its cost model.

    Ours: the cost model ranks the draft, the best measured candidates' neighbours, and one
    generation of children of them all, ``population`` together. Published: it ranks the draft, a
    sample, the best measured candidates and one generation, whose parents are drawn by score.

    Until the cost model has learned from ``prior`` candidates of this task, the ranking of the
    pruning model counts beside its own; it decides alone where the cost model knows nothing.
    """

    name = "pruner"
    options_class: ClassVar[type[PrunerOptions]] = PrunerOptions

    def __init__(self, context: Context) -> None:
        """Raises InvalidValueError for an unknown option or value."""
        self.options = checked_strategy_options(self.name, self.options_class, context.options)
        super().__init__(context)
        self._drafter = Drafter(context.space, context.pruning_model, self.options, context.rng)
        self._round = 0
        self._drafts = self._drafter.nothing()

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, best first; fewer only when the space is used up."""
        check_count(n)
        if n == 0:
            return []
        # Rounded up or down at random, so that the share holds for small rounds too.
        greedy = n - int(self.options.epsilon * n + self._context.rng.random())
        if self.options.fidelity == "published":
            chosen = self._published_round(n, greedy)
        else:
            chosen = self._round_of_ours(n, greedy)
        self._round += 1
        return chosen + self._sampler.draw(n - len(chosen))

    def state(self) -> dict[str, Any]:
        """As every strategy that samples, plus the number of rounds and the draft."""
        return {
            **super().state(),
            "round": self._round,
            "drafts": [matrix.tolist() for matrix in self._drafts.batch.matrices],
            "draft_scores": self._drafts.scores.tolist(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        super().load_state(state)
        batch = CandidateBatch.of_rows(self._space.sketches(), state["drafts"])
        scores = np.array(state["draft_scores"], dtype=np.float64)
        self._round, self._drafts = int(state["round"]), ScoredBatch(batch, scores)

    def _is_due(self) -> bool:
        return self._round % self.options.refresh == 0

    def _measured(self) -> CandidateBatch:
        return self._history.best(int(self.options.population * self.options.measured_ratio))

    def _round_of_ours(self, n: int, greedy: int) -> list[Candidate]:
        """Picks by score of a round: those that sketches are owed, then the best."""
        left = len(self._drafts) - int(self._history.is_asked(self._drafts.batch).sum())
        if self._is_due() or left < self.options.heap * n:
            self._drafts = self._drafter.draft(self._drafts, self._history)
        pool = self._varied()
        scored = pool.scored
        order = self._ranking(pool)
        chosen = self._owed(scored, order, (greedy + 1) // 2)
        heap = best_distinct(scored, order, self.options.heap * n, self._history)
        rest = heap[~np.isin(heap, chosen)][: greedy - len(chosen)]
        picked = pool.batch.take(order[np.isin(order, [*chosen, *rest])].tolist())
        self._history.add(picked)
        return picked

    def _varied(self) -> Pool:
        """The best measured and their children, the draft, then generations of children."""
        options, measured = self.options, self._measured()
        litters = options.generations + (1 if len(measured) else 0)
        drafts = self._verified_drafts()
        room = max(0, options.population - len(drafts) - len(measured))
        children = room // max(1, litters)
        pool = Pool(self._context.cost_model.predict, measured)
        if len(measured):
            self._add_children(pool, children)
        pool.add(drafts)
        for _ in range(options.generations):
            if len(pool.batch):
                self._add_children(pool, children)
        return pool

    def _verified_drafts(self) -> CandidateBatch:
        """Drafts that this round ranks."""
        count = len(self._drafts)
        kept = self._context.rng.permutation(count)[: math.ceil(self.options.verified * count)]
        return self._drafts.batch.select(np.sort(kept))

    def _add_children(self, pool: Pool, n: int) -> None:
        if n:
            rng, options = self._context.rng, self.options
            parents = by_rank(self._ranking(pool)[: options.parents], n, rng)
            pool.add(
                mixed(
                    pool.batch,
                    parents,
                    options.crossover_probability,
                    options.mutation_probability,
                    self._space,
                    rng,
                )
            )

    def _ranking(self, pool: Pool) -> Positions:
        """All positions, best first: by both models' ranks, then at random."""
        weight = self.prior_weight()
        if len(pool.scores) and pool.scores.min() == pool.scores.max():
            weight = 1.0
        merit = (1.0 - weight) * _ranks(pool.scores)
        if weight:
            merit += weight * _ranks(ScoredBatch.of(pool.batch, self._drafter.score).scores)
        return np.lexsort((self._context.rng.random(len(merit)), -merit))

    def prior_weight(self) -> float:
        """Share of the pruning model in a ranking: ``prior_share`` at first, 0 in the end."""
        prior, share = self.options.prior, self.options.prior_share
        return share * (1.0 - len(self._history.best(prior)) / prior) if prior else 0.0

    def _owed(self, scored: ScoredBatch, order: Positions, n: int) -> list[int]:
        """Up to ``n`` positions from sketches that have not had their trials yet."""
        counts, queues = self._history.counts, []
        for count, own in zip(counts, scored.batch.by_part(order), strict=True):
            owed = max(0, self.options.sketch_trials - count)
            queues.append(best_distinct(scored, own, owed, self._history))
        return spread(counts, queues, n)

    def _published_round(self, n: int, greedy: int) -> list[Candidate]:
        """Picks of a round as published: the best by score, then random ones of the population."""
        options, context = self.options, self._context
        sample = context.space.sample(options.population, context.rng)
        sample = sample.over(context.space.sketches())
        if self._is_due():
            self._drafts = self._drafter.published(sample, self._history)
        others = sample + self._measured()
        # Where the cost model ties, what is drafted comes first, the best of it foremost.
        ties = self._drafts.joined(ScoredBatch(others, np.full(len(others), -np.inf)))
        population = ScoredBatch.of(ties.batch, context.cost_model.predict)
        scored, ties = self._evolved(population, ties)
        order = np.lexsort((context.rng.random(len(scored)), -ties.scores, -scored.scores))
        heap = best_distinct(scored, order, options.heap * n, self._history)
        chosen = scored.batch.take(heap[:greedy].tolist())
        self._history.add(chosen)
        spare = _SPARE_RANDOM * (n - greedy)
        drawn = context.rng.permutation(len(population))[:spare]
        found = best_distinct(population, drawn, n - len(chosen), self._history)
        others_picked = population.batch.take(found.tolist())
        self._history.add(others_picked)
        return chosen + others_picked

    def _evolved(
        self, population: ScoredBatch, ties: ScoredBatch
    ) -> tuple[ScoredBatch, ScoredBatch]:
        """The population and its generations with scores, and with what breaks ties."""
        options, context = self.options, self._context
        current, first = population, int(np.argmax(ties.scores)) if len(ties) else 0
        for _ in range(options.generations):
            if not len(current):
                break
            parents = roulette(current.scores, options.population, first, context.rng)
            rows = current.batch.select(parents)
            rows = mutated(rows, options.mutation_probability, context.space, context.rng)
            current, first = ScoredBatch.of(rows, context.cost_model.predict), 0
            population = population.joined(current)
            ties = ties.joined(ScoredBatch(rows, np.full(len(rows), -np.inf)))
        return population, ties


class MoAPrunerStrategy(PrunerStrategy):
    """``pruner`` for a cost model that was trained on other tasks: it ranks from the start."""

    name = "moa-pruner"
    options_class: ClassVar[type[PrunerOptions]] = MoAPrunerOptions


def _ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0 to 1, higher for higher scores; equal ones get the mean of their ranks."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    ranks = (last - (counts - 1) / 2)[inverse.reshape(scores.shape)]
    return np.asarray(ranks / max(1, len(scores) - 1), dtype=np.float64)
