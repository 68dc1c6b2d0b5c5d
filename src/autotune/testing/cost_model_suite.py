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

    @pytest.fixture(autouse=True)
    def _given(
        self,
        cost_model_factory: CostModelFactory,
        batch: CandidateBatch,
        outcomes: list[Observation],
    ) -> None:
        self.make_, self.batch_, self.outcomes_ = cost_model_factory, batch, outcomes

    def test_predictions_are_numbers_before_and_after_learning(self) -> None:
        model = self.make_()
        for told in ([], self.outcomes_[:1], self.outcomes_[1:]):
            model.update(told)
            scores = model.predict(self.batch_)
            assert scores.shape == (len(self.batch_),) and scores.dtype == np.float64
            assert np.isfinite(scores).all()

    def test_an_empty_batch_has_no_scores(self) -> None:
        model = self.make_()
        empty = CandidateBatch(tuple((sketch, rows[:0]) for sketch, rows in self.batch_.parts))
        assert model.predict(CandidateBatch(())).shape == (0,)
        model.update(self.outcomes_)
        assert model.predict(empty).shape == (0,)
        assert model.predict(CandidateBatch(())).shape == (0,)

    def test_predicting_changes_nothing(self) -> None:
        model = self.make_()
        model.update(self.outcomes_)
        before = json.dumps(model.state())
        first = model.predict(self.batch_)
        np.testing.assert_array_equal(model.predict(self.batch_), first)
        assert json.dumps(model.state()) == before

    def test_a_score_does_not_depend_on_the_rest_of_the_batch(self) -> None:
        model = self.make_()
        model.update(self.outcomes_)
        candidates = list(self.batch_)
        singles = [model.predict(CandidateBatch.of([item]))[0] for item in candidates[::7]]
        np.testing.assert_allclose(singles, model.predict(self.batch_)[::7], rtol=1e-9)

    def test_the_same_updates_give_the_same_predictions(self) -> None:
        one, other = self.make_(), self.make_()
        for model in (one, other):
            model.update(self.outcomes_[:10])
            model.update(self.outcomes_[10:])
        np.testing.assert_array_equal(one.predict(self.batch_), other.predict(self.batch_))

    @pytest.mark.parametrize("seen", [0, 1, 2, 40])
    def test_state_restores_the_model(self, seen: int) -> None:
        model, other = self.make_(), self.make_()
        model.update(self.outcomes_[:seen])
        other.update(self.outcomes_[-3:])
        other.load_state(_through_json(model.state()))
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))
        for each in (model, other):
            each.update(self.outcomes_[seen:])
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))

    def test_taking_the_state_of_an_untouched_model(self) -> None:
        model = self.make_()
        state = model.state()
        kept = json.dumps(state)
        model.update(self.outcomes_)
        assert json.dumps(state) == kept, "a state must not change after it was taken"

    def test_failures_alone_do_no_harm(self) -> None:
        model = self.make_()
        model.update([(candidate, Outcome("crash")) for candidate, _ in self.outcomes_])
        assert np.isfinite(model.predict(self.batch_)).all()

    def test_warming_up_teaches_nothing(self) -> None:
        model, other = self.make_(), self.make_()
        model.warm_up()
        assert json.dumps(model.state()) == json.dumps(other.state())
        np.testing.assert_array_equal(model.predict(self.batch_), other.predict(self.batch_))

    def test_state_of_another_model_is_refused(self) -> None:
        model = self.make_()
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

    @pytest.fixture(autouse=True)
    def _trained_on(self, groups: list[TrainingGroup]) -> None:
        self.groups_ = groups

    def _made(self) -> TrainableCostModel:
        model = self.make_()
        assert isinstance(model, TrainableCostModel)
        return model

    def test_what_is_saved_is_loaded(self) -> None:
        model, other = self._made(), self._made()
        assert model.fit(self.groups_)
        other.update(self.outcomes_[:3])
        other.load(_saved(model))
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))
        for each in (model, other):
            each.update(self.outcomes_)
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))

    def test_an_untrained_model_is_saved_and_loaded(self) -> None:
        model, other = self._made(), self._made()
        other.update(self.outcomes_)
        other.load(_saved(model))
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))

    def test_a_state_is_restored_on_top_of_the_same_file(self) -> None:
        fitted = self._made()
        fitted.fit(self.groups_)
        model, other = self._made(), self._made()
        model.load(_saved(fitted))
        other.load(_saved(fitted))
        model.update(self.outcomes_[:20])
        other.load_state(_through_json(model.state()))
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))
        for each in (model, other):
            each.update(self.outcomes_[20:])
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))

    def test_a_state_on_top_of_another_file_is_refused(self) -> None:
        model, other = self._made(), self._made()
        for each, told in ((model, self.groups_), (other, self.groups_[:1])):
            fitted = self._made()
            fitted.fit(told)
            each.load(_saved(fitted))
        model.update(self.outcomes_[:3])
        for different in (other, self.make_()):
            with pytest.raises(InvalidValueError, match="file"):
                different.load_state(_through_json(model.state()))

    def test_fitting_forgets_what_was_learned_before(self) -> None:
        model, other = self._made(), self._made()
        model.update(self.outcomes_[:10])
        for each in (model, other):
            each.fit(self.groups_)
        np.testing.assert_array_equal(other.predict(self.batch_), model.predict(self.batch_))

    def test_fitting_to_failures_changes_nothing(self) -> None:
        model = self._made()
        model.fit(self.groups_)
        before = model.predict(self.batch_)
        failed = tuple((candidate, Outcome("crash")) for candidate, _ in self.groups_[0].outcomes)
        for nothing in ([], [TrainingGroup("failed", self.groups_[0].workload, failed)]):
            assert not model.fit(nothing)
            np.testing.assert_array_equal(model.predict(self.batch_), before)

    def test_equal_models_are_saved_as_equal_files(self) -> None:
        files = []
        for _ in range(2):
            model = self._made()
            model.fit(self.groups_)
            files.append(_saved(model).getvalue())
        assert files[0] == files[1]

    def test_damaged_files_are_refused(self) -> None:
        model = self._made()
        model.fit(self.groups_)
        content = _saved(model).getvalue()
        for damaged in (b"", b"no such file", content[: len(content) // 2]):
            with pytest.raises(InvalidValueError):
                model.load(io.BytesIO(damaged))


def _saved(model: TrainableCostModel) -> io.BytesIO:
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    return stream


def _through_json(state: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored
