"""Sketches on tensor cores: where there are any, what they compute, and that they keep limits."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from convolutions import convolution
from renamed_workloads import respelled
from thinning import thinned
from workload_names import named
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv2d,
    conv3d,
    dense,
    depthwise_conv2d,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.measure.validation import error_bound, relative_bound
from autotune.models.pruning.gpu_accesses import launches
from autotune.models.pruning.psa_gpu import GpuScorer
from autotune.nest import derive_nest, layout_conflict
from autotune.sketches import (
    STEP_TYPES,
    TERMS,
    Candidate,
    ChunkReduction,
    Ordinal,
    PadExtent,
    Sketch,
    Step,
    WarpTensorize,
)
from autotune.sketches.intrinsics import find_intrinsic, result_levels
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target, most_shared_memory, preset, resolve
from autotune.testing.nest_interpreter import run_candidate

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1020, 512, "test")
A100 = preset("a100")
MULTIPLIED = (
    gemm(m=64, n=64, k=64, dtype="float16"),
    gemm(m=32, n=48, k=96, dtype="int8"),
    dense(m=64, n=24, k=64, dtype="bfloat16"),
    batch_matmul(b=2, m=32, n=40, k=32, dtype="float16"),
)
UNEVEN = (
    gemm(m=50, n=44, k=52, dtype="float16"),
    gemm(m=20, n=21, k=40, dtype="int8"),
    dense(m=33, n=24, k=20, dtype="bfloat16"),
    batch_matmul(b=2, m=32, n=40, k=19, dtype="float16"),
)
CONVOLUTIONS = (
    conv2d(h=7, w=6, ci=16, co=24, pad=1, dtype="float16"),
    conv2d(n=2, h=9, w=7, ci=3, co=8, stride=2, bias=1, relu=1, dtype="bfloat16"),
    conv2d(h=5, w=5, ci=16, co=16, kh=1, kw=1, dtype="float16"),
    conv2d(h=6, w=6, ci=8, co=16, pad=1, requantize=8, dtype="int8"),
    conv3d(d=4, h=4, w=4, ci=4, co=8, dtype="float16"),
    convolution(n=2, h=7, w=6, ci=8, co=24, pad=1, bias=1),
    convolution(h=9, w=5, ci=16, co=16, kernel=1, dtype="bfloat16"),
    convolution(h=6, w=6, ci=16, co=16, pad=1, dtype="int8"),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, stride=2, pad=1, bias=1),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, pad=1, bias=1, last=1),
    convolution(h=6, w=5, ci=32, co=32, groups=4, last=1, dtype="int8"),
)


def weighted_values() -> Workload:
    """Attention's last product with the heads between rows and columns of its result."""
    factors = "P[2, 3, 20, 32]: float16, V[2, 32, 3, 24]: float16"
    product = "float32(P[b, h, s, t]) * float32(V[b, t, h, d])"
    return written(factors, f"O[b:2, s:20, h:3, d:24; t:32] += {product}", name="weighted_values")


LONG_CONVOLUTIONS = (
    conv2d(h=6, w=5, ci=64, co=32, pad=1, bias=1, dtype="float16"),
    convolution(n=2, h=6, w=6, ci=64, co=16, pad=1, bias=1, dtype="bfloat16"),
)


def space_of(workload: Workload, target: Target = A100) -> SketchSpace:
    return SketchSpace(workload, target, LIMITS)


def tensor_sketch(workload: Workload, target: Target = A100) -> Sketch | None:
    found = [it for it in space_of(workload, target).sketches() if it.name == "tensor-cores"]
    return found[0] if found else None


def candidates(
    workload: Workload, count: int, target: Target = A100, sketch: str = "tensor-cores"
) -> list[Candidate]:
    space = space_of(workload, target)
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(4))
    return [candidate for candidate in drawn if candidate.sketch.name == sketch]


def squares(dtype: str = "float16") -> Workload:
    """A matrix times itself: one tensor is both factors."""
    product = "C[i:32, j:32; k:32] += float32(A[i, k]) * float32(A[k, j])"
    return written(f"A[32, 32]: {dtype}", product, name="squares")


@pytest.mark.parametrize("workload", (*MULTIPLIED, *UNEVEN, *CONVOLUTIONS), ids=named)
def test_products_that_an_instruction_computes_have_the_sketch(workload: Workload) -> None:
    sketch = tensor_sketch(workload)
    assert sketch is not None
    (step,) = (step for step in sketch.steps if isinstance(step, WarpTensorize))
    assert find_intrinsic(step.intrinsic).left.dtype == workload.inputs[0].dtype


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        (gemm(m=64, n=64, k=64), "a100"),
        (gemm(m=64, n=64, k=64, dtype="float64"), "a100-tf32"),
        (gemm(m=64, n=64, k=64, dtype="u8s8s32"), "a100"),
        (gemm(m=7, n=64, k=64, dtype="float16"), "a100"),
        (gemm(m=64, n=3, k=64, dtype="float16"), "a100"),
        (gemm(m=64, n=64, k=15, dtype="int8"), "a100"),
        (gemm(m=64, n=64, k=64, dtype="float16"), "t4"),
        (depthwise_conv2d(h=8, w=8, c=16, dtype="float16"), "a100"),
        (squares(), "a100"),
    ],
    ids=(
        "float32",
        "float64",
        "unsigned",
        "rows",
        "columns",
        "reduction",
        "sm_75",
        "channels",
        "squares",
    ),
)
def test_others_have_the_sketches_that_they_had(workload: Workload, target: str) -> None:
    assert tensor_sketch(workload, resolve(target)) is None


