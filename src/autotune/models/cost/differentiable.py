"""The interface of a cost model that strategies can descend along."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.cost.cost_model import CostModel
from autotune.sketches import CandidateBatch, Sketch

__all__ = ["DifferentiableCostModel", "require_differentiable"]

Values = NDArray[np.float64]


class DifferentiableCostModel(CostModel):
    """A cost model that is a smooth function of real-valued parameters.

    What it is trained on, what it ranks and what is descended along is one function: a prediction
    is minus :meth:`relaxed` at whole numbers.
    """

    @abstractmethod
    def relaxed(self, sketch: Sketch, rows: Values) -> tuple[Values, Values]:
        """Predicted latency and its gradient at points between configurations.

        Args:
            sketch: What the points are of.
            rows: float64 ``[n, params]``, one point a row, within
                :func:`autotune.nest.relaxed.param_bounds`.

        Returns:
            The natural logarithm of seconds, up to a constant for each task, ``[n]``; and its
            gradient by the values of the parameters, ``[n, params]``.

        Raises:
            InvalidValueError: the rows have another shape or type or are outside the bounds, or
                the sketch cannot be relaxed.
        """

    def predict(self, batch: CandidateBatch) -> Values:
        """Minus the predicted logarithm of latency, [n]; higher is better."""
        parts = [
            self.relaxed(sketch, matrix.astype(np.float64))[0] for sketch, matrix in batch.parts
        ]
        return -np.concatenate([np.zeros(0), *parts])

    def feature_slopes(
        self, sketch: Sketch, rows: Values
    ) -> tuple[tuple[str, ...], Values, Values]:
        """Features that the model reads of points, and the weight of each.

        Args:
            sketch: What the points are of.
            rows: As for :meth:`relaxed`.

        Returns:
            Names of features; their values, ``[n, features]``; and the derivative of the natural
            logarithm of latency for each doubling of what a feature says, ``[n, features]``. By
            default there are none.
        """
        return (), np.zeros((len(rows), 0)), np.zeros((len(rows), 0))


def require_differentiable(
    model: CostModel, allowed: Iterable[str] = ("analytic",)
) -> DifferentiableCostModel:
    """The model, if it has a gradient.

    A model in a process of its own is taken to have one here, and is asked by its first
    :meth:`~DifferentiableCostModel.relaxed`, which raises the same error.

    Args:
        model: Any cost model.
        allowed: Names of cost models that have one, for the message.

    Raises:
        InvalidValueError: it has none.
    """
    if isinstance(model, DifferentiableCostModel):
        return model
    raise InvalidValueError(
        f"cost model {model.name!r} has no gradient to descend along; those that have one: "
        f"{', '.join(sorted(allowed))}"
    )
