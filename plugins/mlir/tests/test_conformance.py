"""The MLIR backend keeps what every backend promises."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from autotune_mlir import bindings, plugin
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import DISTRIBUTIONS
from autotune_npu.rule import NpuRule
from mlir_modules import product

from autotune.backends import Backend, ImportedProgram
from autotune.ir.workloads import Workload, gemm
from autotune.sketches import CandidateBatch
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.testing.backend_suite import BackendSuite
from autotune.testing.plugin_suite import PluginSuite
from autotune.testing.step_suite import StepSuite

MATMUL = product("matmul", "public")


class TestPlugin(PluginSuite):
    @pytest.fixture
    def plugin(self) -> ModuleType:
        return plugin


class TestMLIRBackend(BackendSuite):
    heavy_modules = (*DISTRIBUTIONS, "tvm", "torch")

    @pytest.fixture
    def backend(self) -> Backend:
        return MLIRBackend()


@pytest.fixture(scope="module")
def imported() -> ImportedProgram:
    with bindings.load().ir.Context():
        return MLIRBackend().import_program(bindings.load().ir.Module.parse(MATMUL))


@pytest.mark.slow
class TestImportedProgram(TestMLIRBackend):
    @pytest.fixture
    def workload(self, imported: ImportedProgram) -> Workload:
        return imported.workload

    @pytest.fixture
    def program(self, imported: ImportedProgram) -> str:
        return imported.program


class TestSteps(StepSuite):
    @pytest.fixture
    def batch(self, backend: MLIRBackend, target: Target) -> CandidateBatch:
        workload = gemm(m=8, n=12, k=6)
        space = SketchSpace(workload, target, backend.limits(target), [NpuRule()])
        return space.sample(3, np.random.default_rng(0))

    @pytest.fixture
    def backend(self) -> MLIRBackend:
        return MLIRBackend()
