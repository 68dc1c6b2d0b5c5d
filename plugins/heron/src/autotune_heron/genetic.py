"""Children as an ordinary genetic algorithm makes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.sketches.candidates import Matrix

__all__ = ["one_point_children"]


def one_point_children(
    mothers: Matrix,
    fathers: Matrix,
    values: Sequence[NDArray[np.int64]],
    rng: np.random.Generator,
) -> Matrix:
    """Make a child for each pair: the mother's first columns, the father's last, one gene new.

    Feasibility is not checked.

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
