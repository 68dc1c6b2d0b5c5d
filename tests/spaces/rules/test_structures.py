"""Structures that the rules make, beside those of the tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed_workloads import embedding_bag, gathered_product
from made_workloads import gram
from printed_workloads import channels_first
from rule_sketches import (
    COLUMNS,
    DEPTH,
    EVERY_PACKING,
    LIMITS,
    ROW_FUSIONS,
    ROWS,
    TARGET,
    check_reference,
    lacking,
    of_kind,
    sketches,
)
from split_reductions import reduction
from written import written

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.expressions import const
from autotune.ir.workloads import (
    Workload,
    attention,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.nest import derive_nest
from autotune.sketches import (
    STEP_TYPES,
    Accumulate,
    AtLeast,
    AtMost,
    ChunkReduction,
    Factor,
    FuseProducer,
    Inline,
    Pack,
    PadExtent,
    Parallel,
    Prefetch,
    Prepack,
    Sketch,
    SplitReduction,
    Step,
    Stream,
    Vectorize,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.rules import InlineRule, SketchDraft, generate_sketches, replayable_sketches
from autotune.spaces.sketch_space import BUILT_IN_RULES
from autotune.targets import preset
from autotune.targets.target import Cache


def test_a_sum_that_reads_nothing_stays_as_it_is() -> None:
    (sketch,) = sketches(written("", "Y[; i:4] += 1.0"))
    assert sketch.name == "serial" and sketch.steps == ()


def test_no_rule_at_all() -> None:
    with pytest.raises(UnsupportedWorkload, match="stage 'C'; rules: inline$"):
        generate_sketches(gemm(m=2, n=2, k=2), TARGET, LIMITS, (InlineRule(),))


def test_a_single_number_has_a_schedule_without_steps() -> None:
    (sketch,) = sketches(written("X[]", "Y[] = exp(X[()])"))
    assert sketch.steps == () and sketch.params == ()


def test_what_is_read_where_data_says_stays_in_place() -> None:
    for sketch in (*sketches(embedding_bag()), *sketches(gathered_product())):
        packed = {step.operand for step in of_kind(sketch, Pack)}
        assert packed == (set() if sketch.name == "direct" else {"W"})


@pytest.mark.parametrize(
    "workload", [gemm(m=37, n=53, k=29), conv2d(h=9, w=9, ci=4, co=40), softmax(m=64, n=256)]
)
def test_sketches_are_made_when_they_are_asked_for(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished: list[str] = []
    finish = SketchDraft.finished

    def counted(draft: SketchDraft) -> Sketch:
        made = finish(draft)
        finished.append(made.name)
        return made

    monkeypatch.setattr(SketchDraft, "finished", counted)
    one_by_one = replayable_sketches(workload, TARGET, LIMITS, BUILT_IN_RULES)
    first = next(one_by_one)
    assert finished == [first.name]
    whole = generate_sketches(workload, TARGET, LIMITS, BUILT_IN_RULES)
    assert (first, *one_by_one) == whole.sketches


def test_only_what_is_packed_is_padded() -> None:
    for sketch in sketches(gemm(m=37, n=53, k=29)):
        packed = {step.operand for step in of_kind(sketch, Pack)}
        padded = {step.axis for step in of_kind(sketch, PadExtent)}
        # A[i, k] moves along i and B[k, j] along j.
        assert padded == {axis for axis, operand in (("i", "A"), ("j", "B")) if operand in packed}


def test_the_input_of_a_convolution_is_padded_in_its_copy() -> None:
    workload = conv2d(h=9, w=9, ci=4, co=40, pad=1)
    for sketch in sketches(workload):
        packed = {step.operand for step in of_kind(sketch, Pack)}
        inlined = Inline("P") in sketch.steps
        assert inlined == ("P" in packed)
        own = {step.stage for step in of_kind(sketch, Parallel)}
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
        packed |= {step.operand for step in of_kind(sketch, Pack)}
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


AHEAD = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "test")


@pytest.mark.parametrize(
    ("workload", "constant"),
    [
        (gemm(m=32, n=48, k=32), "B"),
        (conv2d(h=8, w=8, ci=4, co=16), "W"),
        (depthwise_conv2d(h=8, w=8, c=16), "W"),
    ],
)
def test_a_constant_is_packed_whole_and_before_the_first_call(
    workload: Workload, constant: str
) -> None:
    for sketch in sketches(workload.with_constants(constant), AHEAD, preset("avx2")):
        packs = [it.at for it in of_kind(sketch, Pack) if it.operand == constant]
        ahead = of_kind(sketch, Prepack)
        assert packs == [None] * len(ahead)
        assert bool(ahead) == sketch.name.startswith("packed")
    for sketch in sketches(workload, AHEAD, preset("avx2")):
        assert not of_kind(sketch, Prepack)


def test_a_backend_without_the_step_packs_constants_in_every_call() -> None:
    workload = dense(m=8, n=48, k=32)
    plain, constant = (
        {it.name: it.steps for it in sketches(own, lacking("prepack"), preset("avx2"))}
        for own in (workload, workload.with_constants("W"))
    )
    assert plain == constant


def fused_producers(sketch: Sketch) -> set[str]:
    return {step.stage for step in of_kind(sketch, FuseProducer)}


def partial_results(sketch: Sketch) -> dict[str, int]:
    return {step.stage: step.lanes for step in of_kind(sketch, SplitReduction)}


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


def test_the_softmax_of_an_attention_is_one_loop_over_rows() -> None:
    found = sketches(attention(h=2, n=64, d=32))
    assert 2 <= len(found) <= 12
    made = [sketch for sketch in found if sketch.name != "attention-tiles"]
    for sketch in made:
        # The last product may compute what it packs of its factor.
        packs = any(isinstance(s, Pack) and s.operand == "R" for s in sketch.steps)
        rest = set() if packs else {"E", "S"}
        assert fused_producers(sketch) == {"X", "M", "M_partial", "S_partial", *rest}
        assert {"A", "Y"} <= {step.stage for step in of_kind(sketch, Accumulate)}
    assert not all(Inline("P") in sketch.steps for sketch in made)


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
    space = SketchSpace(workload, TARGET, LIMITS)
    candidates = [*space.sample(len(space.sketches()), np.random.default_rng(seed))]
    assert any(fused_producers(it.sketch) for it in candidates)
    check_reference(workload, candidates, seed)


# 256 rows of 64 floats are as large as this cache.
SMALL = evolve(TARGET, caches=(Cache(1, 1 << 10, False), Cache(2, 1 << 16, True)))


def test_both_ways_of_storing_are_in_the_space() -> None:
    space = SketchSpace(elementwise(m=256, n=64), SMALL, LIMITS)
    (sketch,) = space.sketches()
    without = lacking("stream")
    assert space.count() == 2 * SketchSpace(sketch.workload, SMALL, without).count()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Stream("E", const(1)), "'E' is no output"),
        (Prefetch("S", "X", "Y", "i.0", const(1)), "no 'X'|no loop"),
        (Prefetch("M", "E", "Y", "i.0", const(1)), "no input"),
        (Prefetch("M", "X", "Y", "i.1", const(1)), "no loop 'i.1'"),
    ],
)
def test_only_outputs_pass_the_caches_and_what_is_asked_for_is_read(
    step: Step, message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        derive_nest(Sketch("by-hand", softmax(m=48, n=64), (), (), (step,)))


def on_cores(workload: Workload, cores: int = 4) -> tuple[Sketch, ...]:
    return sketches(workload, target=TARGET.with_cores(cores))


def lanes_of(sketch: Sketch) -> int:
    return next((it.lanes for it in of_kind(sketch, SplitReduction)), 1)


def chunks_of(sketch: Sketch) -> int:
    return next((it.chunks for it in of_kind(sketch, ChunkReduction)), 1)


def test_columns_keep_their_tilings_and_are_vectors_of_results() -> None:
    found = on_cores(reduction((600, 40), (0,)))
    assert [it.name for it in found][0] == "direct"
    chunked = [it for it in found if it.name.startswith("split-columns")]
    assert chunked and all(chunks_of(it) > 1 and lanes_of(it) == 1 for it in chunked)
    vectors = {
        it.loop for sketch in chunked for it in sketch.core_steps if isinstance(it, Vectorize)
    }
    assert vectors == {"d1.1", "d1.2"}


def test_lanes_are_whole_vectors() -> None:
    made = on_cores(reduction((4, 3000), (1,)), cores=1)
    assert {lanes_of(it) for it in made} == {16, 64}


@given(
    rows=st.integers(1, 70), columns=st.integers(1, 200), cores=st.sampled_from([1, 2, 7, 64, 256])
)
def test_parts_divide_what_they_are_parts_of(rows: int, columns: int, cores: int) -> None:
    for sketch in on_cores(reduction((rows, columns), (0, 1)), cores):
        assert math.gcd(chunks_of(sketch), rows * columns) == chunks_of(sketch)
        uneven = chunks_of(sketch) == 1 and lanes_of(sketch) % 16 == 0
        assert columns % lanes_of(sketch) == 0 or uneven
        assert columns >= 2 * lanes_of(sketch) or lanes_of(sketch) == 1
        assert chunks_of(sketch) <= 16 * cores


def test_only_the_sketches_with_a_missing_step_are_left_out() -> None:
    workload = gemm(m=37, n=53, k=29)
    assert SketchSpace(workload, TARGET, LIMITS).left_out == {}
    left_out = SketchSpace(workload, TARGET, lacking("pack")).left_out
    assert left_out == dict.fromkeys(EVERY_PACKING[1:], "needs pack")


def test_without_parallel_loops_there_is_work_for_one_core() -> None:
    limited = [
        constraint.limit
        for workload in (gemm(m=7, n=20, k=16), softmax(m=4, n=32), elementwise(m=4, n=6))
        for sketch in sketches(workload, lacking("parallel"))
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
        SketchSpace(gemm(m=37, n=53, k=29), TARGET, lacking("accumulate", "pack"))
