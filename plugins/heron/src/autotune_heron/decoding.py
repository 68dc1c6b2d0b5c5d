"""``heron-sdga``: a genetic algorithm whose genotypes are decoded, an ablation of Heron."""

from __future__ import annotations

from typing import ClassVar

from autotune.search.strategies import Pool
from autotune.sketches import CandidateBatch
from autotune_heron.genetic import one_point_children
from autotune_heron.options import ParentsOptions, RoundOptions
from autotune_heron.rounds import Offspring, RoundStrategy
from autotune_heron.selection import pairs

__all__ = ["HeronDecodingStrategy"]


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

    def _children(self, pool: Pool, population: CandidateBatch) -> list[Offspring]:
        rng = self._context.rng
        offspring = [Offspring() for _ in self._sketches]
        scores = pool.scores_of(self._decoded(population))
        for index, mothers, fathers in pairs(population, scores, self.options, rng):
            children = one_point_children(mothers, fathers, self._values[index], rng)
            offspring[index].note(children, mothers, fathers, self._feasible[index])
        return offspring
