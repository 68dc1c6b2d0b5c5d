"""The strategies ``pruner`` and ``moa-pruner``: draft with a pruning model, verify with a learned.

A round, as in Pruner (ASPLOS'25): the pruning model drafts a few hundred candidates, which serve
two rounds; the cost model ranks them and their variations; nine of ten picks are the
best of these, one is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.expressions import IntExpr
from autotune.models.pruning import PruningModel
from autotune.plugins.options import option, read_options
from autotune.search.strategies import (
    History,
    Pool,
    RecordedStrategy,
    ScoredBatch,
    StrategyContext,
)
from autotune.search.strategies.sampling import spread, whole_space
from autotune.search.strategies.strategy import check_count
from autotune.sketches import Candidate, CandidateBatch, Sketch, Step, Stream, UnrollLimit
from autotune.sketches.candidates import Positions
from autotune.spaces import SearchSpace

# Where these are not given.
_PUBLISHED = {"population": 1536, "generations": 1}


@frozen
class PrunerOptions:
    """Options of ``pruner``; the defaults of what was published are the published ones.

    Attributes:
        fidelity: ``ours``; or ``published``: drafts by evolution from a sample, which the cost
            model then ranks together with all of that sample.
        drafts: Candidates that a draft keeps.
        draft_share: Share of what a draft looks at, best first, that it is drawn from, the better
            the likelier; 0 keeps the best. As published, 0.
        refresh: Rounds of a task that one draft serves.
        verified: Share of the draft that the cost model ranks in a round, drawn at random. As
            published, 1.
        configurations: Configurations that a draft looks at; all, where there are no more.
            As published, 3 populations.
        population: Candidates that the cost model ranks in a round, and of a generation of a
            draft. As published 1536, which is the size of every generation and of the sample.
        draft_generations: Generations of a draft, ranked by the pruning model.
        generations: Generations of a round, ranked by the cost model; as published 1.
        parents: Candidates, best first, that children of a round come from. As published, all.
        crossover_probability: Chance that a child mixes two parents; as published, none does.
        mutation_probability: Chance that a mixture (as published: a clone) is mutated.
        measured_ratio: Share of the population that the best measured candidates may take.
        epsilon: Share of a round that is picked at random.
        heap: Candidates kept by score for each one asked for, from which the round is picked.
            Ours renews a draft early that has fewer left.
        prior: Measured candidates after which only the cost model ranks. Until then the pruning
            model has a say that shrinks evenly. As published, it only breaks ties.
        prior_share: That say before anything was measured: 1 ranks by the pruning model alone.
        sketch_trials: Candidates that every sketch gets before only scores count; as published,
            none.
    """

    fidelity: str = option("ours", choices=("ours", "published"))
    drafts: int = option(512, low=1, high=100_000)
    draft_share: float = option(0.1, low=0.0, high=1.0)
    refresh: int = option(2, low=1)
    verified: float = option(0.5, low=0.0, high=1.0)
    configurations: int = option(100_000, low=1, high=10_000_000)
    population: int = option(1024, low=2, high=1_000_000)
    draft_generations: int = option(2, low=0, high=1000)
    generations: int = option(4, low=0, high=1000)
    parents: int = option(32, low=1, high=1_000_000)
    crossover_probability: float = option(0.3, low=0.0, high=1.0)
    mutation_probability: float = option(0.85, low=0.0, high=1.0)
    measured_ratio: float = option(0.1, low=0.0, high=1.0)
    epsilon: float = option(0.1, low=0.0, high=1.0)
    heap: int = option(2, low=1, high=1000)
    prior: int = option(200, low=0)
    prior_share: float = option(1.0, low=0.0, high=1.0)
    sketch_trials: int = option(3, low=0, high=1_000_000)


@frozen
class MoAPrunerOptions(PrunerOptions):
    """Options of ``moa-pruner``: those of ``pruner``.

    The cost model knows other tasks: it is worth as much as the pruning model at first.

    Attributes:
        prior_share: As for ``pruner``, but one half.
    """

    prior_share: float = option(0.5, low=0.0, high=1.0)


_Options = TypeVar("_Options", bound=PrunerOptions)


def checked_strategy_options(name: str, cls: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Options of a strategy, with the defaults of the fidelity asked for.

    Raises:
        InvalidValueError: an option is unknown, of the wrong type or out of its bounds.
        UnknownNameError: there is no such fidelity.
    """
    if given.get("fidelity") == "published":
        given = {**_PUBLISHED, **given}
    return read_options(f"strategy {name!r}", cls, given)


__all__ = [
    "Drafter",
    "MoAPrunerOptions",
    "MoAPrunerStrategy",
    "PrunerOptions",
    "PrunerStrategy",
    "best_distinct",
    "by_rank",
    "checked_strategy_options",
    "mixed",
    "mutated",
    "roulette",
    "tile_columns",
]

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

    def __init__(self, context: StrategyContext) -> None:
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
        """Return the state of a sampling strategy, the number of rounds, and the draft."""
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
        first = int(np.argmax(ties.scores)) if len(ties) else 0
        predict, count = self._context.cost_model.predict, self.options.generations
        for found in self._drafter.generations(population, first, count, predict):
            population = population.joined(found)
            ties = ties.joined(ScoredBatch(found.batch, np.full(len(found), -np.inf)))
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


