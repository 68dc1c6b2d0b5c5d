"""The MLIR backend keeps what every backend promises."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import DISTRIBUTIONS

from autotune.backends import Backend
from autotune.expressions import const
from autotune.sketches import Candidate, Sketch, Tile
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.backend_suite import BackendSuite
from autotune.workloads import Workload


class TestMLIRBackend(BackendSuite):
    heavy_modules = (*DISTRIBUTIONS, "tvm", "torch")

    @pytest.fixture
    def backend(self) -> Backend:
        return MLIRBackend()

    @pytest.fixture
    def candidates(self, backend: Backend, target: Target, workload: Workload) -> list[Candidate]:
        space = SketchSpace(workload, target, backend.limits(target))
        return list(space.sample(8, np.random.default_rng(3)))

    @pytest.fixture
    def invalid_candidate(self, workload: Workload) -> Candidate:
        steps = (Tile("C", "i", (const(5), const(3))),)
        return Candidate(Sketch("broken", workload, (), (), steps), ())
