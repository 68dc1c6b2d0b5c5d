"""The TVM backend keeps what every backend promises, on its own programs and on imported ones."""

from __future__ import annotations

import inspect

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for

from autotune.backends import Backend
from autotune.ir.workloads import Workload
from autotune.testing.backend_suite import BackendSuite


class TestTVMBackend(BackendSuite):
    heavy_modules = ("tvm", "tvm_ffi", "torch")

    @pytest.fixture
    def backend(self) -> Backend:
        return TVMBackend()


@pytest.mark.slow
class TestImportedProgram(TestTVMBackend):
    @pytest.fixture
    def program(self, backend: Backend, workload: Workload) -> str:
        return backend.import_program(module_for(workload)).program


# What does not ask for the program is tried above.
for _name, _test in inspect.getmembers(BackendSuite, inspect.isfunction):
    if _name.startswith("test_") and "program" not in inspect.signature(_test).parameters:
        setattr(TestImportedProgram, _name, None)
