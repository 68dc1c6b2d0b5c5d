"""Random candidates of GPU sketches on a device, run by TVM: they compute the reference."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import cuda_target
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.spaces import SketchSpace
from autotune.targets import preset

pytestmark = pytest.mark.gpu

TARGET = preset("h100")
WORKLOADS = (
    gemm(m=64, n=96, k=80),
    batch_matmul(b=3, m=33, n=40, k=50),
    conv2d(h=13, w=11, ci=4, co=16, pad=1, stride=2, bias=1, relu=1),
    softmax(m=12, n=256),
)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload.name))
def test_candidates_compute_the_reference(workload: Workload) -> None:
    device = tvm.cuda(0)
    backend = TVMBackend()
    space = SketchSpace(workload, TARGET, backend.limits(TARGET))
    inputs = random_inputs(workload, np.random.default_rng(7))
    expected = reference_outputs(workload, inputs)
    # The device's own architecture: code for another one may not load.
    architecture = "sm_" + device.compute_version.replace(".", "")
    target = tvm.target.Target({**cuda_target(TARGET), "arch": architecture})
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(5)):
        module = schedule(module_for(workload), candidate, workload).mod
        built = tvm.compile(module, target=target)
        arrays = [tvm.runtime.tensor(inputs[it.name], device=device) for it in workload.inputs]
        outputs = [
            tvm.runtime.tensor(np.full_like(expected[name], np.nan), device=device)
            for name in workload.outputs
        ]
        built["main"](*arrays, *outputs)
        device.sync()
        for name, output in zip(workload.outputs, outputs, strict=True):
            np.testing.assert_allclose(output.numpy(), expected[name], rtol=1e-4, atol=1e-4)
