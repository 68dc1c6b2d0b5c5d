"""``heron-idea``: the infeasibility driven evolutionary algorithm, an ablation of Heron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies import Pool
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Matrix, Positions
from autotune_heron.infeasible import InfeasibleRowsStrategy, mean_ranks
from autotune_heron.options import IdeaOptions, RoundOptions
from autotune_heron.rounds import Offspring
from autotune_heron.selection import mates

__all__ = [
    "HeronIdeaStrategy",
    "crowding",
    "fronts",
    "idea_order",
    "mutated",
    "simulated_binary",
    "snapped",
]

Reals = NDArray[np.float64]


def fronts(costs: Reals) -> list[Positions]:
    """Positions of rows in non-dominated fronts, the best front first (NSGA-II; Deb, 2002).

    Args:
        costs: [n, objectives], to be minimised.
    """
    no_worse = (costs[:, None] <= costs[None]).all(axis=2)
    dominates = no_worse & ~no_worse.T
    left = np.arange(len(costs))
    found = []
    while len(left):
        free = ~dominates[np.ix_(left, left)].any(axis=0)
        found.append(left[free])
        left = left[~free]
    return found


def crowding(costs: Reals) -> Reals:
    """Distance between the neighbours of each row of one front, summed over objectives, [n].

    Each objective is relative to its range; rows at an end of one are infinitely far apart.

    Args:
        costs: [n, objectives].
    """
    found = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        found[order[[0, -1]]] = np.inf
        extent = column[order[-1]] - column[order[0]]
        if extent > 0 and len(order) > 2:
            found[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / extent
    return found


def idea_order(scores: Reals, measures: Reals, infeasible_share: float, n: int) -> Positions:
    """The ``n`` rows that survive, best first: some infeasible ones, then feasible ones.

    Both sorts are ordered by fronts over score and violation, and the least crowded first within
    one. Where there are fewer of one sort than it may have, there are more of the other (Singh
    et al., SEAL 2008).

    Args:
        scores: [m], higher is better.
        measures: Measure of violation [m], 0 where feasible.
        infeasible_share: Share of ``n`` that is infeasible.
        n: How many survive.
    """
    costs = np.column_stack([-np.where(np.isfinite(scores), scores, -1e300), measures])
    sorted_of = []
    for places in (np.flatnonzero(measures > 0), np.flatnonzero(measures == 0)):
        parts = [places[:0]]
        for front in fronts(costs[places]):
            own = places[front]
            parts.append(own[np.argsort(-crowding(costs[own]), kind="stable")])
        sorted_of.append(np.concatenate(parts))
    infeasible, feasible = sorted_of
    wanted = math.floor(infeasible_share * n)
    count = min(len(infeasible), max(wanted, n - len(feasible)))
    return np.concatenate([infeasible[:count], feasible[: n - count]])


def simulated_binary(
    mothers: Reals, fathers: Reals, index: float, rng: np.random.Generator
) -> Reals:
    """Cross each pair by simulated binary crossover (Deb and Agrawal, 1995), [n, params].

    Each value lies on a random side of its parents' mean, at beta times half of their difference;
    beta is below 1 with a chance of one half.

    Args:
        mothers: [n, params].
        fathers: [n, params].
        index: The larger, the nearer beta is to 1.
        rng: Where chance comes from.
    """
    u = rng.random(mothers.shape)
    beta = np.where(u < 0.5, 2 * u, 1 / (2 * (1 - u))) ** (1 / (index + 1))
    side = np.where(rng.random(mothers.shape) < 0.5, 1.0, -1.0)
    return np.asarray((mothers + fathers) / 2 + side * beta * (mothers - fathers) / 2)


def mutated(
    rows: Reals, ranges: Reals, index: float, probability: float, rng: np.random.Generator
) -> Reals:
    """Values moved by polynomial mutation (Deb and Goyal, 1996), by less than their range.

    Args:
        rows: [n, params].
        ranges: Largest less least value of each parameter, [params].
        index: The larger, the shorter the moves.
        probability: Chance that a value is moved.
        rng: Where chance comes from.
    """
    u = rng.random(rows.shape)
    power = 1 / (index + 1)
    moves = np.where(u < 0.5, (2 * u) ** power - 1, 1 - (2 * (1 - u)) ** power)
    return np.where(rng.random(rows.shape) < probability, rows + moves * ranges, rows)


def snapped(rows: Reals, values: Sequence[NDArray[np.int64]]) -> Matrix:
    """Each value replaced by the nearest that its parameter may take, the smaller of two.

    Args:
        rows: [n, params].
        values: Values of each parameter, ascending.
    """
    found = np.empty(rows.shape, dtype=np.int64)
    for column, allowed in enumerate(values):
        middles = (allowed[1:] + allowed[:-1]) / 2
        found[:, column] = allowed[np.searchsorted(middles, rows[:, column], side="left")]
    return found


class HeronIdeaStrategy(InfeasibleRowsStrategy[IdeaOptions]):
    """Infeasibility driven evolutionary algorithm (IDEA): some infeasible rows always survive.

    The violation of constraints is a second objective. Parents win a tournament of two; children
    are made by simulated binary crossover and polynomial mutation, and take the nearest values
    that occur. Heron's own has other exponents in both, and takes violations for gains.
    """

    name = "heron-idea"
    options_class: ClassVar[type[RoundOptions]] = IdeaOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        options, rng = self.options, self._context.rng
        order = self._order(pool, population, len(population))
        winners = order[rng.integers(len(order), size=(2, options.children)).min(axis=0)]
        parents = population.select(winners)
        mothers, fathers = mates(parents.owners, options.children, rng)
        left, right = parents.select(mothers).matrices, parents.select(fathers).matrices
        offspring = self._none()
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            if not len(one):
                continue
            values = self._values[index]
            mother, father = one.astype(np.float64), other.astype(np.float64)
            mixed = simulated_binary(mother, father, options.crossover_index, rng)
            ranges = np.array([np.ptp(it) for it in values], dtype=np.float64)
            chance = options.mutation_probability
            mixed = mutated(mixed, ranges, options.mutation_index, chance, rng)
            self._note(offspring, index, snapped(mixed, values), one, other)
        return offspring

    def _next(
        self, pool: Pool, population: CandidateBatch, children: CandidateBatch
    ) -> CandidateBatch:
        everything = _distinct(population + children)
        return everything.select(self._order(pool, everything, self.options.population))

    def _order(self, pool: Pool, rows: CandidateBatch, n: int) -> Positions:
        measures = [mean_ranks(found) for found in self._residuals_of(rows)]
        return idea_order(
            pool.scores_of(rows),
            np.concatenate([np.zeros(0), *measures]),
            self.options.infeasible_share,
            n,
        )


def _distinct(batch: CandidateBatch) -> CandidateBatch:
    firsts = {key: place for place, key in reversed(list(enumerate(batch.keys)))}
    return batch.select(np.array(sorted(firsts.values()), dtype=np.int64))
