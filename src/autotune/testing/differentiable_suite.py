"""Conformance suite of cost models with a gradient; see :mod:`autotune.testing.strategy_suite`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.cost import CostModel, DifferentiableCostModel, Observation
from autotune.nest.relaxed import param_bounds
from autotune.sketches import CandidateBatch, Sketch
from autotune.testing.cost_model_suite import CostModelSuite

__all__ = ["DifferentiableCostModelSuite"]

Values = NDArray[np.float64]

# Central differences of this many octaves, and how far they may be off.
_STEP = 1e-4
_RELATIVE, _ABSOLUTE = 1e-3, 1e-5


class DifferentiableCostModelSuite(CostModelSuite):
    """The contract of cost models with a gradient.

    The fixture ``cost_model_factory`` makes differentiable models.
    """

    @pytest.fixture(params=[False, True], ids=["untrained", "updated"])
    def model(
        self,
        request: pytest.FixtureRequest,
        cost_model_factory: Callable[[], CostModel],
        outcomes: list[Observation],
    ) -> DifferentiableCostModel:
        """A model before and after it has learned something."""
        model = cost_model_factory()
        assert isinstance(model, DifferentiableCostModel)
        if request.param:
            model.update(outcomes)
        return model

    def test_a_prediction_is_minus_the_relaxed_logarithm(
        self, model: DifferentiableCostModel, batch: CandidateBatch
    ) -> None:
        expected = [
            -model.relaxed(sketch, rows.astype(np.float64))[0] for sketch, rows in batch.parts
        ]
        found = model.predict(batch)
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-9, atol=1e-12)

    def test_gradients_are_those_of_differences(
        self, model: DifferentiableCostModel, batch: CandidateBatch
    ) -> None:
        """Between configurations, along random directions in the logarithms."""
        rng = np.random.default_rng(3)
        for sketch, rows in batch.parts:
            points = _between(sketch, rows, rng)
            direction = rng.normal(size=points.shape) * np.log(2.0)
            low, high = (points * np.exp(sign * _STEP * direction) for sign in (-1.0, 1.0))
            slope = (model.relaxed(sketch, high)[0] - model.relaxed(sketch, low)[0]) / (2 * _STEP)
            found = (model.relaxed(sketch, points)[1] * points * direction).sum(axis=1)
            np.testing.assert_allclose(found, slope, rtol=_RELATIVE, atol=_ABSOLUTE)

    def test_values_and_gradients_are_finite_at_all_bounds(
        self, model: DifferentiableCostModel, batch: CandidateBatch
    ) -> None:
        rng = np.random.default_rng(4)
        for sketch, _ in batch.parts:
            bounds = np.array(list(param_bounds(sketch).values()))
            corners = rng.integers(2, size=(16, len(bounds)))
            corners[0], corners[1] = 0, 1
            points = np.where(corners == 1, bounds[:, 1], bounds[:, 0])
            for found in model.relaxed(sketch, points):
                assert np.isfinite(found).all()

    def test_rows_do_not_know_of_each_other(
        self, model: DifferentiableCostModel, batch: CandidateBatch
    ) -> None:
        sketch, rows = batch.parts[0]
        points = rows.astype(np.float64)
        order = np.random.default_rng(5).permutation(len(points))
        for whole, mixed in zip(
            model.relaxed(sketch, points), model.relaxed(sketch, points[order]), strict=True
        ):
            np.testing.assert_allclose(mixed, whole[order], rtol=1e-6, atol=1e-9)
        for whole, alone in zip(
            model.relaxed(sketch, points), model.relaxed(sketch, points[2:3]), strict=True
        ):
            np.testing.assert_allclose(alone[0], whole[2], rtol=1e-6, atol=1e-9)

    def test_no_points_have_no_values(
        self, model: DifferentiableCostModel, batch: CandidateBatch
    ) -> None:
        sketch, rows = batch.parts[0]
        values, gradient = model.relaxed(sketch, rows[:0].astype(np.float64))
        assert values.shape == (0,) and gradient.shape == (0, len(sketch.params))

    def test_points_that_do_not_fit_are_refused(
        self, model: DifferentiableCostModel, batch: CandidateBatch
    ) -> None:
        sketch, rows = batch.parts[0]
        points = rows.astype(np.float64)
        for wrong in (points[:, 1:], points[0], points * 1e6, points * np.nan):
            with pytest.raises(InvalidValueError):
                model.relaxed(sketch, wrong)


def _between(sketch: Sketch, rows: NDArray[np.int64], rng: np.random.Generator) -> Values:
    """Points between pairs of configurations in the logarithms, away from all bounds."""
    low, high = np.array(list(param_bounds(sketch).values())).T
    share = rng.uniform(0.2, 0.8, size=rows.shape)
    low, high = np.log(np.maximum(low, 0.5)), np.log(np.maximum(high, 1.0))
    mixed = share * np.log(np.maximum(rows, 1)) + (1 - share) * np.log(np.maximum(rows[::-1], 1))
    width = high - low
    points: Values = np.exp(np.clip(mixed, low + 0.05 * width, high - 0.05 * width))
    return points
