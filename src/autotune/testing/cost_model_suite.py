"""Conformance suite of cost models; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.cost_models import CostModel
from autotune.errors import InvalidValueError
from autotune.records import Outcome
from autotune.sketches import Candidate, CandidateBatch
from autotune.testing.toy_space import ToySpace, toy_outcome

CostModelFactory = Callable[[], CostModel]
Told = list[tuple[Candidate, Outcome]]


class CostModelSuite:
    """What every cost model promises."""

    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        """Makes an untrained model, an equal one at each call."""
        raise NotImplementedError("give the fixture 'cost_model_factory'")

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        """Something to predict."""
        return ToySpace().sample(50, np.random.default_rng(1))

    @pytest.fixture
    def outcomes(self) -> Told:
        """Something to learn from, failures included."""
        candidates = list(ToySpace().sample(40, np.random.default_rng(2)))
        return [(candidate, toy_outcome(candidate)) for candidate in candidates]

    def test_predictions_are_numbers_before_and_after_learning(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch, outcomes: Told
    ) -> None:
        model = cost_model_factory()
        for told in ([], outcomes[:1], outcomes[1:]):
            model.update(told)
            scores = model.predict(batch)
            assert scores.shape == (len(batch),) and scores.dtype == np.float64
            assert np.isfinite(scores).all()

    def test_an_empty_batch_has_no_scores(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch, outcomes: Told
    ) -> None:
        model = cost_model_factory()
        empty = CandidateBatch(tuple((sketch, rows[:0]) for sketch, rows in batch.parts))
        assert model.predict(CandidateBatch(())).shape == (0,)
        model.update(outcomes)
        assert model.predict(empty).shape == (0,)
        assert model.predict(CandidateBatch(())).shape == (0,)

    def test_predicting_changes_nothing(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch, outcomes: Told
    ) -> None:
        model = cost_model_factory()
        model.update(outcomes)
        before = json.dumps(model.state())
        first = model.predict(batch)
        np.testing.assert_array_equal(model.predict(batch), first)
        assert json.dumps(model.state()) == before

    def test_a_score_does_not_depend_on_the_rest_of_the_batch(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch, outcomes: Told
    ) -> None:
        model = cost_model_factory()
        model.update(outcomes)
        candidates = list(batch)
        singles = [model.predict(CandidateBatch.of([item]))[0] for item in candidates[::7]]
        np.testing.assert_allclose(singles, model.predict(batch)[::7], rtol=1e-9)

    def test_the_same_updates_give_the_same_predictions(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch, outcomes: Told
    ) -> None:
        one, other = cost_model_factory(), cost_model_factory()
        for model in (one, other):
            model.update(outcomes[:10])
            model.update(outcomes[10:])
        np.testing.assert_array_equal(one.predict(batch), other.predict(batch))

    @pytest.mark.parametrize("seen", [0, 1, 2, 40])
    def test_state_restores_the_model(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: Told,
        seen: int,
    ) -> None:
        model, other = cost_model_factory(), cost_model_factory()
        model.update(outcomes[:seen])
        other.update(outcomes[-3:])
        other.load_state(_through_json(model.state()))
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))
        for each in (model, other):
            each.update(outcomes[seen:])
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))

    def test_taking_the_state_of_an_untouched_model(
        self, cost_model_factory: CostModelFactory, outcomes: Told
    ) -> None:
        model = cost_model_factory()
        state = model.state()
        kept = json.dumps(state)
        model.update(outcomes)
        assert json.dumps(state) == kept, "a state must not change after it was taken"

    def test_failures_alone_do_no_harm(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch, outcomes: Told
    ) -> None:
        model = cost_model_factory()
        model.update([(candidate, Outcome("crash")) for candidate, _ in outcomes])
        assert np.isfinite(model.predict(batch)).all()

    def test_state_of_another_model_is_refused(self, cost_model_factory: CostModelFactory) -> None:
        model = cost_model_factory()
        with pytest.raises(InvalidValueError):
            model.load_state({**model.state(), "model": "no such model"})


def _through_json(state: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored
