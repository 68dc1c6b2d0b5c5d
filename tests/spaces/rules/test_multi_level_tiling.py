"""Tiling, packing and padding."""

from __future__ import annotations

import pytest
from made_workloads import gram
from rule_sketches import (
    DEPTH,
    EVERY_PACKING,
    LIMITS,
    ROWS,
    TARGET,
    sketches,
)
from written import written

from autotune.ir.workloads import conv2d, depthwise_conv2d, gemm
from autotune.sketches import (
    STEP_TYPES,
    AtMost,
    Factor,
    Inline,
    Pack,
    PadExtent,
    Parallel,
    Vectorize,
)
from autotune.spaces import ScheduleLimits, SketchSpace


def test_only_what_is_packed_is_padded() -> None:
    for sketch in sketches(gemm(m=37, n=53, k=29)):
        packed = {step.operand for step in sketch.steps if isinstance(step, Pack)}
        padded = {step.axis for step in sketch.steps if isinstance(step, PadExtent)}
        # A[i, k] moves along i and B[k, j] along j.
        assert padded == {axis for axis, operand in (("i", "A"), ("j", "B")) if operand in packed}


def test_the_input_of_a_convolution_is_padded_in_its_copy() -> None:
    workload = conv2d(h=9, w=9, ci=4, co=40, pad=1)
    for sketch in sketches(workload):
        packed = {step.operand for step in sketch.steps if isinstance(step, Pack)}
        inlined = Inline("P") in sketch.steps
        assert inlined == ("P" in packed)
        own = {s.stage for s in sketch.steps if isinstance(s, Parallel)}
        assert ("P" in own) != inlined


def test_vectors_are_whole_registers_where_the_axis_is_padded() -> None:
    for sketch in sketches(gemm(m=37, n=53, k=29)):
        (lanes,) = (p for p in sketch.params if p.name == "C.j.3")
        assert isinstance(lanes, Factor)
        padded = any(isinstance(s, PadExtent) and s.axis == "j" for s in sketch.steps)
        assert lanes.values == ((16,) if padded else (1,))
        assert Vectorize("C", "j.3") in sketch.steps


def test_the_limits_of_the_backend_are_hard_and_named() -> None:
    limits = ScheduleLimits(frozenset(STEP_TYPES), 1024, 8, "backend test")
    for sketch in sketches(gemm(m=64, n=64, k=64), limits):
        hard = {c.source: c.limit for c in sketch.constraints if isinstance(c, AtMost) and c.hard}
        assert hard == {
            "backend test: unrolled body": 8,
            "backend test: accumulate tile on the stack": 1024,
        }
    lax = SketchSpace(gemm(m=64, n=64, k=64), TARGET, LIMITS).count()
    assert SketchSpace(gemm(m=64, n=64, k=64), TARGET, limits).count() < lax


def test_what_is_read_at_several_places_stays_where_it_is() -> None:
    product = "C[i:32, j:48; k:20] += B[k, j] * (A[i, k] + A[j, k])"
    packed = set()
    for sketch in sketches(written("A[48, 20], B[20, 48]", product)):
        packed |= {step.operand for step in sketch.steps if isinstance(step, Pack)}
        # Both axes are among the indices of A, which no copy of it pads.
        assert not any(isinstance(step, PadExtent) for step in sketch.steps)
    assert packed == {"B"}


def test_what_computes_a_tensor_that_is_read_at_several_places_is_scheduled_once() -> None:
    for sketch in sketches(gram(rows=ROWS, depth=DEPTH)):
        assert sum(isinstance(s, Parallel) and s.stage == "R" for s in sketch.steps) == 1


@pytest.mark.parametrize("channels", [12, 7, 16, 40])
def test_panels_are_copied_in_vectors_that_divide_them(channels: int) -> None:
    """Channels that another operand keeps from being padded need not fill whole registers."""
    found = []
    for sketch in sketches(depthwise_conv2d(n=2, h=8, w=5, c=channels, kh=4, kw=4)):
        domains = [p.values for p in sketch.params if p.name == "Y.c.extent"]
        extents = (domains[0] if domains else None) or (channels,)
        blocked = [s for s in sketch.steps if isinstance(s, Pack) and s.block_dim is not None]
        found += blocked
        assert all(extent % step.lanes == 0 for step in blocked for extent in extents)
    assert found


def test_two_tiled_stages_are_packed_alike() -> None:
    texts = "C[i:32, j:48; k:20] += A[i, k] * B[k, j]", "D[i:32, j:48; k:48] += C[i, k] * E[k, j]"
    made = sketches(written("A[32, 20], B[20, 48], E[48, 48]", *texts))
    assert 1 < len(made) <= 12
    for sketch in made:
        first, *others = [label for label in sketch.name.split("+") if label in EVERY_PACKING]
        assert others in ([first], ["direct"])
