"""Scans in loop nests of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, check_reference
from scanned import ACCUMULATED, scan, scanned_between

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload, cumsum, softmax
from autotune.sketches import Candidate, ChunkScan, Sketch, chunk_scan
from autotune.spaces import BUILT_IN_RULES, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.scan import CHUNKED_LABEL
from autotune.spaces.sketch_space import loosen
from autotune.targets import preset


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.sampled_from((1, 2, 3, 5, 8, 16, 37)), min_size=1, max_size=3).map(tuple),
    axis=st.integers(0, 2),
    combiner=st.sampled_from(tuple(ACCUMULATED)),
    dtype=st.sampled_from(("float32", "int32")),
    between=st.booleans(),
)
def test_every_candidate_scans_in_order(
    shape: tuple[int, ...], axis: int, combiner: str, dtype: str, between: bool
) -> None:
    along = axis % len(shape)
    workload = scanned_between(shape, along) if between else scan(shape, along, combiner, dtype)
    check_reference(
        workload, SketchSpace(workload, TARGET, LIMITS).sample(2, np.random.default_rng(0))
    )


def chunked(workload: Workload, cores: int = 4) -> Sketch | None:
    """The sketch in parts, if there is one beside the other."""
    found = generate_sketches(workload, TARGET.with_cores(cores), LIMITS, BUILT_IN_RULES).sketches
    parts = [sketch for sketch in found if CHUNKED_LABEL in sketch.name.split("+")]
    assert len(found) == 1 + len(parts)
    return parts[0] if parts else None


@pytest.mark.parametrize(
    "workload",
    [
        scan((1536,), 0, "max"),
        scan((2, 1024), 1, "mul", "float64"),
        scan((1, 3, 512), 2, "add", "int32"),
        cumsum(m=2, n=1280, exclusive=1),
    ],
    ids=lambda workload: f"{workload.name}-{workload.digest}",
)
def test_parts_continue_one_another(workload: Workload) -> None:
    sketch = chunked(workload)
    assert sketch is not None
    wide, feasible, _ = loosen(sketch)
    rows = feasible.uniform(2, 0).tolist()
    check_reference(workload, [Candidate(wide, tuple(row)) for row in rows], tolerance=1e-4)


def test_parts_divide_what_is_scanned() -> None:
    for workload, chunks in ((cumsum(m=1, n=10), 3), (softmax(m=4, n=8), 2)):
        with pytest.raises(InvalidValueError, match="stage 'Y' scans along"):
            chunk_scan(workload, ChunkScan("Y", chunks))


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (3, 4, 37), (33, 2, 3)])
@pytest.mark.parametrize("along", [0, 1])
def test_threads_of_gpus_continue_a_sequence_each(shape: tuple[int, ...], along: int) -> None:
    workload = scanned_between(shape, along)
    check_reference(
        workload, SketchSpace(workload, preset("a100"), LIMITS).sample(2, np.random.default_rng(0))
    )


def test_one_sequence_has_nothing_for_the_threads_of_a_gpu() -> None:
    with pytest.raises(UnsupportedWorkload, match="'Y' scans one sequence, along 'a0'"):
        SketchSpace(scan((64,), 0), preset("a100"), LIMITS)
