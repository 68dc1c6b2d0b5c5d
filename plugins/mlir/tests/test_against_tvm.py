"""One sketch with one configuration on two compilers: the programs compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_tvm.backend import TVMBackend
from made_workloads import ALIGNED_WORKLOADS
from thinning import thinned

from autotune.ir.workloads import Workload, random_inputs
from autotune.measure.validation import expectations, mismatch
from autotune.targets import detect_cpu
from autotune.testing.programs import request_for, run_executable, sample_candidates


@pytest.mark.parametrize("workload", thinned(ALIGNED_WORKLOADS, 5))
def test_a_candidate_computes_the_same_with_both(workload: Workload) -> None:
    target, mlir, tvm = detect_cpu(), MLIRBackend(), TVMBackend()
    arrays = random_inputs(workload, np.random.default_rng(0))
    # Whole numbers are equal, others within what their roundings may come to.
    for candidate in sample_candidates(mlir, workload, target):
        request = request_for(candidate, target)
        theirs, ours = (
            run_executable(backend.build(request), workload, arrays) for backend in (tvm, mlir)
        )
        different = mismatch(expectations(workload, theirs), ours)
        assert different is None, f"{candidate.sketch.name} {candidate.config}: {different}"