def test_extents_are_padded_where_no_fragment_divides_them() -> None:
    sketch = tensor_sketch(UNEVEN[0])
    assert sketch is not None
    steps = [step for step in sketch.steps if isinstance(step, PadExtent)]
    padded = {step.axis: step.extent.value for step in steps}
    assert padded == {"i": 64, "j": 48, "k": 64}
    assert not any(isinstance(step, PadExtent) for step in steps_of(MULTIPLIED[0]))
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"pad_extent"})
    names = [it.name for it in SketchSpace(UNEVEN[0], A100, lacking).sketches()]
    assert "tensor-cores" not in names


def steps_of(workload: Workload) -> tuple[Step, ...]:
    sketch = tensor_sketch(workload)
    assert sketch is not None
    return sketch.steps


def test_a_backend_without_the_step_gets_no_such_sketch() -> None:
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"warp_tensorize"})
    names = [it.name for it in SketchSpace(MULTIPLIED[0], A100, lacking).sketches()]
    assert names == ["shared", "shared-transposed", "direct"]


@pytest.mark.parametrize(
    "workload", thinned((weighted_values(), *MULTIPLIED, *UNEVEN, *CONVOLUTIONS), 3), ids=named
)
def test_the_nest_computes_the_reference(workload: Workload) -> None:
    """Each thread writes what it computed itself, whatever the order of its loops."""
    check(workload, candidates(workload, 3))


def test_parts_of_a_long_reduction_are_products_of_their_own() -> None:
    """A part has as many terms as there are, and none of the next part."""
    workload = gemm(m=20, n=64, k=1024, dtype="float16")
    found = candidates(workload, 1, sketch="split-tensor-cores")
    check(workload, found)
    assert not any(
        isinstance(step, PadExtent) and step.axis == "k" for step in found[0].sketch.steps
    )
    assert not candidates(
        gemm(m=20, n=64, k=1032, dtype="float16"), 1, sketch="split-tensor-cores"
    )


@pytest.mark.parametrize("workload", LONG_CONVOLUTIONS, ids=named)
def test_parts_of_a_convolution_are_of_all_its_terms(workload: Workload) -> None:
    """Four parts have 144 of 576 terms each: whole calls, and not whole windows."""
    found = candidates(workload, 1, sketch="split-tensor-cores")
    check(workload, found)
    (chunk,) = (it for it in found[0].sketch.steps if isinstance(it, ChunkReduction))
    assert (chunk.axis, chunk.chunks) == (TERMS, 4)


def test_vectors_are_as_wide_as_neighbours_in_memory() -> None:
    """Rows of weights lie in memory as they are; images with windows one element at a time."""
    widths = {}
    for kernel, workload in ((3, CONVOLUTIONS[5]), (1, CONVOLUTIONS[6])):
        sketch = tensor_sketch(workload)
        assert sketch is not None
        for param in sketch.params:
            if isinstance(param, Ordinal) and param.name.endswith(".lanes"):
                widths[kernel, param.name] = param.values[-1]
    assert widths == {
        (3, "Y.Y_columns.lanes"): 1,
        (3, "Y.Y_weights.lanes"): 8,
        (1, "Y.Y_columns.lanes"): 1,
        (1, "Y.Y_weights.lanes"): 8,
    }
    even = tensor_sketch(convolution(h=6, w=4, ci=16, co=16, kernel=1))
    assert even is not None
    (param,) = (it for it in even.params if it.name == "Y.Y_columns.lanes")
    assert isinstance(param, Ordinal) and param.values == (2, 4, 8)


@pytest.mark.parametrize(
    "workload",
    [gemm(m=40, n=24, k=50), dense(m=32, n=24, k=40), conv2d(h=6, w=6, ci=3, co=8, pad=1)],
    ids=named,
)
def test_floats_are_multiplied_where_the_target_allows_tf32(workload: Workload) -> None:
    found = candidates(workload, 1, resolve("a100-tf32"))
    check(workload, found)
    (step,) = (it for it in found[0].sketch.steps if isinstance(it, WarpTensorize))
    assert step.intrinsic == "mma-m16n8k8-tf32"


def check(workload: Workload, found: list[Candidate]) -> None:
    """Candidates compute the reference by their nests."""
    assert found
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = reference_outputs(workload, inputs)
    for candidate in found:
        assert layout_conflict(candidate) is None
        for name, got in run_candidate(candidate, inputs).items():
            element = workload.tensors[name].element
            wanted, found = element.numbers(expected[name]), element.numbers(got)
            bound = error_bound(wanted, relative_bound(workload, name))
            assert np.all(np.abs(found.astype(np.float64) - wanted) <= bound)


