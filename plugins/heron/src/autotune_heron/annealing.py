"""``heron-sa``: simulated annealing, an ablation of Heron."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies import Pool
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import Matrix
from autotune_heron.infeasible import InfeasibleRowsStrategy
from autotune_heron.options import AnnealingOptions, RoundOptions
from autotune_heron.rounds import Offspring

__all__ = ["HeronAnnealingStrategy", "is_accepted", "moved"]


def moved(rows: Matrix, values: tuple[NDArray[np.int64], ...], rng: np.random.Generator) -> Matrix:
    """Each row [n, params] with another value of one parameter, feasible or not.

    Args:
        rows: Values that occur in ``values``.
        values: Values that each column may take; one that has a single one is left alone.
        rng: Where chance comes from.
    """
    varied = np.array([column for column, each in enumerate(values) if len(each) > 1])
    found: Matrix = rows.copy()
    if not len(varied):
        return found
    for row, column in enumerate(rng.choice(varied, size=len(rows)).tolist()):
        others = values[column][values[column] != rows[row, column]]
        found[row, column] = rng.choice(others)
    return found


def is_accepted(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    temperature: float,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return whether steps are taken, by the rule of Metropolis et al. (1953), [n].

    Args:
        before: Scores [n].
        after: Scores of where the steps lead [n]; minus infinity is never accepted.
        temperature: Loss of score that is accepted with a chance of 1/e; 0 accepts none.
        rng: Where chance comes from.
    """
    usable = np.isfinite(after)
    lost = np.maximum(before - np.where(usable, after, 0.0), 0.0)
    chance = np.exp(-lost / temperature) if temperature > 0 else (lost == 0).astype(np.float64)
    return np.asarray(usable & (rng.random(len(lost)) < chance))


class HeronAnnealingStrategy(InfeasibleRowsStrategy[AnnealingOptions]):
    """Simulated annealing (SA): each row of the population walks, one parameter at a time.

    A step to an infeasible row is never taken, one to a worse row by the rule of Metropolis. Heron
    computes that rule and then takes no step to a worse row: ``temperature=0``.
    """

    name = "heron-sa"
    options_class: ClassVar[type[RoundOptions]] = AnnealingOptions

    _steps = 0

    def state(self) -> dict[str, Any]:
        """Return the state of a strategy of rounds, and the number of steps taken."""
        return {**super().state(), "steps": self._steps}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state` returned.

        Raises:
            InvalidValueError: the state is of another strategy, space or kind of generator.
        """
        super().load_state(state)
        self._steps = int(state["steps"])

    def _children(self, pool: Pool, population: CandidateBatch) -> Offspring:
        offspring = self._none()
        for index, rows in enumerate(population.matrices):
            children = moved(rows, self._values[index], self._context.rng)
            offspring.note(index, children, rows, rows, self._feasible[index])
        return offspring

    def _next(
        self, pool: Pool, population: CandidateBatch, children: CandidateBatch
    ) -> CandidateBatch:
        options = self.options
        cooled = max(0.0, 1.0 - self._steps / options.cooling)
        self._steps += 1
        finite = pool.scores[np.isfinite(pool.scores)]
        spread = float(np.ptp(finite)) if len(finite) else 0.0
        after = np.where(self._is_feasible(children), pool.scores_of(children), -np.inf)
        taken = is_accepted(
            pool.scores_of(population),
            after,
            options.temperature * cooled * spread,
            self._context.rng,
        )
        parts = np.split(taken, population.starts[1:-1])
        rows = [
            np.where(own[:, None], new, old)
            for own, new, old in zip(parts, children.matrices, population.matrices, strict=True)
        ]
        return CandidateBatch.of_rows(self._sketches, rows)
