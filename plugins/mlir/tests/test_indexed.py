"""Reads at quotients and remainders, and where data says: scheduled and computed."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from indexed_workloads import INDEXED_WORKLOADS
from thinning import thinned

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.sketches import CandidateBatch
from autotune.targets import Target
from autotune.testing.programs import check_program, sample_candidates
from autotune.testing.step_suite import StepSuite

# The interpreter of MLIR's transforms may end the process on sketches that keep no stage of it.
WORKLOADS = [workload for workload in INDEXED_WORKLOADS if workload.name != "masked softmax"]


class TestIndexedReads(StepSuite):
    """Nest, features and program of every sketch."""

    @pytest.fixture
    def backend(self, backend: MLIRBackend) -> MLIRBackend:
        return backend

    @pytest.fixture(params=thinned(WORKLOADS, 2), ids=lambda workload: workload.name)
    def batch(
        self, request: pytest.FixtureRequest, backend: MLIRBackend, target: Target
    ) -> CandidateBatch:
        # Of this seed none unrolls hundreds of bodies, which MLIR takes ten seconds for.
        return CandidateBatch.of(sample_candidates(backend, request.param, target, seed=2))


@pytest.mark.parametrize("workload", INDEXED_WORKLOADS, ids=lambda workload: workload.name)
def test_programs_without_a_schedule(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    check_program(backend, BuildRequest(workload, None, None, target, 1))


def test_stages_that_padding_takes_parts_of(backend: MLIRBackend, target: Target) -> None:
    """Their sizes are known when the program runs only: they stay scalars."""
    transposed = next(w for w in INDEXED_WORKLOADS if w.name == "transposed")
    for candidate in sample_candidates(backend, transposed, target, each=6, seed=1):
        backend.lower(BuildRequest(transposed, None, candidate, target, 1))
