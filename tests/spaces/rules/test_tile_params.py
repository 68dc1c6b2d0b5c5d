from __future__ import annotations

import itertools
import math

import pytest
from attrs import evolve
from divided_reductions import (
    fractional_convolution,
    grouped_convolution,
    multiplied_channels,
    shared_factor,
)
from hypothesis import given
from hypothesis import strategies as st
from rule_sketches import LIMITS

from autotune.ir.expressions import IndexValue, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, conv2d
from autotune.sketches import Factor, Pack, PadExtent, Unroll
from autotune.spaces import SketchSpace
from autotune.spaces.rules.access import largest_divisor, round_up
from autotune.spaces.rules.tile_params import (
    Phases,
    lanes_inside_groups,
    padded_extents,
    phases_of,
)
from autotune.targets import preset

TARGET = preset("avx512")


def space_of(workload: Workload, statements: int = 512) -> SketchSpace:
    return SketchSpace(workload, TARGET, evolve(LIMITS, unrolled_statements=statements))


def test_only_sums_of_rows_and_reduce_axes_have_phases() -> None:
    (stage,) = fractional_convolution(strides=(2, 3), taps=(4, 3)).stages
    assert phases_of(stage) == Phases({"h": 2, "w": 3}, {"a": 2, "b": 3})
    for workload in (conv2d(h=8, w=8, ci=16, co=24), grouped_convolution(), multiplied_channels()):
        assert phases_of(workload.stages[-1]) == Phases()


def test_lanes_of_one_vector_have_no_phase_in_common() -> None:
    axes = (Axis("i", 4), Axis("j", 32), Axis("k", 4, "reduce"))
    body = Load("X", (var("i"), (var("j") + var("k")) // 2))
    assert phases_of(Stage(Tensor("Y", (4, 32), "float32"), axes, body, "add")) == Phases()


@given(
    divisor=st.integers(2, 6),
    row=st.integers(-3, 4).filter(bool),
    tap=st.integers(-3, 4).filter(bool),
    extents=st.tuples(st.integers(1, 12), st.integers(1, 6)),
    offset=st.integers(-2, 2),
)
def test_a_tile_has_the_same_remainders_wherever_it_is(
    divisor: int, row: int, tap: int, extents: tuple[int, int], offset: int
) -> None:
    axes = (Axis("h", extents[0]), Axis("c", 16), Axis("r", extents[1], "reduce"))
    at = (var("h") * row + var("r") * tap + offset) % divisor
    stage = Stage(Tensor("Y", (extents[0], 16), "int32"), axes, IndexValue(at), "add")
    phases = phases_of(stage)
    for rows, taps in itertools.product(
        phases.tiles("h", extents[0]), phases.tiles("r", extents[1])
    ):
        assert extents[0] % rows == 0
        assert extents[1] % taps == 0
        seen = {
            tuple(
                (row * (h + i) + tap * (r + j) + offset) % divisor
                for i in range(rows)
                for j in range(taps)
            )
            for h in range(0, extents[0], rows)
            for r in range(0, extents[1], taps)
        }
        assert len(seen) == 1


@pytest.mark.parametrize(
    ("out", "lanes", "width"), [(16, 16, 16), (48, 16, 16), (24, 16, 12), (4, 16, 4), (17, 16, 16)]
)
def test_vectors_stay_inside_a_group(out: int, lanes: int, width: int) -> None:
    (stage,) = grouped_convolution(out=out).stages
    assert lanes_inside_groups(stage, lanes) == width


def test_whole_vectors_read_anything_else() -> None:
    (stage,) = conv2d(h=8, w=8, ci=16, co=24).stages[-1:]
    assert lanes_inside_groups(stage, 16) == 16


def test_tiles_of_fractional_strides_hold_all_phases() -> None:
    for sketch in space_of(fractional_convolution(extents=(8, 6))).sketches():
        domains = {it.name: it.values for it in sketch.params if isinstance(it, Factor)}
        assert domains["Y.h.2"] == (2, 4, 8)
        assert domains["Y.w.2"] == (2, 6)
        # The kernel has 4 rows, of which each phase has 2, and 3 columns.
        assert domains["Y.a.1"] == (2, 4)
        assert domains["Y.b.1"] == (3,)
        (unrolled,) = [step.loops for step in sketch.steps if isinstance(step, Unroll)]
        assert {"a.1", "b.1", "h.2", "w.2"} <= set(unrolled)
        assert not any(isinstance(step, Pack) and step.operand == "X" for step in sketch.steps)


def test_a_factor_that_batches_share_is_packed_as_a_whole() -> None:
    space = space_of(shared_factor(batches=8, copies=4, rows=13, columns=47))
    assert {sketch.name for sketch in space.sketches()} == {
        "packed-root",
        "packed-root-rows",
        "packed-panel-outer",
    }
    for sketch in space.sketches():
        places = {it.operand: it.at for it in sketch.steps if isinstance(it, Pack)}
        assert places["K"] is None
        padded = {it.axis for it in sketch.steps if isinstance(it, PadExtent)}
        assert padded == ({"i", "j"} if "Q" in places else {"j"})


def test_phases_that_are_too_many_to_unroll_stay() -> None:
    """At least 2 rows and columns, and 2 rows and 3 columns of the kernel."""
    workload = fractional_convolution(extents=(8, 6))
    assert "Y.a.1" in space_of(workload, 24).sketches()[0].param_names
    assert "Y.a.1" not in space_of(workload, 23).sketches()[0].param_names


@given(
    st.integers(1, 5000),
    st.lists(st.integers(1, 96), min_size=1, max_size=8).map(tuple),
    st.integers(0, 16),
)
def test_padded_extents_waste_little(extent: int, multiples: tuple[int, ...], slack: int) -> None:
    extents = padded_extents(extent, multiples, slack)
    assert extents[0] == extent and list(extents) == sorted(set(extents))
    limit = max(math.floor(0.03 * extent), slack)
    for padded in extents[1:]:
        assert padded - extent <= limit
        assert any(padded == round_up(extent, multiple) for multiple in multiples)
    for multiple in multiples:
        if round_up(extent, multiple) - extent <= limit:
            assert round_up(extent, multiple) in extents


def test_padded_extents_by_example() -> None:
    rows, vectors = tuple(range(2, 17)), (16, 32, 48, 64, 96)
    assert padded_extents(512, rows, 1) == (512, 513, 515, 516, 517, 518, 520, 525)
    assert padded_extents(37, rows, 1) == (37, 38)
    assert padded_extents(53, vectors, 16) == (53, 64)
    assert padded_extents(7, vectors, 16) == (7, 16)
    assert padded_extents(1000, vectors, 16) == (1000, 1008, 1024)


@given(st.integers(1, 400), st.integers(1, 64))
def test_largest_divisor(extent: int, limit: int) -> None:
    divisor = largest_divisor(extent, limit)
    assert extent % divisor == 0 and 1 <= divisor <= limit
    assert not any(extent % d == 0 for d in range(divisor + 1, min(extent, limit) + 1))


def test_round_up() -> None:
    assert [round_up(value, 8) for value in (0, 1, 8, 9)] == [0, 8, 8, 16]
