"""Names of workloads for parametrised tests."""

from __future__ import annotations

from autotune.ir.workloads import Workload


def named(workload: Workload) -> str:
    """Its name and the values of its parameters."""
    return f"{workload.name} {' '.join(map(str, workload.parameters.values()))}"
