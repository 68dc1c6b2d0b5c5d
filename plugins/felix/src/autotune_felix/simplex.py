"""Exponents of a prime shared out over the levels of an axis: projection and rounding.

Each set is ``{low <= e <= high, sum e = mass}`` with whole numbers ``low``, ``high`` and ``mass``;
the last axis of every array is the level.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLOOR_TOLERANCE", "project", "round_remainders", "tangent", "uniform_shares"]

Reals = NDArray[np.float64]
Whole = NDArray[np.int64]

FLOOR_TOLERANCE = 1e-9
"""Distance below a whole number that still counts as it: a projection misses by rounding."""


def project(points: Reals, low: Reals, high: Reals, mass: Reals) -> Reals:
    """The nearest points with ``low <= e <= high`` and ``sum e = mass``, in closed form.

    The nearest point is ``clip(points - t, low, high)`` for the ``t`` at which the sum is right.
    The sum falls piecewise linearly with ``t``, with corners where a level reaches a bound.

    Args:
        points: Any finite numbers, [..., levels].
        low: Least values, [..., levels].
        high: Greatest values, [..., levels].
        mass: Sums, [...], between the sums of ``low`` and ``high``.

    Returns:
        The projections, [..., levels].
    """
    corners = np.sort(np.concatenate([points - high, points - low], axis=-1), axis=-1)
    # Sums at every corner, falling: from all at their greatest to all at their least values.
    shifted = points[..., None, :] - corners[..., :, None]
    sums = np.clip(shifted, low[..., None, :], high[..., None, :]).sum(axis=-1)
    above = np.clip((sums >= mass[..., None]).sum(axis=-1) - 1, 0, corners.shape[-1] - 2)
    left, right = above[..., None], above[..., None] + 1
    start, end = (np.take_along_axis(corners, at, -1)[..., 0] for at in (left, right))
    upper, lower = (np.take_along_axis(sums, at, -1)[..., 0] for at in (left, right))
    fall = upper - lower
    share = np.clip((upper - mass) / np.where(fall > 0, fall, 1.0), 0.0, 1.0)
    shift = start + share * (end - start)
    return np.asarray(np.clip(points - shift[..., None], low, high))


def tangent(gradient: Reals, low: Reals, high: Reals) -> Reals:
    """The part of a gradient along the set: without what all free levels have in common.

    A level is free where ``low < high``. What moves all levels alike is undone by the projection,
    and would drown the rest in an optimiser that scales every coordinate by its own size.
    """
    free = high > low
    count = np.maximum(free.sum(axis=-1, keepdims=True), 1)
    held = np.where(free, gradient, 0.0)
    return np.where(free, held - held.sum(axis=-1, keepdims=True) / count, 0.0)


def round_remainders(points: Reals, mass: Whole, rng: np.random.Generator | None = None) -> Whole:
    """Whole numbers with the right sums, each less than 1 from its real one (largest remainder).

    All levels are rounded down; what lacks to the mass goes to the largest fractions, one each,
    the first levels first where fractions are equal.

    Args:
        points: Points of the sets, [..., levels].
        mass: Sums, [...].
        rng: If any, what lacks goes to levels that are drawn instead, without repetition, each
            with a chance in proportion to its fraction.

    Returns:
        Whole exponents, [..., levels]; within the bounds where the points are.
    """
    floors = np.floor(points + FLOOR_TOLERANCE)
    fractions = np.maximum(points - floors, 0.0)
    if rng is not None:
        # Weighted sampling without replacement (Efraimidis and Spirakis, 2006): the largest keys.
        fractional = fractions > FLOOR_TOLERANCE
        keys = rng.exponential(size=points.shape) / np.where(fractional, fractions, 1.0)
        fractions = np.where(fractional, np.exp(-keys), -1.0)
    order = np.argsort(-fractions, axis=-1, kind="stable")
    places = np.argsort(order, axis=-1, kind="stable")
    missing = np.rint(mass - floors.sum(axis=-1))
    return np.asarray(floors + (places < missing[..., None]), dtype=np.int64)


def uniform_shares(mass: Reals, levels: int, rng: np.random.Generator) -> Reals:
    """Uniform points of the simplices ``{e >= 0, sum e = mass}``; shape [..., levels]."""
    spacings = rng.exponential(size=(*mass.shape, levels))
    return np.asarray(spacings / spacings.sum(axis=-1, keepdims=True) * mass[..., None])
