"""Conformance suite of steps on a backend; see :mod:`autotune.testing.strategy_suite`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from autotune.backends import Backend
from autotune.models.features import pam_features
from autotune.sketches import Candidate, CandidateBatch, names_used
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_candidate, check_nest


class StepSuite:
    """The contract of steps: nest, features and program are of one schedule.

    Of a step that is not opaque, the effect on the nest is enough for all of them.
    """

    @pytest.fixture
    def backend(self) -> Backend:
        """A backend that has them."""
        raise NotImplementedError("give the fixture 'backend'")

    @pytest.fixture
    def target(self) -> Target:
        """A target that the backend supports and this machine can run; the machine itself."""
        return detect_cpu()

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        """A few candidates of small workloads whose sketches hold the steps."""
        raise NotImplementedError("give the fixture 'batch'")

    def test_they_are_written_and_read_back(self, batch: CandidateBatch) -> None:
        for candidate in batch:
            data = json.loads(json.dumps(candidate.to_json()))
            again = Candidate.from_json(data, candidate.sketch.workload)
            assert again == candidate and again.digest == candidate.digest

    def test_the_backend_says_that_it_has_them(
        self, backend: Backend, target: Target, batch: CandidateBatch
    ) -> None:
        for sketch, _ in batch.parts:
            assert backend.limits(target).missing(names_used(sketch)) == ()

    def test_the_nest_computes_the_workload(self, batch: CandidateBatch) -> None:
        for candidate in batch:
            check_nest(candidate)

    def test_features_are_numbers(self, batch: CandidateBatch, target: Target) -> None:
        for sketch, matrix in batch.parts:
            features = pam_features(sketch, matrix, target)
            assert len(features.values) and np.isfinite(features.values).all()

    def test_programs_compute_the_workload(
        self, backend: Backend, target: Target, batch: CandidateBatch
    ) -> None:
        for candidate in batch:
            check_candidate(backend, candidate, target)
