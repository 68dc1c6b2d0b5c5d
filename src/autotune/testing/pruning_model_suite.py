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

    def test_it_has_a_name(self, pruning_model_factory: PruningModelFactory) -> None:
        name = pruning_model_factory().name
        assert isinstance(name, str) and name

    def test_scores_are_numbers(
        self, pruning_model_factory: PruningModelFactory, batch: CandidateBatch
    ) -> None:
        scores = pruning_model_factory().score(batch)
        assert scores.shape == (len(batch),) and scores.dtype == np.float64
        assert np.isfinite(scores).all()

    def test_an_empty_batch_has_no_scores(
        self, pruning_model_factory: PruningModelFactory, batch: CandidateBatch
    ) -> None:
        model = pruning_model_factory()
        empty = CandidateBatch(tuple((sketch, rows[:0]) for sketch, rows in batch.parts))
        assert model.score(CandidateBatch(())).shape == (0,)
        assert model.score(empty).shape == (0,)

    def test_scores_are_deterministic(
        self, pruning_model_factory: PruningModelFactory, batch: CandidateBatch
    ) -> None:
        model = pruning_model_factory()
        first = model.score(batch)
        np.testing.assert_array_equal(model.score(batch), first)
        np.testing.assert_array_equal(pruning_model_factory().score(batch), first)

    def test_a_score_does_not_depend_on_the_rest_of_the_batch(
        self, pruning_model_factory: PruningModelFactory, batch: CandidateBatch
    ) -> None:
        model = pruning_model_factory()
        candidates = list(batch)
        singles = [model.score(CandidateBatch.of([item]))[0] for item in candidates[::7]]
        np.testing.assert_allclose(singles, model.score(batch)[::7], rtol=1e-9)
