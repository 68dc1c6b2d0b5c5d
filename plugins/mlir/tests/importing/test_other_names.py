"""Records of a program apply to every equal one, whatever its tensors and axes are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from other_names import check_answers_from_records
from renamed_workloads import respelled

from autotune.ir.workloads import dense


@pytest.mark.slow
def test_a_record_is_applied_under_other_names(tmp_path: Path) -> None:
    workload = dense(m=16, n=32, k=24)
    other = respelled(workload, 7)
    check_answers_from_records(workload, other, other, tmp_path, backend="mlir")
