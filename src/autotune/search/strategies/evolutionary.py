"""Evolutionary search inside the feasible set, guided by the cost model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.plugins.options import option, read_options
from autotune.search.strategies.sampling import spread
from autotune.search.strategies.strategy import RecordedStrategy, StrategyContext, check_count
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import Positions


class Pool:
    """Distinct rows and their scores. A row is scored once, when it is first added."""

    def __init__(self, score: Scorer, batch: CandidateBatch) -> None:
        self._score = score
        self._known: set[bytes] = set()
        self.scored = ScoredBatch.of(batch.select(np.zeros(len(batch), dtype=np.bool_)), score)
        self.add(batch)

    @property
    def batch(self) -> CandidateBatch:
        """The rows."""
        return self.scored.batch

    @property
    def scores(self) -> NDArray[np.float64]:
        """Their scores, [n]."""
        return self.scored.scores

    def scores_of(self, rows: CandidateBatch) -> NDArray[np.float64]:
        """Scores of rows that are here, [n]."""
        places = {key: place for place, key in enumerate(self.batch.keys)}
        return self.scores[np.array([places[key] for key in rows.keys], dtype=np.int64)]

    def add(self, batch: CandidateBatch) -> None:
        """Add the rows that are not here yet."""
        fresh = batch.without(self._known)
        self._known.update(fresh.keys)
        if len(fresh):
            self.scored = self.scored.joined(ScoredBatch.of(fresh, self._score))

    def ranking(self, rng: np.random.Generator) -> Positions:
        """Positions of all rows, best score first, in random order where scores are equal."""
        return np.lexsort((rng.random(len(self.scores)), -self.scores))


Scorer = Callable[[CandidateBatch], NDArray[np.float64]]


@frozen(eq=False)
class ScoredBatch:
    """Rows, possibly with repetition, and a score each.

    Attributes:
        batch: The rows.
        scores: Their scores, [n]; minus infinity for what cannot be used.
    """

    batch: CandidateBatch
    scores: NDArray[np.float64]

    @staticmethod
    def of(batch: CandidateBatch, score: Scorer) -> ScoredBatch:
        """Score rows. What gets no number ranks last instead of spoiling every comparison."""
        if not len(batch):
            return ScoredBatch(batch, np.zeros(0))
        scores = np.asarray(score(batch.without_empty()), dtype=np.float64)
        return ScoredBatch(batch, np.where(np.isnan(scores), -np.inf, scores))

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, positions: Positions) -> ScoredBatch:
        """The rows at these positions, grouped by part in the order given."""
        grouped = np.concatenate([positions[:0], *self.batch.by_part(positions)])
        return ScoredBatch(self.batch.select(positions), self.scores[grouped])

    def joined(self, other: ScoredBatch) -> ScoredBatch:
        """Join these rows, part by part, with the other ones."""
        pairs = zip(
            np.split(self.scores, self.batch.starts[1:-1]),
            np.split(other.scores, other.batch.starts[1:-1]),
            strict=True,
        )
        scores = np.concatenate([part for pair in pairs for part in pair])
        return ScoredBatch(self.batch + other.batch, scores)


@frozen
class EvolutionaryOptions:
    """Options of :class:`EvolutionaryStrategy`.

    Attributes:
        epsilon: Share of each round that is sampled at random instead of picked by score.
        population: Rows that a generation has at most. Fewer where the space limits how many
            candidates of a round are scored.
        generations: How often the population is varied in a round.
        parents: ``rank``: all rows of the round so far, the better the likelier; or ``score``: the
            last generation, each in proportion to its score where that is positive, as in Ansor.
        crossover_probability: Chance that a child is a mixture of two parents.
        mutation_probability: Chance that such a mixture is mutated too; a child of one parent
            always is, but with ``parents=score``, where it is so by the same chance.
        elite_share: Share of the first population that the best measured candidates may take.
        sketch_trials: Candidates that every sketch gets before only scores count.
    """

    epsilon: float = option(0.1, low=0.0, high=1.0)
    population: int = option(512, low=2, high=1_000_000)
    generations: int = option(4, low=0, high=1000)
    parents: str = option("rank", choices=("rank", "score"))
    crossover_probability: float = option(0.3, low=0.0, high=1.0)
    mutation_probability: float = option(0.85, low=0.0, high=1.0)
    elite_share: float = option(0.125, low=0.0, high=1.0)
    sketch_trials: int = option(3, low=0, high=1_000_000)


class EvolutionaryStrategy(RecordedStrategy):
    """Varies the best measured candidates and fresh samples, and asks for what scores best.

    A round: the population starts with the best measured candidates and a sample of the
    space; each generation takes parents by rank of their predicted score, mixes and mutates
    them with the space's own feasible moves, and the best of old and new survive (with
    ``parents=score`` only the new ones do). Asked for are
    the best rows seen in all generations that were never asked for before, after each sketch
    had ``sketch_trials``; a share ``epsilon`` is sampled at random.

    Until a candidate has a latency the cost model has nothing to say: then samples are ranked
    by the pruning model, with equal shares per sketch, or taken as they come where there is
    none. Outcomes reach the cost model through its owner, not through this strategy.
    """

    name = "evolutionary"

    def __init__(self, context: StrategyContext) -> None:
        """Raises InvalidValueError for an unknown option or value."""
        self.options = read_options(
            f"strategy {self.name!r}", EvolutionaryOptions, context.options
        )
        super().__init__(context)
        self._population, limit = self.options.population, self._space.score_limit
        if limit is not None:
            # Each generation adds as many rows as the first one has.
            most = max(2, limit // (1 + self.options.generations))
            self._population = min(self._population, most)

    def ask(self, n: int) -> list[Candidate]:
        """Up to ``n`` new candidates, best score first; fewer only when the space is used up."""
        check_count(n)
        if n == 0:
            return []
        greedy = n - self._random_picks(n)
        elites = self._history.best(int(self._population * self.options.elite_share) or 1)
        if len(elites):
            chosen = self._evolved(elites, greedy)
        else:
            chosen = self._drafted(greedy)
        self._history.add(chosen)
        return chosen + self._sampler.draw(n - len(chosen))

    def _random_picks(self, n: int) -> int:
        # Rounded up or down at random, so that the share holds for small rounds too.
        return int(self.options.epsilon * n + self._context.rng.random())

    def _drafted(self, n: int) -> list[Candidate]:
        model = self._context.pruning_model
        if model is None:
            return []
        pool = Pool(model.score, self._sampler.sample(self._population))
        ranking = pool.ranking(self._context.rng)
        queues = pool.batch.by_part(ranking)
        chosen = spread(self._history.counts, queues, n)
        return pool.batch.take(ranking[np.isin(ranking, chosen)].tolist())

    def _evolved(self, elites: CandidateBatch, n: int) -> list[Candidate]:
        options = self.options
        fresh = self._sampler.sample(self._population - len(elites))
        pool = Pool(self._context.cost_model.predict, elites + fresh)
        if options.parents == "score":
            self._add_generations(pool)
        else:
            for _ in range(options.generations):
                pool.add(self._children_by_rank(pool))
        ranking = pool.ranking(self._context.rng)
        unseen = ranking[~self._history.is_asked(pool.batch)[ranking]]
        queues = pool.batch.by_part(unseen)
        chosen = self._owed(queues, (n + 1) // 2)
        rest = unseen[~np.isin(unseen, chosen)]
        return pool.batch.take([*chosen, *rest[: n - len(chosen)].tolist()])

    def _owed(self, queues: list[Positions], n: int) -> list[int]:
        """Up to ``n`` positions from sketches that have not had their trials yet."""
        counts = self._history.counts
        owed = [max(0, self.options.sketch_trials - count) for count in counts]
        return spread(counts, [queue[:most] for queue, most in zip(queues, owed, strict=True)], n)

    def _add_generations(self, pool: Pool) -> None:
        """Add generations of which each has parents of the last one only, drawn by score."""
        generation = pool.scored
        for _ in range(self.options.generations if len(generation) else 0):
            weights = np.where(
                np.isfinite(generation.scores), np.maximum(generation.scores, 0.0), 0.0
            )
            if not weights.any():
                weights[:] = 1.0
            everything = np.arange(len(weights))
            mutation = self.options.mutation_probability
            children = self._children(generation.batch, everything, weights, mutation)
            pool.add(children)
            generation = ScoredBatch(children, pool.scores_of(children))

    def _children_by_rank(self, pool: Pool) -> CandidateBatch:
        """Children of the best rows so far, the better of them the likelier."""
        alive = pool.ranking(self._context.rng)[: self._population]
        weights = np.arange(len(alive), 0, -1, dtype=np.float64)
        return self._children(pool.batch, alive, weights, 1.0)

    def _children(
        self,
        batch: CandidateBatch,
        alive: Positions,
        weights: NDArray[np.float64],
        mutation: float,
    ) -> CandidateBatch:
        """Make a feasible child for each place in the population.

        Args:
            batch: Where the parents are.
            alive: Their positions, [n].
            weights: In proportion to the chance of each, [n].
            mutation: Chance that a child of one parent is mutated.
        """
        rng, space, options = self._context.rng, self._space, self.options
        drawn = rng.choice(len(alive), size=self._population, p=weights / weights.sum())
        mixed = rng.random(self._population) < options.crossover_probability
        left = np.sort(alive[drawn[mixed]])
        children = batch.select(alive[drawn[~mixed]])
        done = children.select(np.zeros(len(children), dtype=np.bool_))
        if mutation < 1.0:
            moves = rng.random(len(children)) < mutation
            done, children = children.select(~moves), children.select(moves)
        if len(left):
            right = self._mates(batch, left, alive, weights)
            mothers, fathers = batch.select(left), batch.select(right)
            mixtures = space.crossover(mothers.without_empty(), fathers.without_empty(), rng)
            mixtures = mixtures.over(batch.sketches)
            again = rng.random(len(mixtures)) < options.mutation_probability
            done += mixtures.select(~again)
            children += mixtures.select(again)
        if len(children):
            done += space.neighbours(children.without_empty(), rng)
        return done

    def _mates(
        self,
        batch: CandidateBatch,
        left: Positions,
        alive: Positions,
        weights: NDArray[np.float64],
    ) -> Positions:
        """For each position in ``left``, ascending, one of the same sketch drawn by weight."""
        owners, alive_owners = batch.owners[left], batch.owners[alive]
        mates = np.empty_like(left)
        for owner in np.unique(owners):
            places, own = owners == owner, alive_owners == owner
            chances = weights[own] / weights[own].sum()
            mates[places] = self._context.rng.choice(alive[own], size=places.sum(), p=chances)
        return mates
