"""Conformance suite of pruning models; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.models.pruning import PruningModel
from autotune.sketches import CandidateBatch
from autotune.testing.toy_space import ToySpace

PruningModelFactory = Callable[[], PruningModel]


class PruningModelSuite:
    """The contract of pruning models."""

    @pytest.fixture
    def pruning_model_factory(self) -> PruningModelFactory:
        """Makes the model, an equal one at each call."""
        raise NotImplementedError("give the fixture 'pruning_model_factory'")

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        """Something to score."""
        return ToySpace().sample(50, np.random.default_rng(1))

    @pytest.fixture(autouse=True)
    def _given(self, pruning_model_factory: PruningModelFactory, batch: CandidateBatch) -> None:
        self.make_, self.batch_ = pruning_model_factory, batch

    def test_it_has_a_name(self) -> None:
        name = self.make_().name
        assert isinstance(name, str) and name

    def test_scores_are_numbers(self) -> None:
        scores = self.make_().score(self.batch_)
        assert scores.shape == (len(self.batch_),) and scores.dtype == np.float64
        assert np.isfinite(scores).all()

    def test_an_empty_batch_has_no_scores(self) -> None:
        model = self.make_()
        empty = CandidateBatch(tuple((sketch, rows[:0]) for sketch, rows in self.batch_.parts))
        assert model.score(CandidateBatch(())).shape == (0,)
        assert model.score(empty).shape == (0,)

    def test_scores_are_deterministic(self) -> None:
        model = self.make_()
        first = model.score(self.batch_)
        np.testing.assert_array_equal(model.score(self.batch_), first)
        np.testing.assert_array_equal(self.make_().score(self.batch_), first)

    def test_a_score_does_not_depend_on_the_rest_of_the_batch(self) -> None:
        model = self.make_()
        candidates = list(self.batch_)
        singles = [model.score(CandidateBatch.of([item]))[0] for item in candidates[::7]]
        np.testing.assert_allclose(singles, model.score(self.batch_)[::7], rtol=1e-9)
