"""Conformance suite of cost models; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.models.cost import CostModel, Observation, TrainableCostModel, TrainingGroup
from autotune.sketches import CandidateBatch
from autotune.store.records import Outcome
from autotune.testing.toy_space import ToySpace, toy_outcome

CostModelFactory = Callable[[], CostModel]


class CostModelSuite:
    """The contract of cost models."""

    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        """Makes an untrained model, an equal one at each call."""
        raise NotImplementedError("give the fixture 'cost_model_factory'")

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        """Something to predict."""
        return ToySpace().sample(50, np.random.default_rng(1))

    @pytest.fixture
    def outcomes(self) -> list[Observation]:
        """Something to learn from, failures included."""
        candidates = list(ToySpace().sample(40, np.random.default_rng(2)))
        return [(candidate, toy_outcome(candidate)) for candidate in candidates]

    def test_predictions_are_numbers_before_and_after_learning(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        model = cost_model_factory()
        for told in ([], outcomes[:1], outcomes[1:]):
            model.update(told)
            scores = model.predict(batch)
            assert scores.shape == (len(batch),) and scores.dtype == np.float64
            assert np.isfinite(scores).all()

    def test_an_empty_batch_has_no_scores(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        model = cost_model_factory()
        empty = CandidateBatch(tuple((sketch, rows[:0]) for sketch, rows in batch.parts))
        assert model.predict(CandidateBatch(())).shape == (0,)
        model.update(outcomes)
        assert model.predict(empty).shape == (0,)
        assert model.predict(CandidateBatch(())).shape == (0,)

    def test_predicting_changes_nothing(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        model = cost_model_factory()
        model.update(outcomes)
        before = json.dumps(model.state())
        first = model.predict(batch)
        np.testing.assert_array_equal(model.predict(batch), first)
        assert json.dumps(model.state()) == before

    def test_a_score_does_not_depend_on_the_rest_of_the_batch(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        model = cost_model_factory()
        model.update(outcomes)
        candidates = list(batch)
        singles = [model.predict(CandidateBatch.of([item]))[0] for item in candidates[::7]]
        np.testing.assert_allclose(singles, model.predict(batch)[::7], rtol=1e-9)

    def test_the_same_updates_give_the_same_predictions(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
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
        outcomes: list[Observation],
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
        self, cost_model_factory: CostModelFactory, outcomes: list[Observation]
    ) -> None:
        model = cost_model_factory()
        state = model.state()
        kept = json.dumps(state)
        model.update(outcomes)
        assert json.dumps(state) == kept, "a state must not change after it was taken"

    def test_failures_alone_do_no_harm(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        model = cost_model_factory()
        model.update([(candidate, Outcome("crash")) for candidate, _ in outcomes])
        assert np.isfinite(model.predict(batch)).all()

    def test_warming_up_teaches_nothing(
        self, cost_model_factory: CostModelFactory, batch: CandidateBatch
    ) -> None:
        model, other = cost_model_factory(), cost_model_factory()
        model.warm_up()
        assert json.dumps(model.state()) == json.dumps(other.state())
        np.testing.assert_array_equal(model.predict(batch), other.predict(batch))

    def test_state_of_another_model_is_refused(self, cost_model_factory: CostModelFactory) -> None:
        model = cost_model_factory()
        for name in {"model", "feature_version"} & model.state().keys():
            with pytest.raises(InvalidValueError):
                model.load_state({**model.state(), name: "no such"})


class TrainableCostModelSuite(CostModelSuite):
    """The contract of cost models that are trained on recorded data and saved to files.

    The fixture ``cost_model_factory`` makes trainable models.
    """

    @pytest.fixture
    def groups(self, outcomes: list[Observation]) -> list[TrainingGroup]:
        """Something to train on: two tasks, failures included."""
        candidates = list(ToySpace(16).sample(40, np.random.default_rng(4)))
        other = tuple((candidate, toy_outcome(candidate)) for candidate in candidates)
        found = (("one", tuple(outcomes)), ("other", other))
        return [
            TrainingGroup(name, told[0][0].sketch.workload.digest, told) for name, told in found
        ]

    def test_what_is_saved_is_loaded(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        groups: list[TrainingGroup],
        outcomes: list[Observation],
    ) -> None:
        model, other = _trainable(cost_model_factory), _trainable(cost_model_factory)
        assert model.fit(groups)
        other.update(outcomes[:3])
        other.load(_saved(model))
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))
        for each in (model, other):
            each.update(outcomes)
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))

    def test_an_untrained_model_is_saved_and_loaded(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        model, other = _trainable(cost_model_factory), _trainable(cost_model_factory)
        other.update(outcomes)
        other.load(_saved(model))
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))

    def test_a_state_is_restored_on_top_of_the_same_file(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        groups: list[TrainingGroup],
        outcomes: list[Observation],
    ) -> None:
        fitted = _trainable(cost_model_factory)
        fitted.fit(groups)
        model, other = _trainable(cost_model_factory), _trainable(cost_model_factory)
        model.load(_saved(fitted))
        other.load(_saved(fitted))
        model.update(outcomes[:20])
        other.load_state(_through_json(model.state()))
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))
        for each in (model, other):
            each.update(outcomes[20:])
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))

    def test_a_state_on_top_of_another_file_is_refused(
        self,
        cost_model_factory: CostModelFactory,
        groups: list[TrainingGroup],
        outcomes: list[Observation],
    ) -> None:
        model, other = _trainable(cost_model_factory), _trainable(cost_model_factory)
        for each, told in ((model, groups), (other, groups[:1])):
            fitted = _trainable(cost_model_factory)
            fitted.fit(told)
            each.load(_saved(fitted))
        model.update(outcomes[:3])
        for different in (other, cost_model_factory()):
            with pytest.raises(InvalidValueError, match="file"):
                different.load_state(_through_json(model.state()))

    def test_fitting_forgets_what_was_learned_before(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        groups: list[TrainingGroup],
        outcomes: list[Observation],
    ) -> None:
        model, other = _trainable(cost_model_factory), _trainable(cost_model_factory)
        model.update(outcomes[:10])
        for each in (model, other):
            each.fit(groups)
        np.testing.assert_array_equal(other.predict(batch), model.predict(batch))

    def test_fitting_to_failures_changes_nothing(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        groups: list[TrainingGroup],
    ) -> None:
        model = _trainable(cost_model_factory)
        model.fit(groups)
        before = model.predict(batch)
        failed = tuple((candidate, Outcome("crash")) for candidate, _ in groups[0].outcomes)
        for nothing in ([], [TrainingGroup("failed", groups[0].workload, failed)]):
            assert not model.fit(nothing)
            np.testing.assert_array_equal(model.predict(batch), before)

    def test_equal_models_are_saved_as_equal_files(
        self, cost_model_factory: CostModelFactory, groups: list[TrainingGroup]
    ) -> None:
        files = []
        for _ in range(2):
            model = _trainable(cost_model_factory)
            model.fit(groups)
            files.append(_saved(model).getvalue())
        assert files[0] == files[1]

    def test_damaged_files_are_refused(
        self, cost_model_factory: CostModelFactory, groups: list[TrainingGroup]
    ) -> None:
        model = _trainable(cost_model_factory)
        model.fit(groups)
        content = _saved(model).getvalue()
        for damaged in (b"", b"no such file", content[: len(content) // 2]):
            with pytest.raises(InvalidValueError):
                model.load(io.BytesIO(damaged))


def _trainable(factory: CostModelFactory) -> TrainableCostModel:
    model = factory()
    assert isinstance(model, TrainableCostModel)
    return model


def _saved(model: TrainableCostModel) -> io.BytesIO:
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    return stream


def _through_json(state: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored
