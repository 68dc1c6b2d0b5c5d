"""The strategies ``heron``, ``heron-random`` and ``heron-ga``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.search.strategies import Pool
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Matrix
from autotune.spaces import FeasibleSet
from autotune_heron.options import GeneticOptions, HeronOptions, ParentsOptions, RoundOptions
from autotune_heron.rounds import Offspring, RoundStrategy
from autotune_heron.selection import one_point_children, pairs

__all__ = [
    "HeronDecodingStrategy",
    "HeronGeneticStrategy",
    "HeronRandomStrategy",
    "HeronStrategy",
    "importances",
    "key_parameters",
    "make_child",
]


class HeronRandomStrategy(RoundStrategy[RoundOptions]):
    """Constrained random search (CRAND): samples of the space in place of children."""

    name = "heron-random"
    options_class: ClassVar[type[RoundOptions]] = RoundOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        sample = self._sample(self.options.children)
        return Offspring([*map(list, sample.matrices)], len(sample))


class HeronStrategy(RoundStrategy[HeronOptions]):
    """Constrained genetic algorithm (CGA): a child is a sample of a space made of its parents.

    That space has the constraints of the sketch, and one more for each key parameter but those
    that are dropped: its value is that of one of the parents. So every child is feasible.
    """

    name = "heron"
    options_class: ClassVar[type[RoundOptions]] = HeronOptions

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        options, rng = self.options, self._context.rng
        offspring = self._none()
        keys = [self._keys(pool, index) for index in range(len(self._sketches))]
        scores = pool.scores_of(population)
        for index, mothers, fathers in pairs(population, scores, options, rng):
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
                offspring.children += 1
                offspring.keys += len(child.shared_keys)
                offspring.like_a_parent += _same(child.row, mother) or _same(child.row, father)
                offspring.rows[index].append(child.row)
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

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        rng = self._context.rng
        offspring = self._none()
        scores = pool.scores_of(population)
        for index, mothers, fathers in pairs(population, scores, self.options, rng):
            feasible = self._feasible[index]
            children = one_point_children(mothers, fathers, self._values[index], rng)
            good = feasible.contains(children)
            offspring.children += len(children)
            offspring.infeasible += int((~good).sum())
            if self.options.infeasible == "repair":
                children[~good], good[:] = feasible.nearest(children[~good]), True
            offspring.rows[index] = list(children[good])
            same = [(children == parents).all(axis=1) for parents in (mothers, fathers)]
            offspring.like_a_parent += int((good & (same[0] | same[1])).sum())
        return offspring


def importances(matrix: Matrix, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the variance of scores that each parameter explains alone; [params], at most 1.

    Kelley's adjusted correlation ratio, 1 - (SSW / (n - values)) / (SST / (n - 1)) (PNAS 1935):
    its mean is 0 for an uninformative parameter, however many values it has. Any model will
    do, and only feasible rows are looked at: no parameter is changed alone.

    Args:
        matrix: Rows of one sketch [n, params].
        scores: Their scores [n]; those that are not finite are left out.

    Returns:
        0 too for a parameter with a single value, or as many values as rows, and where all
        scores are equal.
    """
    finite = np.isfinite(scores)
    matrix, scores = matrix[finite], scores[finite]
    result = np.zeros(matrix.shape[1])
    if len(scores) < 3 or scores.min() == scores.max():
        return result
    n, total = len(scores), float(((scores - scores.mean()) ** 2).sum())
    for column, values in enumerate(matrix.T):
        _, owners = np.unique(values, return_inverse=True)
        counts = np.bincount(owners)
        if 1 < len(counts) < n:
            means = np.bincount(owners, scores) / counts
            within = float(((scores - means[owners]) ** 2).sum())
            result[column] = max(0.0, 1.0 - (within / (n - len(counts))) / (total / (n - 1)))
    return result


FEWEST_KEYS = 2
"""Fewest keys: one is always dropped, and with a single one nothing would be shared."""

TRIES = 4
"""Draws until a child differs from both parents, where such a child exists."""


