"""The strategies ``heron``, ``heron-random`` and ``heron-ga``."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies import Pool
from autotune.sketches import CandidateBatch
from autotune_heron.genetic import one_point_children
from autotune_heron.importance import importances
from autotune_heron.offspring import key_parameters, make_child
from autotune_heron.options import GeneticOptions, HeronOptions, RoundOptions
from autotune_heron.rounds import Offspring, RoundStrategy
from autotune_heron.selection import pairs

__all__ = ["HeronGeneticStrategy", "HeronRandomStrategy", "HeronStrategy"]


class HeronRandomStrategy(RoundStrategy[RoundOptions]):
    """Constrained random search (CRAND): samples of the space in place of children."""

    name = "heron-random"
    options_class: ClassVar[type[RoundOptions]] = RoundOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> list[Offspring]:
        offspring = []
        for matrix in self._sample(self.options.children).matrices:
            each = Offspring()
            each.rows, each.count = list(matrix), len(matrix)
            offspring.append(each)
        return offspring


class HeronStrategy(RoundStrategy[HeronOptions]):
    """Constrained genetic algorithm (CGA): a child is a sample of a space made of its parents.

    That space has the constraints of the sketch, and one more for each key parameter but those
    that are dropped: its value is that of one of the parents. So every child is feasible.
    """

    name = "heron"
    options_class: ClassVar[type[RoundOptions]] = HeronOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> list[Offspring]:
        options, rng = self.options, self._context.rng
        offspring = [Offspring() for _ in self._sketches]
        keys = [self._keys(pool, index) for index in range(len(self._sketches))]
        scores = pool.scores_of(population)
        for index, mothers, fathers in pairs(population, scores, options, rng):
            each = offspring[index]
            for mother, father in zip(mothers, fathers, strict=True):
                dropped = int(rng.geometric(0.5)) if options.drops_several else 1
                child = make_child(
                    self._feasible[index],
                    mother,
                    father,
                    keys[index],
                    dropped,
                    options.is_ours,
                    rng,
                )
                each.count += 1
                each.shared_keys += len(child.shared_keys)
                each.like_a_parent += _is_one_of(child.row, mother, father)
                each.rows.append(child.row)
        return offspring

    def _keys(self, pool: Pool, sketch: int) -> list[int]:
        """Columns of the key parameters of a sketch for one generation."""
        options, rng = self.options, self._context.rng
        varies = np.array([len(values) > 1 for values in self._values[sketch]], dtype=np.bool_)
        merit = rng.random(len(varies))
        scored = options.by_importance and options.variant == "paper"
        if options.by_importance:
            scores = pool.scores[pool.batch.positions_of(sketch)]
            found = importances(pool.batch.matrices[sketch], scores)
            if found.any():
                return key_parameters(found, varies, options.share, scored)
        # Chance decides too where no score depends on anything.
        return key_parameters(merit, varies, options.share, False)


class HeronGeneticStrategy(RoundStrategy[GeneticOptions]):
    """Ordinary genetic algorithm: one-point crossover and one new gene, feasible or not."""

    name = "heron-ga"
    options_class: ClassVar[type[RoundOptions]] = GeneticOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> list[Offspring]:
        rng = self._context.rng
        offspring = [Offspring() for _ in self._sketches]
        scores = pool.scores_of(population)
        for index, mothers, fathers in pairs(population, scores, self.options, rng):
            each, feasible = offspring[index], self._feasible[index]
            children = one_point_children(mothers, fathers, self._values[index], rng)
            good = feasible.contains(children)
            each.count, each.infeasible = len(children), int((~good).sum())
            if self.options.infeasible == "repair":
                children[~good], good[:] = feasible.nearest(children[~good]), True
            each.rows = list(children[good])
            same = [(children == parents).all(axis=1) for parents in (mothers, fathers)]
            each.like_a_parent = int((good & (same[0] | same[1])).sum())
        return offspring


def _is_one_of(row: NDArray[np.int64], *others: NDArray[np.int64]) -> bool:
    return any(np.array_equal(row, other) for other in others)
