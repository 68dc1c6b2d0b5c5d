"""What a loop does not change is computed before it, and only where that may be read."""

from __future__ import annotations

import pytest
from row_loops import innermost_loops, rows_over_roots

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload, softmax
from autotune.targets import detect_cpu
from autotune.testing.programs import request_for, sample_candidates

BACKEND, TARGET = NativeBackend(), detect_cpu()
ROWS, COLUMNS = 8, 1000


@pytest.mark.parametrize(
    "workload",
    [rows_over_roots(ROWS, COLUMNS), softmax(m=ROWS, n=COLUMNS)],
    ids=lambda it: it.name,
)
def test_no_loop_along_a_row_divides_or_takes_roots(workload: Workload) -> None:
    seen = 0
    for candidate in sample_candidates(BACKEND, workload, TARGET, 2):
        for lines in innermost_loops(BACKEND.show(request_for(candidate, TARGET))):
            seen += 1
            costly = [line for line in lines if "fdiv" in line or "@llvm.sqrt" in line]
            assert not costly, candidate.sketch.name
    assert seen
