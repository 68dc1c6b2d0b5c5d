"""Reads at quotients and remainders, and where data says: scheduled and computed."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from indexed_workloads import INDEXED_WORKLOADS

from autotune.backends import BuildRequest
from autotune.ir.workloads import Workload
from autotune.targets import Target
from autotune.testing.programs import check_program


@pytest.mark.parametrize("workload", INDEXED_WORKLOADS, ids=lambda workload: workload.name)
def test_programs_without_a_schedule(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    check_program(backend, BuildRequest(workload, None, None, target, 1))
