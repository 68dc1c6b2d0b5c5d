"""Innermost loops over less than a vector register: several iterations stand in a row."""

from __future__ import annotations

from row_loops import innermost_loops, rows_over_roots

from autotune.backends.native import NativeBackend
from autotune.targets import detect_cpu
from autotune.testing.programs import request_for, sample_candidates


def test_loops_over_half_a_register_count_once_for_several() -> None:
    backend, target = NativeBackend(), detect_cpu()
    # Four is the largest power of two that divides a row.
    workload = rows_over_roots(8, 500)
    seen = 0
    for candidate in sample_candidates(backend, workload, target, 2):
        for lines in innermost_loops(backend.show(request_for(candidate, target))):
            text = "\n".join(lines)
            if "store <4 x float>" in text and "sqrt" not in text and "%r" not in text:
                seen += 1
                assert text.count("store <4 x float>") >= 2, candidate.sketch.name
    assert seen
