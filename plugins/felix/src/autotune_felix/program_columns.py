"""Models that correct the estimate by columns of relaxed programs, with derivatives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.models.cost import DifferentiableCostModel
from autotune.models.cost.analytic import AnalyticEstimate
from autotune.models.features import (
    RELAXED_COLUMNS,
    RELAXED_VERSION,
    RelaxedFeatures,
    RelaxedPoints,
)
from autotune.nest.relaxed import FELIX
from autotune.sketches import CandidateBatch, Sketch

if TYPE_CHECKING:
    from autotune.targets import Target


__all__ = ["Adding", "CorrectedEstimate", "ProgramPoints"]

Values = NDArray[np.float64]


@frozen(eq=False)
class ProgramPoints:
    """The estimate at points of one sketch, and what models add to it by.

    Attributes:
        seconds: What each component of the estimate takes, ``[n, components]``.
        latency: Logarithm of the estimate, ``[n]``.
        shares: Derivative of it by the logarithms of the components, ``[n, components]``.
        statements: Relaxed columns of each statement, ``[n, statements, columns]``.
    """

    seconds: Values
    latency: Values
    shares: Values
    _features: RelaxedPoints
    _rows: Values
    _sketch: Sketch
    _estimate: AnalyticEstimate

    @property
    def statements(self) -> Values:
        """Relaxed columns of each statement, ``[n, statements, columns]``."""
        return self._features.values

    @property
    def beside(self) -> Values:
        """Logarithms of the components relative to the estimate, ``[n, components]``."""
        return np.asarray(np.log(self.seconds) - self.latency[:, None])

    def weights(self, by_beside: Values) -> Values:
        """Derivative by the logarithms of components of the estimate plus what is added to it.

        Args:
            by_beside: Derivative of what is added by :attr:`beside`, which moves with the
                estimate, ``[n, components]``.
        """
        total = by_beside.sum(axis=1, keepdims=True)
        return np.asarray(self.shares + by_beside - self.shares * total)

    def gradient(self, by_statement: Values, by_beside: Values) -> Values:
        """Gradient ``[n, params]`` of the estimate plus what is added to it.

        Args:
            by_statement: Derivative of what is added by :attr:`statements`.
            by_beside: The same by :attr:`beside`.
        """
        weights = self.weights(by_beside)
        own = self._estimate.gradient(self._sketch, self._rows, self.seconds, weights)
        return own + self._features.gradient(by_statement)

    def slopes(
        self, by_statement: Values, by_beside: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Names, values and slopes by doubling of all that is read, for `autotune explain`."""
        count, places, _ = self.statements.shape
        columns = tuple(
            f"statement {place}: {name}" for place in range(places) for name in RELAXED_COLUMNS
        )
        flat = self.statements.reshape(count, -1), by_statement.reshape(count, -1)
        return (
            (*self._estimate.components, *columns),
            np.concatenate([self.seconds, flat[0]], axis=1),
            np.concatenate([self.weights(by_beside) * np.log(2.0), flat[1]], axis=1),
        )


Adding = Callable[[ProgramPoints, bool], Sequence[Values]]
"""Maker of what is added to the estimates of points, ``[n]``; and if the flag says so, of its
derivatives by both kinds of columns."""


class CorrectedEstimate(DifferentiableCostModel):
    """The analytic estimate, and what a model adds to its logarithm once it has learned.

    Args:
        target: What the programs are for.
        published: Whether features are as smooth as Felix has them.
    """

    def __init__(self, target: Target, published: bool = False) -> None:
        self._estimate = AnalyticEstimate(target)
        self._features = RelaxedFeatures(target, FELIX if published else None)
        smoothing = "+felix" if published else ""
        # Meaning of the columns; what was learned from others is not to be used.
        self._version = f"{RELAXED_VERSION}{smoothing}+{'-'.join(self._estimate.components)}"

    def _estimated(self, sketch: Sketch, rows: Values) -> tuple[Values, Values, Values]:
        """Seconds of the components, logarithm of the estimate, and shares; see the points."""
        seconds = self._estimate.seconds(sketch, rows)
        none = np.zeros(len(self._estimate.components))
        return (seconds, *self._estimate.joined(seconds, none))

    def _at(self, sketch: Sketch, rows: Values) -> ProgramPoints:
        """Points ``[n, params]`` of a sketch.

        Raises:
            InvalidValueError: the points do not fit the sketch or are outside its bounds, or the
                sketch cannot be relaxed.
        """
        estimated, features = self._estimated(sketch, rows), self._features.at(sketch, rows)
        return ProgramPoints(*estimated, features, rows, sketch, self._estimate)

    @abstractmethod
    def _adding(self, sketch: Sketch) -> Adding | None:
        """Maker of what is added at points of a sketch; None where the estimate stands alone."""

    def relaxed(self, sketch: Sketch, rows: Values) -> tuple[Values, Values]:
        """The logarithm of the predicted seconds, up to a constant, and its gradient."""
        adding = self._adding(sketch)
        if adding is None or not len(rows):
            seconds, latency, shares = self._estimated(sketch, rows)
            return latency, self._estimate.gradient(sketch, rows, seconds, shares)
        points = self._at(sketch, rows)
        added, *slopes = adding(points, True)
        return points.latency + added, points.gradient(*slopes)

    def predict(self, batch: CandidateBatch) -> Values:
        """Minus the logarithm of the predicted seconds, up to a constant, [n]."""
        return -batch.each(lambda sketch, matrix: self._latency(sketch, matrix.astype(np.float64)))

    def _latency(self, sketch: Sketch, rows: Values) -> Values:
        adding = self._adding(sketch)
        if adding is None or not len(rows):
            return self._estimated(sketch, rows)[1]
        points = self._at(sketch, rows)
        return np.asarray(points.latency + adding(points, False)[0])

    def feature_slopes(
        self, sketch: Sketch, rows: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Seconds of the estimate's components, and relaxed columns of each statement.

        What is added depends on the components relative to the estimate; the slopes count both
        ways.
        """
        adding = self._adding(sketch)
        if adding is None or not len(rows):
            seconds, _, shares = self._estimated(sketch, rows)
            return self._estimate.components, seconds, shares * np.log(2.0)
        points = self._at(sketch, rows)
        return points.slopes(*adding(points, True)[1:])
