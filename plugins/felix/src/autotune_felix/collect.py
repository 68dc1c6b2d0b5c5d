"""The configurations on a trajectory: rounded, repaired, deduplicated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune_felix.descent import Trajectories
from autotune_felix.options import FelixOptions
from autotune_felix.published import independently_rounded
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.repair import Repairer
from autotune_felix.simplex import Whole

__all__ = ["Collected", "new_rows", "collect_candidates"]

Contains = Callable[[Whole], NDArray[np.bool_]]
"""Whether configurations [n, params] of the sketch are in the space, [n]."""


@frozen(eq=False)
class Collected:
    """Distinct configurations of a sketch.

    Attributes:
        rows: Those in the space, [m, params].
        passed: All that were passed, also those outside of the space, [k, params]; the ones
            inside are in ``rows`` in the same order.
    """

    rows: Whole
    passed: Whole


def collect_candidates(
    relaxation: Relaxation,
    trajectories: Trajectories,
    frame: Frame,
    contains: Contains,
    repairer: Repairer,
    feasible: Whole,
    options: FelixOptions,
    rng: np.random.Generator,
) -> Collected:
    """The configurations that points passed at any step, and what repairs make of the others.

    Args:
        relaxation: Of the sketch.
        trajectories: Where points have been.
        frame: What they kept.
        contains: Says what is in the space.
        repairer: Of the sketch.
        feasible: Configurations in the space, for repairs that find no way, [m, params].
        options: ``rounding``, ``roundings`` and ``repairs``.
        rng: Draws remainders for all but the first rounding of a point.
    """
    steps, n, _ = trajectories.points.shape
    points = trajectories.points.reshape(steps * n, relaxation.size)
    frames = frame.select(np.tile(np.arange(n), steps))
    costs = trajectories.costs.reshape(-1)
    if options.rounding == "independent":
        rows, whole = independently_rounded(relaxation, points, frames)
        rows, costs = rows[whole], costs[whole]
    else:
        draws = [None] + [rng] * (options.roundings - 1)
        rows = np.concatenate([relaxation.rounded(points, frames, each) for each in draws])
        costs = np.tile(costs, len(draws))
    order = np.argsort(costs, kind="stable")
    passed = rows[order][_firsts(rows[order])]
    inside = contains(passed)
    found = passed[inside]
    outside = passed[~inside][: options.repairs]
    if len(outside):
        repaired = repairer.repaired(outside, feasible)
        found = np.concatenate([found, repaired[contains(repaired)]])
        found = found[_firsts(found)]
    return Collected(found, passed)


def new_rows(rows: Whole, known: Whole) -> Whole:
    """Rows [n, params] that are not known and do not occur before, [m, params]."""
    both = np.concatenate([known, rows])
    firsts = _firsts(both)
    return both[firsts[firsts >= len(known)]]


def _firsts(rows: Whole) -> NDArray[np.int64]:
    """Positions of rows that do not occur before, ascending."""
    if not rows.size:
        return np.arange(min(len(rows), 1))
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * 8))).ravel()
    return np.sort(np.unique(keys, return_index=True)[1])