@pytest.mark.parametrize("target", ["a100", "h100"])
def test_candidates_keep_the_limits_of_the_target(target: str) -> None:
    machine = preset(target)
    large = gemm(m=1024, n=1024, k=1024, dtype="float16")
    for workload in (large, *MULTIPLIED, UNEVEN[0], CONVOLUTIONS[0]):
        for candidate in candidates(workload, 40, machine):
            (launch,) = launches(derive_nest(candidate.sketch))
            threads = int(evaluate(launch.threads, candidate.config))
            shared = int(evaluate(launch.shared_bytes, candidate.config))
            assert threads % machine.warp_size == 0
            assert threads <= machine.max_threads_per_block
            ahead = any(name.endswith(".stages") for name in candidate.config)
            most = most_shared_memory(machine) if ahead else machine.shared_memory_bytes
            assert shared + 63 * 2 <= most
            score = GpuScorer(machine).score(candidate.sketch, np.array([candidate.values]))
            assert np.all(np.isfinite(score))


def test_the_draft_puts_tensor_cores_first_for_a_large_product() -> None:
    space, scorer = space_of(gemm(m=1024, n=1024, k=1024, dtype="float16")), GpuScorer(A100)
    best = {
        sketch.name: scorer.score(sketch, space.feasible_set(sketch).uniform(2000, 1)).max()
        for sketch in space.sketches()
    }
    assert best["tensor-cores"] > 2 * best["shared"]


def test_the_draft_sees_bank_conflicts_of_fragments() -> None:
    """Of two candidates that differ in padding alone, rows 64 bytes apart are the slower ones."""
    sketch = tensor_sketch(gemm(m=1024, n=1024, k=1024, dtype="float16"))
    assert sketch is not None
    tiles = {"i.0": 16, "i.1": 2, "i.2": 2, "j.0": 16, "j.1": 2, "j.2": 4, "k.0": 32, "k.1": 2}
    config = {f"C.{name}": value for name, value in tiles.items()}
    config |= {"C.A.lanes": 8, "C.B.lanes": 8, "C.B.pad": 8, "C.stages": 1, "C.unroll": 0}
    rows = [Candidate.from_config(sketch, config | {"C.A.pad": pad}).values for pad in (0, 8)]
    plain, padded = GpuScorer(A100).score(sketch, np.array(rows))
    assert plain < padded


def test_levels_of_a_result_are_those_of_its_fragment() -> None:
    call = find_intrinsic("mma-m16n8k16")
    assert [(d.extent, d.stride) for d in result_levels(call, "i")] == [(2, 8), (8, 1)]
    assert [(d.extent, d.stride) for d in result_levels(call, "j")] == [(4, 2), (2, 1)]
    with pytest.raises(InvalidValueError, match="declares no fragment of its result"):
        result_levels(find_intrinsic("wmma-16x16x16"), "i")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("workload", [CONVOLUTIONS[1], CONVOLUTIONS[9]], ids=named)
def test_a_convolution_of_other_names_has_the_same_sketch(workload: Workload, seed: int) -> None:
    """Rows and terms are called so everywhere; the stages that gather are called after theirs."""
    other = respelled(workload, seed)
    sketch = tensor_sketch(workload)
    assert sketch is not None
    renamed = sketch.on(other)
    assert renamed.digest == sketch.digest and renamed.on(workload) == sketch
    check(other, [Candidate(renamed, candidates(workload, 1)[0].values)])


@pytest.mark.parametrize("change", ["extent", "order", "unstaged"])
def test_loops_that_are_no_call_are_found(change: str) -> None:
    candidate = candidates(MULTIPLIED[0], 2)[0]
    steps = []
    for step in candidate.sketch.steps:
        if isinstance(step, WarpTensorize) and change == "order":
            step = evolve(step, loops=step.loops[::-1])
        if change == "unstaged" and getattr(step, "operand", "") == "A":
            continue
        if change == "extent" and getattr(step, "axis", "") == "k":
            step = evolve(step, factors=(*step.factors[:1], step.factors[1] * 2, const(8)))
        steps.append(step)
    sketch = evolve(candidate.sketch, steps=tuple(steps))
    conflict = layout_conflict(evolve(candidate, sketch=sketch))
    assert conflict is not None and "mma-m16n8k16 in stage 'C'" in conflict


def test_a_product_before_one_without_tensor_cores_has_the_choice() -> None:
    """Of attention, scores are products of halves; their sums weight values in float32."""
    workload = attention(h=2, n=16, d=32, dtype="float16")
    space = space_of(workload)
    names = [sketch.name for sketch in space.sketches()]
    assert "shared+direct+direct+tensor-cores" in names
    inputs = random_inputs(workload, np.random.default_rng(2))
    wanted = reference_outputs(workload, inputs)["O"]
    drawn = space.sample(3 * len(names), np.random.default_rng(0))
    (candidate, *_) = [it for it in drawn if it.sketch.name.endswith("tensor-cores")]
    found = run_candidate(candidate, inputs)["O"]
    bound = error_bound(wanted, relative_bound(workload, "O"))
    assert np.all(np.abs(found.astype(np.float64) - wanted) <= bound)
