"""Scans in loop nests of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, sketches
from scanned import ACCUMULATED, scan, scanned_between

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.workloads import Workload, cumsum, random_inputs, softmax
from autotune.sketches import (
    Candidate,
    ChunkScan,
    Inline,
    Order,
    Parallel,
    Sketch,
    Unroll,
    Vectorize,
    chunk_scan,
)
from autotune.spaces import BUILT_IN_RULES, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.scan import CHUNKED_LABEL
from autotune.spaces.sketch_space import loosen
from autotune.targets import preset
from autotune.testing.programs import check_nest


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
    rng = np.random.default_rng(0)
    inputs = random_inputs(workload, rng)
    for candidate in SketchSpace(workload, TARGET, LIMITS).sample(2, rng):
        check_nest(candidate, inputs, tolerance=1e-6)


def test_columns_are_continued_in_vectors() -> None:
    (sketch,) = sketches(cumsum(m=64, n=256, axis=0))
    assert Order("Y", ("j.0", "i.0", "j.1", "j.2")) in sketch.steps
    assert Parallel("Y", ("j.0",)) in sketch.steps and Vectorize("Y", "j.2") in sketch.steps


def test_rows_are_continued_in_turns() -> None:
    (sketch,) = sketches(cumsum(m=64, n=256))
    assert Order("Y", ("i.0", "j.0", "i.1")) in sketch.steps
    assert Parallel("Y", ("i.0",)) in sketch.steps and Unroll("Y", ("i.1",)) in sketch.steps


def chunked(workload: Workload, cores: int = 4) -> Sketch | None:
    """The sketch in parts, if there is one beside the other."""
    found = generate_sketches(workload, TARGET.with_cores(cores), LIMITS, BUILT_IN_RULES).sketches
    parts = [sketch for sketch in found if CHUNKED_LABEL in sketch.name.split("+")]
    assert len(found) == 1 + len(parts)
    return parts[0] if parts else None


@pytest.mark.parametrize(
    ("workload", "chunks"),
    [
        (cumsum(m=1, n=1 << 20), 64),
        (scan((1 << 20,), 0), 64),
        (cumsum(m=2, n=768), 3),
        (cumsum(m=1, n=1009), None),  # nothing divides it
        (cumsum(m=1, n=400), None),  # parts would be short
        (cumsum(m=16, n=1 << 20), None),  # rows for each core in turns
        (cumsum(m=1 << 20, n=1, axis=0), None),
    ],
)
def test_few_long_rows_are_scanned_in_parts(workload: Workload, chunks: int | None) -> None:
    sketch = chunked(workload)
    steps = () if sketch is None else sketch.core_steps
    assert [it.chunks for it in steps if isinstance(it, ChunkScan)] == ([chunks] if chunks else [])


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
    for row in feasible.uniform(2, 0).tolist():
        check_nest(Candidate(wide, tuple(row)), tolerance=1e-4)


def test_parts_divide_what_is_scanned() -> None:
    for workload, chunks in ((cumsum(m=1, n=10), 3), (softmax(m=4, n=8), 2)):
        with pytest.raises(InvalidValueError, match="stage 'Y' scans along"):
            chunk_scan(workload, ChunkScan("Y", chunks))


def test_what_is_around_a_scan_is_computed_before_and_after() -> None:
    (sketch,) = sketches(scanned_between((16, 32), 0))
    assert not any(isinstance(step, Inline) for step in sketch.steps)


@pytest.mark.parametrize("cores", [1, 256])
@pytest.mark.parametrize("workload", [scan((64,), 0), cumsum(m=3, n=8), cumsum(m=3, n=8, axis=0)])
def test_no_space_of_a_scan_is_empty(workload: Workload, cores: int) -> None:
    assert SketchSpace(workload, TARGET.with_cores(cores), LIMITS).count() > 0


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (3, 4, 37), (33, 2, 3)])
@pytest.mark.parametrize("along", [0, 1])
def test_threads_of_gpus_continue_a_sequence_each(shape: tuple[int, ...], along: int) -> None:
    space = SketchSpace(scanned_between(shape, along), preset("a100"), LIMITS)
    for candidate in space.sample(2, np.random.default_rng(0)):
        check_nest(candidate, tolerance=1e-6)


def test_one_sequence_has_nothing_for_the_threads_of_a_gpu() -> None:
    with pytest.raises(UnsupportedWorkload, match="'Y' scans one sequence, along 'a0'"):
        SketchSpace(scan((64,), 0), preset("a100"), LIMITS)
