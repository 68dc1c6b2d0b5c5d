"""Steps of another distribution, of which this backend needs the effect on the nest alone."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_npu.rule import NpuRule
from autotune_tvm.backend import TVMBackend

from autotune.ir.workloads import gemm
from autotune.sketches import CandidateBatch
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.testing.step_suite import StepSuite


class TestSteps(StepSuite):
    @pytest.fixture
    def batch(self, backend: TVMBackend, target: Target) -> CandidateBatch:
        workload = gemm(m=8, n=12, k=6)
        space = SketchSpace(workload, target, backend.limits(target), [NpuRule()])
        return space.sample(3, np.random.default_rng(0))

    @pytest.fixture
    def backend(self) -> TVMBackend:
        return TVMBackend()
