"""Spaces for backends that lack steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import (
    Workload,
    conv2d,
    elementwise,
    gemm,
    random_inputs,
    softmax,
)
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
    PadExtent,
    UnrollLimit,
    names_used,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.testing.programs import check_nest

CPU = preset("skylake-avx512-4core")
WORKLOADS = [
    gemm(m=7, n=20, k=16),
    conv2d(h=5, w=6, ci=4, co=20, pad=1, bias=1, relu=1),
    softmax(m=4, n=32),
    elementwise(m=4, n=6),
]
EVERY_PACKING = [
    *("direct", "plain-outer", "plain-rows", "packed-root", "packed-panel"),
    *("packed-root-rows", "packed-panel-outer"),
]


def limits(*missing: str) -> ScheduleLimits:
    """Everything but these steps."""
    return ScheduleLimits(frozenset(STEP_TYPES) - set(missing), 65536, 512, "backend test")


def names(space: SketchSpace) -> list[str]:
    return [sketch.name for sketch in space.sketches()]


@given(
    st.sampled_from(WORKLOADS),
    st.sampled_from([CPU, preset("a100")]),
    st.sets(st.sampled_from(sorted(STEP_TYPES)), max_size=6),
    st.integers(0, 2**32),
)
def test_sketches_use_only_what_is_declared_and_stay_right(
    workload: Workload, target: object, missing: set[str], seed: int
) -> None:
    declared = limits(*missing)
    try:
        space = SketchSpace(workload, target, declared)  # type: ignore[arg-type]
    except UnsupportedWorkload as error:
        assert any(name in str(error) for name in missing)
        return
    for sketch in space.sketches():
        assert not missing & names_used(sketch)
    rng = np.random.default_rng(seed)
    inputs = random_inputs(workload, rng)
    for candidate in space.sample(2, rng):
        check_nest(candidate, inputs, tolerance=1e-5)


def test_nothing_changes_where_nothing_is_missing() -> None:
    for workload in WORKLOADS:
        space = SketchSpace(workload, CPU, limits())
        assert space.left_out == {}


def test_only_the_sketches_with_a_missing_step_are_left_out() -> None:
    space = SketchSpace(gemm(m=37, n=53, k=29), CPU, limits("pack"))
    assert names(space) == ["direct"]
    assert space.left_out == dict.fromkeys(EVERY_PACKING[1:], "needs pack")


def test_what_cannot_be_padded_keeps_its_extent() -> None:
    for workload in WORKLOADS[:2]:
        space = SketchSpace(workload, CPU, limits("pad_extent"))
        for sketch in space.sketches():
            assert not any(isinstance(step, PadExtent) for step in sketch.steps)
            assert not any(name.endswith(".extent") for name in sketch.param_names)
        assert "plain-rows" in names(space)


@pytest.mark.parametrize("missing", ["parallel", "vectorize", "unroll"])
def test_how_loops_are_run_may_be_missing(missing: str) -> None:
    for workload in WORKLOADS:
        every = SketchSpace(workload, CPU, limits())
        space = SketchSpace(workload, CPU, limits(missing))
        assert names(space) == names(every)


def test_without_parallel_loops_there_is_work_for_one_core() -> None:
    limited = [
        constraint.limit
        for workload in WORKLOADS
        for sketch in SketchSpace(workload, CPU, limits("parallel")).sketches()
        for constraint in sketch.constraints
        if isinstance(constraint, AtLeast)
    ]
    assert set(limited) == {1}


def test_a_limit_on_unrolling_takes_its_parameter_along() -> None:
    for sketch in SketchSpace(
        gemm(m=64, n=64, k=64), preset("a100"), limits("unroll_limit")
    ).sketches():
        assert not any(isinstance(step, UnrollLimit) for step in sketch.steps)
        assert "C.unroll" not in sketch.param_names


def test_stages_that_cannot_be_inlined_are_computed_on_their_own() -> None:
    """The padded input of a convolution, its bias and its relu become loop nests of their own."""
    space = SketchSpace(WORKLOADS[1], CPU, limits("inline"))
    assert any(name.startswith("plain-rows") for name in names(space))


def test_a_softmax_without_fusion_is_tiled_stage_by_stage() -> None:
    space = SketchSpace(softmax(m=8, n=64), CPU, limits("fuse_producer"))
    assert names(space)


def test_the_error_names_every_sketch_and_what_it_needs() -> None:
    message = (
        "workload 'gemm': none of its 7 sketches can be replayed by backend test: "
        "direct needs accumulate; plain-outer needs accumulate, pack; "
    )
    with pytest.raises(UnsupportedWorkload, match=message):
        SketchSpace(gemm(m=37, n=53, k=29), CPU, limits("accumulate", "pack"))
