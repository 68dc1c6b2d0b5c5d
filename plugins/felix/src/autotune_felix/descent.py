"""Gradient descent of many points at once: the force on them, Adam, and where they have been."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen

from autotune_felix.options import FelixOptions
from autotune_felix.penalties import Penalties
from autotune_felix.published import balanced, breaches, outward
from autotune_felix.relaxation import Frame, Relaxation
from autotune_felix.simplex import Reals

__all__ = ["Adam", "Objective", "Trajectories", "descend", "force"]

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
        evaluations: Points at which the cost was evaluated.
    """

    points: Reals
    costs: Reals
    evaluations: int


def descend(
    relaxation: Relaxation,
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
        relaxation: Of the sketch.
        penalties: Of the sketch.
        objective: The cost.
        start: Starting points, [n, size].
        frame: What they keep.
        steps: Steps to take.
        options: ``learning_rate``, ``force``, ``strength`` and ``divisibility``.
    """
    exact = options.divisibility == "projection"
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
    return Trajectories(np.stack(visited), np.stack(costs), steps * len(start))
