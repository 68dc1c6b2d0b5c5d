"""Gradient descent of many points at once: the force on them, Adam, and where they have been."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune_felix.options import FelixOptions
from autotune_felix.penalties import Penalties
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals, Whole

__all__ = [
    "Adam",
    "Objective",
    "Trajectories",
    "balanced",
    "breaches",
    "descend",
    "force",
    "independently_rounded",
    "one_sided",
    "outward",
]

Objective = Callable[[Reals], tuple[Reals, Reals]]
"""Predicted log latency [n] at values of the parameters [n, params], and its gradient."""

RAMP = 0.5
"""Root of the penalty, in octaves, at which the push towards the feasible set is at its full."""

LEAST_PUSH = 1.0
"""Least factor of a penalty's gradient: without a cost gradient a point still comes back."""

DECAY = 0.2
DECAY_AT = 0.3
"""The learning rate falls by ``DECAY`` after this share of the steps, as in Felix."""


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) over a matrix, with its usual constants.

    Args:
        shape: Shape of the matrix.
        rate: Learning rate of the first steps.
        steps: Steps that will be taken.
    """

    def __init__(self, shape: tuple[int, ...], rate: float, steps: int) -> None:
        self._mean, self._square = np.zeros(shape), np.zeros(shape)
        self._rate, self._fall, self._taken = rate, int(DECAY_AT * steps), 0

    @property
    def rate(self) -> float:
        """Learning rate of the next step."""
        return self._rate if self._taken < self._fall or not self._fall else self._rate * DECAY

    def step(self, gradient: Reals) -> Reals:
        """Return the step to subtract for this gradient."""
        rate = self.rate
        self._taken += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean = self._mean / (1.0 - 0.9**self._taken)
        square = self._square / (1.0 - 0.999**self._taken)
        return rate * mean / (np.sqrt(square) + 1e-8)


def force(cost: Reals, push: Reals, penalty: Reals, options: FelixOptions) -> Reals:
    """The direction that points are moved against: cost and penalty gradients, balanced by row.

    ``matched``: the penalty's gradient is scaled to ``strength`` times the norm of the cost's, as
    in Felix. ``ramped``: that, times ``min(1, sqrt(penalty) / RAMP)`` and with a least factor, so
    that the force is continuous at the boundary and never without a way back. ``fixed``: scaled
    by ``strength``.

    Args:
        cost: Gradients of the cost, [n, size].
        push: Gradients of the penalty, [n, size].
        penalty: Penalties, [n].
        options: ``force`` and ``strength``.
    """
    scale = np.full(len(cost), options.strength)
    if options.force != "fixed":
        norm = np.linalg.norm(push, axis=1)
        scale *= np.linalg.norm(cost, axis=1) / np.where(norm > 0, norm, 1.0)
    if options.force == "ramped":
        scale = np.maximum(scale * np.minimum(1.0, np.sqrt(penalty) / RAMP), LEAST_PUSH)
    return np.asarray(cost + scale[:, None] * push)


@frozen(eq=False)
class Trajectories:
    """Points of a descent so far.

    Attributes:
        points: [steps + 1, n, size], the starting points first.
        costs: Predicted log latency at each, [steps + 1, n]; at the last ones that of the step
            before, as they are not evaluated. Infinite where it is not a number.
    """

    points: Reals
    costs: Reals


def descend(
    penalties: Penalties,
    objective: Objective,
    start: Reals,
    frame: Frame,
    steps: int,
    options: FelixOptions,
) -> Trajectories:
    """Move all points ``steps`` times, with an optimiser that knows nothing of other points.

    A point where the cost or its gradient is no number is moved by its penalty alone.

    Args:
        penalties: Of the sketch.
        objective: The cost.
        start: Starting points, [n, size].
        frame: What they keep.
        steps: Steps to take.
        options: ``learning_rate``, ``force``, ``strength`` and ``divisibility``.
    """
    relaxation, exact = penalties.relaxation, options.divisibility == "projection"
    adam = Adam(start.shape, options.learning_rate, steps)
    points, visited, costs = start, [start], []
    for _ in range(steps):
        rows = relaxation.decode(points, frame)
        cost, gradient = objective(rows)
        usable = np.isfinite(cost) & np.isfinite(gradient).all(axis=1)
        costs.append(np.where(usable, cost, np.inf))
        gradient = np.where(usable[:, None], gradient, 0.0)
        penalty, pushed = penalties.of_points(points, rows, frame)
        pulled = relaxation.pulled_back(gradient, rows, frame)
        if exact:
            pulled, pushed = (relaxation.tangent(each, frame) for each in (pulled, pushed))
        else:
            broken, apart = breaches(relaxation, points, frame)
            penalty, pushed = penalty + broken, outward(relaxation, pushed + apart, frame)
            pulled = outward(relaxation, pulled, frame)
        moved = points - adam.step(force(pulled, pushed, penalty, options))
        points = relaxation.project(moved, frame) if exact else balanced(relaxation, moved, frame)
        visited.append(points)
    costs.append(costs[-1] if costs else np.zeros(len(start)))
    return Trajectories(np.stack(visited), np.stack(costs))


# Lines through a point are not cut this close to it, relative to the longest possible: the new
# point would be the old one.
_GAP = 0.05


def _outermost(frame: Frame) -> NDArray[np.int64]:
    """The first free level of each axis and prime, [n, axes, primes, 1]."""
    free = frame.high > frame.low
    return np.asarray(free.argmax(axis=-1)[..., None], dtype=np.int64)


def balanced(relaxation: Relaxation, points: Reals, frame: Frame) -> Reals:
    """Points whose outermost exponents are what the other levels leave of the multiplicity."""
    result: Reals = points.copy()
    exponents = relaxation.exponents(result)
    if exponents.size:
        first = _outermost(frame)
        left = frame.mass - exponents.sum(axis=-1)
        kept = np.take_along_axis(exponents, first, -1)
        np.put_along_axis(exponents, first, kept + left[..., None], -1)
    return result


def outward(relaxation: Relaxation, gradient: Reals, frame: Frame) -> Reals:
    """A gradient by the free exponents, of which the outermost ones are functions."""
    result: Reals = gradient.copy()
    exponents = relaxation.exponents(result)
    if exponents.size:
        first = _outermost(frame)
        exponents -= np.take_along_axis(exponents, first, -1)
        exponents[frame.high <= frame.low] = 0.0
    return result


def breaches(relaxation: Relaxation, points: Reals, frame: Frame) -> tuple[Reals, Reals]:
    """Sum of squares by which exponents and knobs miss their bounds, [n], and its gradient."""
    gradient = np.zeros_like(points)
    exponents = relaxation.exponents(points)
    over = np.maximum(exponents - frame.high, 0.0) - np.maximum(frame.low - exponents, 0.0)
    relaxation.exponents(gradient)[...] = 2.0 * over
    total = (over**2).sum(axis=(1, 2, 3))
    variables, slopes = relaxation.knob_variables(points), relaxation.knob_variables(gradient)
    for index, knob in enumerate(relaxation.knobs):
        low, high = knob.places[0], knob.places[-1]
        away = variables[:, index] - np.clip(variables[:, index], low, high)
        slopes[:, index] = 2.0 * away
        total += away**2
    return total, gradient


def independently_rounded(
    relaxation: Relaxation, points: Reals, frame: Frame
) -> tuple[Whole, NDArray[np.bool_]]:
    """Each exponent but the outermost rounded to the nearest, half to even.

    Returns:
        Configurations [n, params], and whether their exponents are within bounds, [n]; those of
        the others mean nothing.
    """
    whole = balanced(relaxation, np.rint(points), frame)
    exponents = relaxation.exponents(whole)
    inside = (exponents >= frame.low) & (exponents <= frame.high)
    fine = np.asarray(inside.all(axis=(1, 2, 3)), dtype=np.bool_)
    kept = np.where(fine[:, None, None, None], exponents, frame.low).astype(np.int64)
    return relaxation.configurations(kept, points, frame), fine


def one_sided(relaxation: Relaxation, frame: Frame, rng: np.random.Generator) -> Reals:
    """Starting points as in Felix: from a set that doubles, by steps in positive directions.

    The first point has the least of everything but the outermost levels. From each point a line
    with a direction of uniform positive components, scaled by the bounds, is cut with the bounds
    and the multiplicities; the new point is uniform on it, but not within ``_GAP`` of the old.
    Other constraints are left out of account: in Felix those that are products count too.
    """
    least = np.zeros((len(frame), relaxation.size))
    relaxation.exponents(least)[...] = frame.low
    room = np.zeros_like(least)
    relaxation.exponents(room)[...] = frame.high - frame.low
    for index, knob in enumerate(relaxation.knobs):
        relaxation.knob_variables(least)[:, index] = knob.places[0]
        relaxation.knob_variables(room)[:, index] = knob.places[-1] - knob.places[0]
    if relaxation.exponents(room).size:
        np.put_along_axis(relaxation.exponents(room), _outermost(frame), 0.0, -1)
    # Shares of the room, [n, size]; nothing of it is the point that the others come from.
    shares = np.zeros_like(least)
    done = 1
    while done < len(frame) + 1:
        count = min(done, len(frame) + 1 - done)
        origins = np.concatenate([np.zeros((1, relaxation.size)), shares])[:count]
        new = np.arange(done - 1, done - 1 + count)
        shares[new] = _beyond(relaxation, origins, room[new], frame.select(new), rng)
        done += count
    return balanced(relaxation, least + shares * room, frame)


def _beyond(
    relaxation: Relaxation,
    origins: Reals,
    room: Reals,
    frame: Frame,
    rng: np.random.Generator,
) -> Reals:
    """Draw a point further on a line through each, in shares of the room."""
    direction = rng.random(origins.shape) * (room > 0)
    norm = np.linalg.norm(direction, axis=1, keepdims=True)
    direction /= np.where(norm > 0, norm, 1.0)
    # Every limit is ``slack >= t * speed``: of variables one by one, then of multiplicities.
    used, speed = (relaxation.exponents(each * room).sum(axis=-1) for each in (origins, direction))
    capacity = frame.mass - frame.low.sum(axis=-1)
    slacks = np.concatenate([1.0 - origins, (capacity - used).reshape(len(origins), -1)], axis=1)
    speeds = np.concatenate([direction, speed.reshape(len(origins), -1)], axis=1)
    moving = speeds > 0
    divisor = np.where(moving, speeds, 1.0)
    longest = np.where(moving, np.maximum(slacks, 0.0) / divisor, np.inf).min(axis=1)
    backward = np.where(direction > 0, origins / np.where(direction > 0, direction, 1.0), np.inf)
    furthest = -backward.min(axis=1)
    longest, furthest = (np.where(np.isfinite(each), each, 0.0) for each in (longest, furthest))
    # The two pieces left and right of the gap, as one.
    right = np.maximum(longest - _GAP, 0.0)
    left = np.maximum(-furthest - _GAP, 0.0)
    drawn = rng.random(len(origins)) * (left + right)
    step = np.where(drawn < left, furthest + drawn, _GAP + drawn - left)
    step = np.where(
        left + right > 0, step, furthest + rng.random(len(origins)) * (longest - furthest)
    )
    return np.asarray(np.clip(origins + step[:, None] * direction, 0.0, 1.0))
