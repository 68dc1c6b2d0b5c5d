"""One sketch with one configuration on two compilers: the programs compute the same."""

from __future__ import annotations

import numpy as np
import pytest
from thinning import thinned

pytest.importorskip("tvm")

from autotune_mlir.backend import MLIRBackend
from autotune_tvm.backend import TVMBackend

from autotune.backends import Backend, BuildRequest, bind_copies
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    random_inputs,
    softmax,
)
from autotune.measure.validation import expectations, mismatch
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import Target, detect_cpu

WORKLOADS = (
    gemm(m=48, n=64, k=32),
    gemm(m=16, n=32, k=32, dtype="int8"),
    gemm(m=13, n=24, k=20, dtype="float64"),
    batch_matmul(b=3, m=16, n=32, k=16),
    dense(m=32, n=64, k=64),
    conv2d(h=14, w=14, ci=16, co=32, pad=1, bias=1, relu=1),
    conv2d(h=15, w=15, ci=8, co=16, kh=5, kw=3, dilation=2, stride=3),
    depthwise_conv2d(h=14, w=14, c=32, pad=1, stride=2),
    softmax(m=12, n=256),
    elementwise(m=8, n=48),
)


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


@pytest.mark.parametrize(
    "workload",
    thinned(WORKLOADS, 5),
    ids=lambda workload: f"{workload.name} {' '.join(map(str, workload.parameters.values()))}",
)
def test_a_candidate_computes_the_same_with_both(workload: Workload) -> None:
    target = detect_cpu()
    mlir, tvm = MLIRBackend(), TVMBackend()
    space = SketchSpace(workload, target, mlir.limits(target))
    # Whole numbers are equal, others within what their roundings may come to.
    for candidate in space.sample(len(space.sketches()), np.random.default_rng(0)):
        expected = expectations(workload, outputs_of(tvm, candidate, target))
        different = mismatch(expected, outputs_of(mlir, candidate, target))
        assert different is None, f"{candidate.sketch.name} {candidate.config}: {different}"