_SORTED = 8

Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


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

    @cached_property
    def _everything(self) -> ScoredBatch | None:
        """All of a space that has no more than a draft looks at."""
        rows = whole_space(self._space, self._options.configurations)
        return None if rows is None else ScoredBatch.of(rows, self.score)

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
        looked_at = self._everything
        if looked_at is None:
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
        looked_at = first = ScoredBatch.of(sample, self.score)
        for found in self.generations(first, 0, options.draft_generations, self.score):
            looked_at = looked_at.joined(found)
        order = np.lexsort((rng.random(len(looked_at)), -looked_at.scores))
        return looked_at.select(best_distinct(looked_at, order, options.drafts, history))

    def generations(
        self, current: ScoredBatch, first: int, count: int, score: Scorer
    ) -> Iterator[ScoredBatch]:
        """Generations as published, each of clones of the one before, drawn by score and mutated.

        Args:
            current: The generation before the first.
            first: The position in it that is drawn where no score is positive.
            count: How many generations, while there are any rows.
            score: Scores them.
        """
        for _ in range(count if len(current) else 0):
            parents = roulette(current.scores, self._options.population, first, self._rng)
            rows = current.batch.select(parents)
            rows = mutated(rows, self._options.mutation_probability, self._space, self._rng)
            current, first = ScoredBatch.of(rows, score), 0
            yield current


# Steps of which PSA sees nothing.
_UNSEEN = (Stream, UnrollLimit)


def tile_columns(sketch: Sketch) -> NDArray[np.bool_]:
    """Tell which parameters say more than how far to unroll, or how to store; shape [params].

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


def best_distinct(
    scored: ScoredBatch,
    order: Positions,
    limit: int,
    history: History,
    columns: Sequence[NDArray[np.bool_]] | None = None,
) -> Positions:
    """The first rows in an order that are new and distinct.

    Args:
        scored: The rows.
        order: Positions, best first. Rows that score minus infinity are left out.
        limit: How many rows to find at most.
        history: Knows what was asked for.
        columns: For each sketch, the parameters in which rows must differ; None for all.

    Returns:
        Positions [m], m <= limit, in the order given.
    """
    order = order[np.isfinite(scored.scores[order])] if limit > 0 else order[:0]
    found: list[int] = []
    known: set[bytes] = set()
    step = max(2 * limit, 64)
    for start in range(0, len(order), step):
        positions = order[start : start + step]
        rows = scored.batch.select(positions)
        asked, keys = history.is_asked(rows), _compared(rows, columns).keys
        # Selected rows are grouped by sketch: this is where each of the positions went.
        owners = np.argsort(scored.batch.owners[positions], kind="stable")
        places = np.argsort(owners, kind="stable").tolist()
        for position, place in zip(positions.tolist(), places, strict=True):
            if len(found) < limit and not asked[place] and keys[place] not in known:
                known.add(keys[place])
                found.append(position)
        if len(found) == limit:
            break
    return np.array(found, dtype=np.int64)


def _compared(
    batch: CandidateBatch, columns: Sequence[NDArray[np.bool_]] | None
) -> CandidateBatch:
    """The rows with zeros in what does not tell them apart."""
    if columns is None:
        return batch
    parts = zip(columns, batch.parts, strict=True)
    return CandidateBatch(tuple((it, np.where(mask, rows, 0)) for mask, (it, rows) in parts))


def roulette(
    scores: NDArray[np.float64], n: int, first: int, rng: np.random.Generator
) -> Positions:
    """Positions of ``n`` parents, drawn in proportion to max(score, 0), as published.

    Args:
        scores: Scores [m].
        n: How many to draw.
        first: The position that is drawn where no score is positive: the published search finds
            the first of its population then.
        rng: Where chance comes from.
    """
    weights = np.where(np.isfinite(scores), np.maximum(scores, 0.0), 0.0)
    total = weights.sum()
    if not total > 0:
        return np.full(n, first, dtype=np.int64)
    found: Positions = rng.choice(len(weights), size=n, p=weights / total)
    return found


def by_rank(ranking: Positions, n: int, rng: np.random.Generator) -> Positions:
    """``n`` parents from a ranking, best first; the chance falls evenly with the rank."""
    weights = np.arange(len(ranking), 0, -1, dtype=np.float64)
    found: Positions = rng.choice(ranking, size=n, p=weights / weights.sum())
    return found


def mutated(
    batch: CandidateBatch, probability: float, space: SearchSpace, rng: np.random.Generator
) -> CandidateBatch:
    """Each row moved to a feasible one near it with this probability, else as it is."""
    moves = rng.random(len(batch)) < probability
    kept, moving = batch.select(~moves), batch.select(moves)
    if not len(moving):
        return kept
    return kept + space.neighbours(moving.without_empty(), rng)


def mixed(
    batch: CandidateBatch,
    parents: Positions,
    crossover: float,
    mutation: float,
    space: SearchSpace,
    rng: np.random.Generator,
) -> CandidateBatch:
    """A child for each parent, all inside the space.

    Args:
        batch: Where the parents are.
        parents: Their positions, [n].
        crossover: Chance that a child mixes its parent with another parent of its sketch.
        mutation: Chance that such a mixture is mutated too; other children always are.
        space: Mixes and mutates.
        rng: Where chance comes from.
    """
    mixes = rng.random(len(parents)) < crossover
    children = mutated(batch.select(parents[~mixes]), 1.0, space, rng)
    left = np.sort(parents[mixes])
    if not len(left):
        return children
    right = _mates(batch, left, parents, rng)
    mothers, fathers = batch.select(left).without_empty(), batch.select(right).without_empty()
    mixtures = space.crossover(mothers, fathers, rng).over(batch.sketches)
    return children + mutated(mixtures, mutation, space, rng)


def _mates(
    batch: CandidateBatch, left: Positions, parents: Positions, rng: np.random.Generator
) -> Positions:
    """For each position in ``left``, ascending, a parent of the same sketch."""
    owners, parent_owners = batch.owners[left], batch.owners[parents]
    mates = np.empty_like(left)
    for owner in np.unique(owners):
        places = owners == owner
        mates[places] = rng.choice(parents[parent_owners == owner], size=int(places.sum()))
    return mates
