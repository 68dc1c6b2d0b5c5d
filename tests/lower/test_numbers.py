"""Numbers of iterations as values: constants, where so few vectors of them are counted."""

from __future__ import annotations

import re

from row_loops import innermost_loops
from written import written

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload
from autotune.targets import preset
from autotune.testing.programs import request_for, sample_candidates

ROWS, COLUMNS = 8, 512


def first_positive() -> Workload:
    """The place of the first positive number of each row."""
    place = "int32(k) if X[i, k] > float32(0.0) else columns"
    stage = f"Y[i; k]: int32 min= {place}"
    return written("X[i, k]", stage, name="first", i=ROWS, k=COLUMNS, columns=COLUMNS)


def test_numbers_of_few_iterations_are_constants() -> None:
    backend, target = NativeBackend(), preset("zen3")
    seen = 0
    for candidate in sample_candidates(backend, first_positive(), target, 4):
        if candidate.sketch.name != "split-reduction-wide" or max(candidate.config.values()) > 8:
            continue
        seen += 1
        for lines in innermost_loops(backend.show(request_for(candidate, target))):
            computed = [line for line in lines if re.search(r"insertelement <\d+ x i64>", line)]
            assert not computed, candidate.config
    assert seen