@frozen(eq=False)
class Child:
    """A child, and how it came about.

    Attributes:
        row: Its values [params].
        shared_keys: Columns whose values are of a parent.
        choices: Configurations that it was drawn from, its parents included.
    """

    row: NDArray[np.int64]
    shared_keys: tuple[int, ...]
    choices: int


def key_parameters(
    importances: NDArray[np.float64], varies: NDArray[np.bool_], share: float, scored: bool
) -> list[int]:
    """Columns of the key parameters, most important first, the first where equal.

    Args:
        importances: Importance of each parameter [params].
        varies: Which parameters have more than one feasible value [params].
        share: Share of those that are keys, rounded down; at least two keys where there are two.
        scored: Whether a parameter without importance can be none, as published.
    """
    eligible = np.flatnonzero(varies & (importances > 0) if scored else varies)
    count = max(FEWEST_KEYS, math.floor(share * len(eligible)))
    order = eligible[np.argsort(-importances[eligible], kind="stable")]
    return [int(column) for column in order[:count]]


def make_child(
    feasible: FeasibleSet,
    mother: NDArray[np.int64],
    father: NDArray[np.int64],
    keys: Sequence[int],
    dropped: int,
    distinct: bool,
    rng: np.random.Generator,
) -> Child:
    """A feasible child whose keys have values of its parents, but for those that are dropped.

    The restricted space has both parents, so there always is a child; it is drawn from there
    uniformly, or as published: see ``distinct``.

    Args:
        feasible: The feasible configurations of the sketch.
        mother: A feasible row [params].
        father: Another, or the same [params].
        keys: Columns of the keys.
        dropped: How many of them are dropped, drawn at random.
        distinct: Drop further keys until there is something else than two parents to draw, draw
            again what equals a parent, and draw half of the children stratified.
        rng: Where chance comes from.
    """
    order = rng.permutation(np.asarray(keys, dtype=np.int64))
    kept = order[min(dropped, len(order)) :].tolist()
    space = _restricted(feasible, mother, father, kept)
    while distinct and kept and space.count <= 2:
        kept.pop()
        space = _restricted(feasible, mother, father, kept)
    seed = int(rng.integers(2**63))
    tries = TRIES if distinct and space.count > 2 else 1
    draw = space.stratified if distinct and seed & 1 else space.uniform
    rows: Matrix = draw(tries, seed)
    for row in rows:
        if not distinct or not (_same(row, mother) or _same(row, father)):
            break
    return Child(row, tuple(sorted(kept)), space.count)


def _same(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    return one.tobytes() == other.tobytes()


def _restricted(
    feasible: FeasibleSet,
    mother: NDArray[np.int64],
    father: NDArray[np.int64],
    columns: Sequence[int],
) -> FeasibleSet:
    names = feasible.columns
    return feasible.restrict(
        {names[column]: (int(mother[column]), int(father[column])) for column in columns}
    )


class HeronDecodingStrategy(RoundStrategy[ParentsOptions]):
    """Genetic algorithm with decoding (SDGA): a row stands for the nearest feasible one.

    Rows that break constraints are inherited as they are; what is scored and measured is the
    nearest feasible row. In Heron a solver that begins at the row finds one, here it is exact.
    ``heron-ga`` with ``infeasible=repair`` inherits the feasible row instead.
    """

    name = "heron-sdga"
    options_class: ClassVar[type[RoundOptions]] = ParentsOptions

    def _decoded(self, rows: CandidateBatch) -> CandidateBatch:
        return CandidateBatch.of_rows(
            self._sketches,
            [
                feasible.nearest(matrix) if len(matrix) else matrix
                for feasible, matrix in zip(self._feasible, rows.matrices, strict=True)
            ],
        )

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        rng = self._context.rng
        offspring = self._none()
        scores = pool.scores_of(self._decoded(population))
        for index, mothers, fathers in pairs(population, scores, self.options, rng):
            children = one_point_children(mothers, fathers, self._values[index], rng)
            offspring.note(index, children, mothers, fathers, self._feasible[index])
        return offspring
