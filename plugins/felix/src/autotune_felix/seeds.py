"""Where points begin: near the best measured configurations, and anywhere in the feasible set."""

from __future__ import annotations

import numpy as np

from autotune_felix.descent import Objective
from autotune_felix.options import FelixOptions
from autotune_felix.penalties import Penalties
from autotune_felix.published import one_sided
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals, Whole

__all__ = ["starting_points"]


def starting_points(
    relaxation: Relaxation,
    penalties: Penalties,
    objective: Objective,
    sample: Whole,
    measured: Whole,
    options: FelixOptions,
    rng: np.random.Generator,
) -> tuple[Reals, Frame]:
    """Points [seeds, size] and what they keep.

    Args:
        relaxation: Of the sketch.
        penalties: Of the sketch.
        objective: What points that compete are compared by.
        sample: Feasible configurations, [m, params] with m > 0; others take their choices of
            extents from them, so that these are as frequent as in the space.
        measured: The best measured configurations, [k, params], best first.
        options: ``seeds``, ``measured_share``, ``noise``, ``tournament`` and ``sampler``.
        rng: Where chance comes from.
    """
    near = int(options.seeds * options.measured_share) if len(measured) else 0
    rows = measured[np.arange(near) % max(1, len(measured))]
    frame = relaxation.frame(rows)
    points = relaxation.encode(rows, frame)
    points = relaxation.project(points + rng.normal(0.0, options.noise, points.shape), frame)
    fresh, fresh_frame = _fresh(relaxation, penalties, sample, options.seeds - near, options, rng)
    if options.tournament > 1 and len(fresh):
        cost = objective(relaxation.decode(fresh, fresh_frame))[0].reshape(-1, options.tournament)
        best = np.where(np.isfinite(cost), cost, np.inf).argmin(axis=1)
        winners = best + options.tournament * np.arange(len(best))
        fresh, fresh_frame = fresh[winners], fresh_frame.select(winners)
    # Frames follow from configurations alone.
    return (
        np.concatenate([points, fresh]),
        relaxation.frame(np.concatenate([rows, fresh_frame.base])),
    )


def _fresh(
    relaxation: Relaxation,
    penalties: Penalties,
    sample: Whole,
    n: int,
    options: FelixOptions,
    rng: np.random.Generator,
) -> tuple[Reals, Frame]:
    """``n`` points, ``tournament`` times: uniform on the simplices where this is feasible."""
    count = n * options.tournament
    if options.sampler == "one-sided":
        # One extent for all: there, extents are not chosen.
        frame = relaxation.frame(np.repeat(sample[rng.integers(len(sample), size=1)], count, 0))
        return one_sided(relaxation, frame, rng), frame
    rows = sample[rng.integers(len(sample), size=count)]
    frame = relaxation.frame(rows)
    points = relaxation.uniform(frame, rng)
    broken = penalties.of_points(points, relaxation.decode(points, frame), frame)[0] > 0
    points[broken] = relaxation.encode(rows, frame)[broken]
    return points, frame
