"""The TVM backend keeps what every backend promises, on its own programs and on imported ones."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for

from autotune.backends import Backend
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, Sketch, Tile
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target
from autotune.testing.backend_suite import BackendSuite


class TestTVMBackend(BackendSuite):
    heavy_modules = ("tvm", "tvm_ffi", "torch")

    @pytest.fixture
    def backend(self) -> Backend:
        return TVMBackend()

    @pytest.fixture
    def candidates(self, backend: Backend, target: Target, workload: Workload) -> list[Candidate]:
        space = SketchSpace(workload, target, backend.limits(target))
        return list(space.sample(8, np.random.default_rng(3)))

    @pytest.fixture
    def invalid_candidate(self, workload: Workload) -> Candidate:
        steps = (Tile("C", "i", (const(5), const(3))),)
        return Candidate(Sketch("broken", workload, (), (), steps), ())


@pytest.mark.slow
class TestImportedProgram(TestTVMBackend):
    @pytest.fixture
    def program(self, backend: Backend, workload: Workload) -> str:
        return backend.import_program(module_for(workload)).program
