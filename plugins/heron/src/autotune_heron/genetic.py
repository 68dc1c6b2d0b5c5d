"""Children as an ordinary genetic algorithm makes them, and what becomes of infeasible ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.sketches.candidate import Matrix
from autotune.spaces import Lattice

__all__ = ["one_point_children", "repaired"]


def one_point_children(
    mothers: Matrix,
    fathers: Matrix,
    values: Sequence[NDArray[np.int64]],
    rng: np.random.Generator,
) -> Matrix:
    """One child for each pair: the mother's first columns, the father's last, one gene new.

    Nobody asks whether it is feasible.

    Args:
        mothers: Rows [n, params].
        fathers: Rows [n, params].
        values: Values that each column may take, of which the new gene is one.
        rng: Where chance comes from.
    """
    n, width = mothers.shape
    cut = rng.integers(width + 1, size=n)
    children = np.where(np.arange(width) < cut[:, None], mothers, fathers)
    genes = rng.integers(width, size=(n,))
    for row, gene in enumerate(genes.tolist()):
        children[row, gene] = rng.choice(values[gene])
    return children


def repaired(
    lattice: Lattice, row: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """A feasible row that keeps those of the values, taken in random order, that can be kept.

    Args:
        lattice: The feasible configurations of the sketch, at least one.
        row: Any row [params]; it is returned where it is feasible.
        rng: Where chance comes from.
    """
    names = lattice.sketch.param_names
    for column in rng.permutation(len(row)).tolist():
        kept = lattice.restrict({names[column]: (int(row[column]),)})
        if kept.count:
            lattice = kept
    seed = int(rng.integers(2**63))
    found: NDArray[np.int64] = lattice.uniform(1, seed)[0]
    return found
