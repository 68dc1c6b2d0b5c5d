"""One sketch with one configuration on two compilers: the programs compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from made_workloads import ALIGNED_WORKLOADS
from thinning import thinned

pytest.importorskip("tvm")

from autotune_mlir.backend import MLIRBackend
from autotune_tvm.backend import TVMBackend

from autotune.backends import Backend, BuildRequest, bind_copies
from autotune.ir.workloads import (
    Workload,
    random_inputs,
)
from autotune.measure.validation import expectations, mismatch
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target, detect_cpu


def outputs_of(backend: Backend, candidate: Candidate, target: Target) -> list[np.ndarray]:
    """What a candidate computes of random numbers."""
    workload = candidate.sketch.workload
    arrays = random_inputs(workload, np.random.default_rng(0))
    request = BuildRequest(workload, None, candidate, target, 1)
    inputs = [arrays[tensor.name] for tensor in workload.inputs]
    call = bind_copies(backend.build(request), workload, inputs)
    call.poison()
    call.run()
    return call.outputs()


@pytest.mark.parametrize("workload", thinned(ALIGNED_WORKLOADS, 5))
def test_a_candidate_computes_the_same_with_both(workload: Workload) -> None:
    target = detect_cpu()
    mlir, tvm = MLIRBackend(), TVMBackend()
    space = SketchSpace(workload, target, mlir.limits(target))
    # Whole numbers are equal, others within what their roundings may come to.
    for candidate in space.sample(len(space.sketches()), np.random.default_rng(0)):
        expected = expectations(workload, outputs_of(tvm, candidate, target))
        different = mismatch(expected, outputs_of(mlir, candidate, target))
        assert different is None, f"{candidate.sketch.name} {candidate.config}: {different}"
