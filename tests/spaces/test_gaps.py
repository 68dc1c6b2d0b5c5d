"""Spaces for backends that lack steps."""

from __future__ import annotations

import pytest

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import (
    conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.sketches import (
    STEP_TYPES,
    AtLeast,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

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


def test_nothing_changes_where_nothing_is_missing() -> None:
    for workload in WORKLOADS:
        space = SketchSpace(workload, CPU, limits())
        assert space.left_out == {}


def test_only_the_sketches_with_a_missing_step_are_left_out() -> None:
    space = SketchSpace(gemm(m=37, n=53, k=29), CPU, limits("pack"))
    assert names(space) == ["direct"]
    assert space.left_out == dict.fromkeys(EVERY_PACKING[1:], "needs pack")


def test_without_parallel_loops_there_is_work_for_one_core() -> None:
    limited = [
        constraint.limit
        for workload in WORKLOADS
        for sketch in SketchSpace(workload, CPU, limits("parallel")).sketches()
        for constraint in sketch.constraints
        if isinstance(constraint, AtLeast)
    ]
    assert set(limited) == {1}


def test_the_error_names_every_sketch_and_what_it_needs() -> None:
    message = (
        "workload 'gemm': none of its 7 sketches can be replayed by backend test: "
        "direct needs accumulate; plain-outer needs accumulate, pack; "
    )
    with pytest.raises(UnsupportedWorkload, match=message):
        SketchSpace(gemm(m=37, n=53, k=29), CPU, limits("accumulate", "pack"))
