"""Sketches around instructions: what they are, and that their nests compute the right integers."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from rule_sketches import check_reference

from autotune.errors import UnknownNameError
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    cumsum,
    gemm,
    random_inputs,
    softmax,
)
from autotune.nest import derive_nest, layout_conflict, nest_tape
from autotune.sketches import STEP_TYPES, Candidate, Interleave, Order, Pack, Tensorize
from autotune.sketches.intrinsics import INTRINSICS
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.problems import describe_problem, problem_of
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.tensor_tiling import TensorTilingRule
from autotune.targets import preset
from autotune.testing.programs import check_nest

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test", backend="tvm")
TARGET = preset("cascadelake-2core")

WORKLOADS = (
    gemm(m=12, n=32, k=16, dtype="u8s8s32"),
    gemm(m=7, n=21, k=10, dtype="int8"),
    gemm(m=1, n=16, k=8, dtype="u8s8s32"),
    batch_matmul(b=2, m=3, n=20, k=8, dtype="u8s8s32"),
    conv2d(h=5, w=6, ci=8, co=16, pad=1, dtype="u8s8s32", bias=1, relu=1),
    conv2d(h=7, w=5, ci=3, co=17, kh=3, kw=2, stride=2, dtype="int8"),
)


def space(workload: Workload, **changes: object) -> SketchSpace:
    return SketchSpace(workload, TARGET, evolve(LIMITS, **changes))


def named(candidate: Candidate, kind: type) -> list[object]:
    return [step for step in candidate.sketch.steps if isinstance(step, kind)]


@pytest.mark.parametrize(
    "workload",
    WORKLOADS,
    ids=lambda workload: f"{workload.name} {' '.join(map(str, workload.parameters.values()))}",
)
def test_nests_compute_exact_integers(workload: Workload) -> None:
    made = space(workload)
    candidates = [*made.sample(2 * len(made.sketches()), np.random.default_rng(0))]
    for candidate in candidates:
        assert len(named(candidate, Tensorize)) == len(named(candidate, Interleave)) == 1
        assert layout_conflict(candidate) is None
        assert nest_tape(candidate.sketch).tape.output_index
    check_reference(workload, candidates, tolerance=0)


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("haswell-4core", {"u8s8s32", "int8", "bfloat16"}),
        # Signed bytes take corrections with VNNI, which comes without bfloat16 first.
        ("alderlake-4core", {"bfloat16"}),
        ("cascadelake-2core", {"bfloat16"}),
        ("sapphirerapids-4core", set()),
    ],
)
def test_a_space_says_which_products_the_processor_has_no_instruction_for(
    name: str, lacking: set[str]
) -> None:
    said = {}
    for dtype in ("u8s8s32", "int8", "bfloat16", "float32"):
        made = SketchSpace(gemm(m=32, n=64, k=64, dtype=dtype), preset(name), LIMITS)
        said[dtype] = made.notes
        has_calls = any(
            isinstance(step, Tensorize) for sketch in made.sketches() for step in sketch.steps
        )
        assert not (made.notes and has_calls)
    assert {dtype for dtype, notes in said.items() if notes} == lacking
    for dtype in lacking:
        (note,) = said[dtype]
        assert f"target {preset(name).name!r} has no instruction" in note
        assert "it would take" in note and ("amx" in note or "avx" in note)


@pytest.mark.parametrize(
    "workload", [cumsum(m=8, n=64), softmax(m=8, n=64)], ids=lambda it: it.name
)
def test_what_is_no_product_lacks_nothing(workload: Workload) -> None:
    assert SketchSpace(workload, preset("haswell-4core"), LIMITS).notes == ()


HALVES = (
    gemm(m=12, n=32, k=16, dtype="bfloat16"),
    gemm(m=7, n=21, k=9, dtype="bfloat16"),
    gemm(m=1, n=16, k=2, dtype="bfloat16"),
    batch_matmul(b=2, m=3, n=20, k=8, dtype="bfloat16"),
    conv2d(h=5, w=6, ci=7, co=16, pad=1, dtype="bfloat16", bias=1, relu=1),
)
ZEN4 = preset("znver4").with_cores(2)


@pytest.mark.parametrize("workload", HALVES)
def test_pairs_of_halves_are_summed_in_float32(workload: Workload) -> None:
    made = SketchSpace(workload, ZEN4, LIMITS)
    for candidate in made.sample(2 * len(made.sketches()), np.random.default_rng(0)):
        (call,) = named(candidate, Tensorize)
        (groups,) = named(candidate, Interleave)
        assert isinstance(call, Tensorize) and call.intrinsic == "bf16-16x2"
        assert isinstance(groups, Interleave) and groups.size == 2
        assert layout_conflict(candidate) is None
        check_nest(candidate)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_other_floats_have_no_such_instruction(dtype: str) -> None:
    workload = gemm(m=12, n=32, k=16, dtype=dtype)
    for sketch in SketchSpace(workload, ZEN4, LIMITS).sketches():
        assert not any(isinstance(step, Tensorize) for step in sketch.steps)


def test_random_bytes_have_all_values() -> None:
    inputs = random_inputs(gemm(m=64, n=64, k=64, dtype="u8s8s32"), np.random.default_rng(0))
    assert (inputs["A"].min(), inputs["A"].max()) == (0, 255)
    assert (inputs["B"].min(), inputs["B"].max()) == (-128, 127)


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"backend": ""}, "cascadelake"),
        ({"backend": "external"}, "cascadelake"),
        ({"steps": LIMITS.steps - {"tensorize"}}, "cascadelake"),
        ({"steps": LIMITS.steps - {"interleave"}}, "cascadelake"),
        ({}, "skylake-avx512"),
        ({}, "haswell"),
    ],
)
@pytest.mark.parametrize("workload", [WORKLOADS[0], HALVES[0]], ids=["bytes", "halves"])
def test_left_out_where_it_cannot_be_done(
    changes: dict[str, object], target: str, workload: Workload
) -> None:
    limits = evolve(LIMITS, **changes)
    for sketch in SketchSpace(workload, preset(target), limits).sketches():
        assert not any(isinstance(step, Tensorize) for step in sketch.steps)


@pytest.mark.parametrize("workload", [gemm(m=8, n=32, k=16), gemm(m=8, n=32, k=16, dtype="int32")])
def test_other_products_are_tiled_as_before(workload: Workload) -> None:
    limits = evolve(LIMITS, backend="")
    ours = generate_sketches(workload, TARGET, LIMITS, BUILT_IN_RULES)
    before = generate_sketches(workload, TARGET, limits, BUILT_IN_RULES)
    assert ours == before


def test_short_vectors_have_the_short_instruction() -> None:
    (sketch, *_) = SketchSpace(WORKLOADS[0], preset("alderlake"), LIMITS).sketches()
    (step,) = (step for step in sketch.steps if isinstance(step, Tensorize))
    assert step.intrinsic == "vnni-8x4"


def first(workload: Workload) -> Candidate:
    return next(iter(space(workload).sample(1, np.random.default_rng(0))))


def test_the_packed_layout_is_the_instruction_s() -> None:
    candidate = first(WORKLOADS[0])
    nest = derive_nest(candidate.sketch)
    (buffer,) = (item for item in nest.buffers if item.name == "B.pack")
    blocks, groups, width, group = (
        int(evaluate(extent, candidate.config)) for extent in buffer.shape
    )
    assert (groups, group) == (4, 4) and width % 16 == 0 and blocks * width in (32, 48)
    tape = nest_tape(candidate.sketch).tape
    values = tape.evaluate(np.array([candidate.values]))[0]
    assert values[tape.output_index["C/stride/B.pack"]] == 4
    assert values[tape.output_index["C/stride/A"]] == 0


def without(candidate: Candidate, kind: type) -> Candidate:
    steps = tuple(step for step in candidate.sketch.steps if not isinstance(step, kind))
    return evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))


def test_layouts_that_an_instruction_would_misread() -> None:
    candidate = first(WORKLOADS[0])
    flat = layout_conflict(without(candidate, Interleave))
    assert flat is not None and "'B.pack' has neighbours along 'k'" in flat
    in_place = layout_conflict(without(without(candidate, Interleave), Pack))
    assert in_place is not None
    assert "'B' has neighbours along 'k' 32 elements apart, but a call reads" in in_place


def test_calls_that_do_not_fit_their_loops() -> None:
    candidate = first(WORKLOADS[0])
    place = candidate.sketch.param_names.index("C.k.2")
    values = list(candidate.values)
    values[place] = 2
    message = layout_conflict(evolve(candidate, values=tuple(values)))
    assert message is not None and "have extents [2, 16], a call has [4, 16]" in message

    def swapped(loops: tuple[str, ...]) -> tuple[str, ...]:
        return (*loops[:-3], loops[-2], loops[-3], loops[-1])

    steps = tuple(
        evolve(step, loops=swapped(step.loops)) if isinstance(step, Order) else step
        for step in candidate.sketch.steps
    )
    message = layout_conflict(evolve(candidate, sketch=evolve(candidate.sketch, steps=steps)))
    assert message is not None and "are not its innermost ones" in message


def test_an_intrinsic_that_nobody_declares() -> None:
    candidate = first(WORKLOADS[0])
    steps = tuple(
        evolve(step, intrinsic="vnni-16x8") if isinstance(step, Tensorize) else step
        for step in candidate.sketch.steps
    )
    with pytest.raises(UnknownNameError, match="vnni-16x4"):
        layout_conflict(evolve(candidate, sketch=evolve(candidate.sketch, steps=steps)))


def test_padding_the_reduction_needs_both_factors_packed() -> None:
    made = space(gemm(m=8, n=32, k=18, dtype="u8s8s32"))
    assert {sketch.name for sketch in made.sketches()} == {
        "packed-root-rows",
        "packed-panel-outer",
    }
    narrow = evolve(LIMITS, steps=LIMITS.steps - {"pad_extent"})
    ordinary = SketchSpace(gemm(m=8, n=32, k=18, dtype="u8s8s32"), TARGET, narrow)
    assert not any(
        isinstance(step, Tensorize) for sketch in ordinary.sketches() for step in sketch.steps
    )


def test_a_small_product_on_many_cores_need_not_occupy_them_all() -> None:
    target = preset("sapphirerapids-128core")
    found = SketchSpace(gemm(m=128, n=768, k=768, dtype="u8s8s32"), target, LIMITS)
    names = [sketch.name for sketch in found.sketches()]
    assert found.loosened == dict.fromkeys(names, ("every core gets work",))
    for sketch in found.sketches():
        assert "every core" not in describe_problem(problem_of(sketch), 1)


def test_a_backend_gets_the_first_instruction_that_it_implements() -> None:
    workload, target = gemm(m=64, n=64, k=128, dtype="u8s8s32"), preset("sapphirerapids")
    dots = tuple(
        evolve(it, implementations={**it.implementations, "other": "module:name"})
        for it in INTRINSICS.values()
        if it.name.startswith("vnni")
    )
    rule = TensorTilingRule((*(it for it in INTRINSICS.values() if it.kind == "cpu"), *dots))
    used: dict[str, set[str]] = {}
    for backend in ("tvm", "mlir", "other"):
        limits = evolve(LIMITS, backend=backend)
        made = SketchSpace(workload, target, limits, rules=(rule,)).sketches()
        steps = [step for sketch in made for step in sketch.steps]
        calls = {step.intrinsic for step in steps if isinstance(step, Tensorize)}
        used[backend] = {name.partition("-")[0] for name in calls}
    assert used == {"tvm": {"amx"}, "mlir": {"amx"}, "other": {"vnni"}}
