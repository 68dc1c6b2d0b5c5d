"""The MLIR backend keeps what every backend promises."""

from __future__ import annotations

from types import ModuleType

import pytest
from autotune_mlir import bindings, plugin
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import DISTRIBUTIONS
from mlir_modules import product

from autotune.backends import Backend, ImportedProgram
from autotune.ir.workloads import Workload
from autotune.testing.backend_suite import BackendSuite
from autotune.testing.plugin_suite import PluginSuite

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
