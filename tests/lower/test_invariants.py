"""Values that a loop does not change are computed before it, if they may be read there."""

from __future__ import annotations

import numpy as np
import pytest
from row_loops import innermost_loops, rows_over_roots
from written import written

from autotune.backends.arrays import aligned_copy, aligned_empty
from autotune.backends.native import NativeBackend
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, softmax
from autotune.sketches import BoundLoop, Candidate, Sketch, Tile
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


def test_nothing_is_computed_before_a_loop_that_may_not_run() -> None:
    body = "Y[i:4; k:4]: int32 += X[k] / D[i] + 100 / D[i]"
    workload = written("X[4]: int32, D[4]: int32", body)
    tile = Tile("Y", "k", (const(4), const(1)))
    bound = BoundLoop("Y", "k.0", "i", const(-1), 1)
    sketch = Sketch("bounded", workload, (), (), (tile, bound))
    request = request_for(Candidate(sketch, ()), TARGET)
    loops = list(innermost_loops(BACKEND.show(request)))
    assert loops and all(sum("sdiv" in line for line in lines) == 2 for lines in loops)
    x = aligned_copy(np.array([7, 8, 9, 10], np.int32))
    divisors = aligned_copy(np.array([0, 1, 2, 3], np.int32))
    y = aligned_empty((4,), np.dtype(np.int32))
    BACKEND.build(request).bind([x, divisors], [y]).run()
    assert y.tolist() == [0, 107, 107, 106]
