"""``heron-srga``: a genetic algorithm with stochastic ranking, an ablation of Heron."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies import Pool
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Positions
from autotune_heron.infeasible import InfeasibleRowsStrategy
from autotune_heron.options import RoundOptions, StochasticRankingOptions
from autotune_heron.rounds import Offspring
from autotune_heron.selection import one_point_children, pairs_of

__all__ = ["HeronStochasticRankingStrategy", "stochastic_ranking"]


def stochastic_ranking(
    scores: NDArray[np.float64],
    violations: NDArray[np.float64],
    score_chance: float,
    sweeps: int,
    rng: np.random.Generator,
) -> Positions:
    """A ranking that balances score and feasibility by chance (Runarsson and Yao, 2000).

    Neighbours are swapped, sweep by sweep, until nothing changes: by score where both are
    feasible or with ``score_chance``, otherwise by violation.

    Args:
        scores: [n], higher is better.
        violations: [n], 0 where feasible.
        score_chance: Chance of a comparison by score where one of two is infeasible.
        sweeps: Most sweeps.
        rng: Where chance comes from.

    Returns:
        Positions [n], best first.
    """
    order = list(range(len(scores)))
    for _ in range(sweeps):
        by_score = (rng.random(max(0, len(order) - 1)) < score_chance).tolist()
        is_sorted = True
        for place, blind in enumerate(by_score):
            one, other = order[place], order[place + 1]
            if blind or violations[one] == violations[other] == 0:
                swap = scores[one] < scores[other]
            else:
                swap = violations[one] > violations[other]
            if swap:
                order[place], order[place + 1], is_sorted = other, one, False
        if is_sorted:
            break
    return np.array(order, dtype=np.int64)


class HeronStochasticRankingStrategy(InfeasibleRowsStrategy[StochasticRankingOptions]):
    """Genetic algorithm with stochastic ranking (SRGA): infeasible rows are parents as well.

    Parents are drawn without replacement, the likelier the higher they are ranked; children are
    those of ``heron-ga``. Heron's own has residuals of inequalities with the wrong sign, which
    reward violations; this one has not.
    """

    name = "heron-srga"
    options_class: ClassVar[type[RoundOptions]] = StochasticRankingOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        options, rng = self.options, self._context.rng
        ranking = stochastic_ranking(
            pool.scores_of(population),
            self._violations(population),
            options.score_chance,
            options.sweeps,
            rng,
        )
        weights = np.arange(len(ranking), 0, -1, dtype=np.float64)
        count = min(options.parent_count, len(ranking))
        drawn = rng.choice(ranking, size=count, replace=False, p=weights / weights.sum())
        offspring = self._none()
        for index, mothers, fathers in pairs_of(population.select(drawn), options.children, rng):
            children = one_point_children(mothers, fathers, self._values[index], rng)
            self._note(offspring, index, children, mothers, fathers)
        return offspring
