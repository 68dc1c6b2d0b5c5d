"""Reductions and what uses them, computed row by row."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from made_workloads import root_mean_square
from printed_workloads import channels_first
from rule_sketches import COLUMNS, LIMITS, ROW_FUSIONS, ROWS, TARGET, sketches
from written import written

from autotune.ir.workloads import (
    Workload,
    attention,
    random_inputs,
    softmax,
)
from autotune.sketches import (
    Accumulate,
    FuseProducer,
    Inline,
    Pack,
    Prefetch,
    Sketch,
    SplitReduction,
    Tile,
    TileCeil,
    Vectorize,
)
from autotune.spaces import SketchSpace
from autotune.testing.programs import check_nest


def fused_producers(sketch: Sketch) -> set[str]:
    return {step.stage for step in sketch.steps if isinstance(step, FuseProducer)}


def all_fused_producers(workload: Workload) -> set[str]:
    return {name for sketch in sketches(workload) for name in fused_producers(sketch)}


def partial_results(sketch: Sketch) -> dict[str, int]:
    return {s.stage: s.lanes for s in sketch.steps if isinstance(s, SplitReduction)}


def test_softmax_is_one_loop_over_rows() -> None:
    made = {sketch.name: sketch for sketch in sketches(softmax(m=64, n=256))}
    assert list(made) == ROW_FUSIONS
    for name, sketch in made.items():
        kept = set() if "recompute" in name else {"E"}
        assert fused_producers(sketch) == {"M", "M_partial", "S", "S_partial"} | kept
        assert (Inline("E") in sketch.steps) == (not kept)
        lanes = 4 if "narrow" in name else 64 if "wide" in name else 16
        assert partial_results(sketch) == {"M": lanes, "S": lanes}
        loops = {step.at for step in sketch.steps if isinstance(step, FuseProducer)}
        assert loops == {"i.0" if "block" in name else "i.1"}
    assert SketchSpace(softmax(m=512, n=512), TARGET, LIMITS).count() > 2000


def test_what_is_kept_in_a_row_is_computed_in_vectors_of_a_searched_width() -> None:
    sketch = sketches(softmax(m=64, n=256))[0]
    domains = {param.name: param.values for param in sketch.params}
    assert domains["E.j.1"] == domains["Y.j.1"] == (4, 8, 16, 32)
    for stage in ("E", "Y"):
        assert Vectorize(stage, "j.1") in sketch.steps


@pytest.mark.parametrize(
    ("columns", "partials"),
    [
        (7, {0}),  # shorter than a vector
        (31, {4, 8}),
        (6, {0}),  # four do not divide it
        (16, {8, 4}),
        (100, {4, 16, 32}),
        (1000, {4, 16, 64}),
        (512, {16, 4, 64}),
    ],
)
def test_a_row_is_reduced_in_partial_results(columns: int, partials: set[int]) -> None:
    """Any number where that makes fewer rounds, else one that divides it."""
    made = sketches(softmax(m=3, n=columns))
    assert {partial_results(sketch).get("S", 0) for sketch in made} == partials
    assert {partial_results(sketch).get("M", 0) for sketch in made} == partials


def test_the_place_of_the_largest_element_has_lanes() -> None:
    place = "P[i:64; k:256]: int32 min= k if X[i, k] == M[i] else 256"
    workload = written("X[64, 256]", "M[i:64; k:256] max= X[i, k]", place)
    found = {name for sketch in sketches(workload) for name in partial_results(sketch)}
    assert found == {"M", "P"}


@pytest.mark.parametrize(("columns", "covered"), [(197, True), (192, False), (13, False)])
def test_vectors_need_not_divide_a_row(columns: int, covered: bool) -> None:
    workload = softmax(m=3, n=columns)
    without = evolve(LIMITS, steps=LIMITS.steps - {"cover"})
    for sketch in sketches(workload):
        assert any(isinstance(step, TileCeil) for step in sketch.steps) == covered
        domains = {param.name: param.values for param in sketch.params}
        assert domains.get("Y.j.1", ()) == (16, 32) or not covered
    for sketch in SketchSpace(workload, TARGET, without).sketches():
        assert not any(isinstance(step, TileCeil) for step in sketch.steps)


@pytest.mark.parametrize(("rows", "blocks"), [(1, None), (5, None), (6, (2,)), (24, (2, 4, 8))])
def test_blocks_have_several_rows(rows: int, blocks: tuple[int, ...] | None) -> None:
    made = [s for s in sketches(softmax(m=rows, n=64)) if s.name.startswith("block-fusion")]
    assert bool(made) == (blocks is not None)
    for sketch in made:
        (tile,) = (s for s in sketch.steps if isinstance(s, Tile) and s.axis == "i")
        domains = {param.name: param.values for param in sketch.params}
        found = (tile.factors[1].value,) if len(blocks or ()) == 1 else domains["Y.i.1"]
        assert found == blocks


CENTRED = "Y[i:32, j:48] = X[i, j] - M[{0}]"
ROW = "M[i:32; k:48] += X[i, k]"


def test_a_normalisation_is_one_loop_over_rows() -> None:
    workload = written("X[32, 48]", ROW, CENTRED.format("i"))
    assert all_fused_producers(workload) == {"M", "M_partial"}
    # There is nothing to keep or to compute again.
    assert not any("recompute" in sketch.name for sketch in sketches(workload))


def test_reductions_over_rows_share_no_row_loop() -> None:
    workload = written("X[32, 48]", "M[j:48; k:32] += X[k, j]", CENTRED.format("j"))
    assert all_fused_producers(workload) == set()


def test_reductions_with_reuse_are_tiled_before_the_rows() -> None:
    product = "C[i:32, j:48; k:20] += A[i, k] * B[k, j]"
    stages = product, "S[i:32; k:48] += C[i, k]", "Y[i:32, j:48] = C[i, j] * S[i]"
    workload = written("A[32, 20], B[20, 48]", *stages)
    assert all_fused_producers(workload) == {"S", "S_partial"}
    for sketch in sketches(workload):
        assert {s.stage for s in sketch.steps if isinstance(s, Accumulate)} == {"C"}


def test_the_softmax_of_an_attention_is_one_loop_over_rows() -> None:
    found = sketches(attention(h=2, n=64, d=32))
    assert 2 <= len(found) <= 12
    made = [sketch for sketch in found if sketch.name != "attention-tiles"]
    for sketch in made:
        # The last product may compute what it packs of its factor.
        packs = any(isinstance(s, Pack) and s.operand == "R" for s in sketch.steps)
        rest = set() if packs else {"E", "S"}
        assert fused_producers(sketch) == {"X", "M", "M_partial", "S_partial", *rest}
        assert {"A", "Y"} <= {s.stage for s in sketch.steps if isinstance(s, Accumulate)}
    assert not all(Inline("P") in sketch.steps for sketch in made)


def test_what_has_no_rows_is_computed_before_them() -> None:
    for sketch in sketches(root_mean_square(8, 64)):
        fused = {"S", "S_partial"} | (set() if "recompute" in sketch.name else {"R"})
        assert fused_producers(sketch) == fused
        assert Inline("V") in sketch.steps


def test_a_returned_reduction_is_not_fused() -> None:
    workload = written("X[32, 48]", ROW, CENTRED.format("i"), outputs="M Y")
    assert "M" not in all_fused_producers(workload)


def spread(rows: int = ROWS, source: str = "X", second: str = "X", axis: int = 1) -> Workload:
    """The largest less the smallest element of each row, or with ``axis`` 0 of each column."""
    at = "[i, k]" if axis else "[k, i]"
    inputs = ", ".join(f"{name}{at}" for name in dict.fromkeys((source, second)))
    extremes = f"M[i; k] max= {source}{at}", f"L[i; k] min= {second}{at}"
    return written(inputs, *extremes, "Y[i] = M[i] - L[i]", i=rows, k=COLUMNS)


def test_reductions_of_one_row_to_one_number_share_its_loop() -> None:
    made = sketches(spread())
    assert {sketch.name for sketch in made} >= {"row-fusion", "block-fusion"}
    for sketch in made:
        assert fused_producers(sketch) >= {"M", "L"}
        parts = {name.removesuffix("_partial") for name in partial_results(sketch)}
        assert {
            step.stage.removesuffix("_partial")
            for step in sketch.steps
            if isinstance(step, Vectorize)
        } == parts


@pytest.mark.parametrize(
    "workload",
    [spread(second="Z"), spread(rows=2), spread(axis=0)],
    ids=["nothing is read twice", "fewer rows than cores", "rows are far apart in memory"],
)
def test_reductions_that_gain_nothing_by_a_shared_loop_have_their_own(workload: Workload) -> None:
    made = sketches(workload)
    assert made
    assert not any("fusion" in sketch.name for sketch in made)


@pytest.mark.parametrize(("rows", "asks"), [(512, False), (8192, True)])
def test_the_next_row_is_asked_for_where_a_core_cannot_hold_them_all(
    rows: int, asks: bool
) -> None:
    (sketch,) = (it for it in sketches(spread(rows)) if it.name == "row-fusion")
    prefetches = [step for step in sketch.steps if isinstance(step, Prefetch)]
    assert [it.operand for it in prefetches] == ["X"] * asks


@settings(max_examples=10)
@given(channels=st.integers(1, 8), image=st.integers(1, 3), seed=st.integers(0, 2**16))
def test_tiles_of_a_row_whose_end_no_window_reads_have_room(
    channels: int, image: int, seed: int
) -> None:
    """Vectors are of whole rows also where the only window ends before they do."""
    workload = channels_first(channels, image, taps=3, stride=3, pad=1)
    rng = np.random.default_rng(seed)
    inputs = random_inputs(workload, rng)
    space = SketchSpace(workload, TARGET, LIMITS)
    candidates = space.sample(len(space.sketches()), rng)
    assert any(fused_producers(it.sketch) for it in candidates)
    for candidate in candidates:
        check_nest(candidate, inputs, tolerance=1e-5)
