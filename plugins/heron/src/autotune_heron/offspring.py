"""Children of two rows as Heron makes them: drawn from a space that their parents are in too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.sketches.candidates import Matrix
from autotune.spaces import FeasibleSet

__all__ = ["Child", "key_parameters", "make_child"]

FEWEST_KEYS = 2
"""One key is always dropped: with a single one nothing would be shared."""

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
