"""Sketches on tensor cores, of warps and of warpgroups: where there are any, what they compute."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from convolutions import convolution
from renamed_workloads import respelled
from tensor_products import rows_product
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
)
from autotune.models.pruning.gpu_accesses import launches
from autotune.models.pruning.psa_gpu import GpuScorer
from autotune.models.pruning.psa_symbols import CORRECTED_SYMBOLS, corrected_symbols
from autotune.nest import derive_nest, layout_conflict, nest_tape
from autotune.sketches import (
    STEP_TYPES,
    TERMS,
    BulkCopy,
    Candidate,
    ChunkReduction,
    CoreMatrices,
    PadExtent,
    PipelineFetches,
    Sketch,
    Step,
    Tile,
    WarpTensorize,
)
from autotune.sketches.intrinsics import find_intrinsic, result_levels
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import most_shared_memory, resolve
from autotune.testing.programs import check_nest

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1020, 512, "test")
WARPS, GROUPS, BULK = "tensor-cores", "tensor-cores-warpgroup", "tensor-cores-bulk"
HALVES = "float16"
MULTIPLIED = (
    gemm(m=64, n=64, k=64, dtype=HALVES),
    gemm(m=32, n=48, k=96, dtype="int8"),
    dense(m=64, n=24, k=64, dtype="bfloat16"),
    batch_matmul(b=2, m=32, n=40, k=32, dtype=HALVES),
)
UNEVEN = (
    gemm(m=50, n=44, k=52, dtype=HALVES),
    gemm(m=20, n=21, k=40, dtype="int8"),
    dense(m=33, n=24, k=20, dtype="bfloat16"),
    batch_matmul(b=2, m=32, n=40, k=19, dtype=HALVES),
)
CONVOLUTIONS = (
    conv2d(h=7, w=6, ci=16, co=24, pad=1, dtype=HALVES),
    conv2d(n=2, h=9, w=7, ci=3, co=8, stride=2, bias=1, relu=1, dtype="bfloat16"),
    conv2d(h=5, w=5, ci=16, co=16, kh=1, kw=1, dtype=HALVES),
    conv2d(h=6, w=6, ci=8, co=16, pad=1, requantize=8, dtype="int8"),
    conv3d(d=4, h=4, w=4, ci=4, co=8, dtype=HALVES),
    convolution(n=2, h=7, w=6, ci=8, co=24, pad=1, bias=1),
    convolution(h=9, w=5, ci=16, co=16, kernel=1, dtype="bfloat16"),
    convolution(h=6, w=6, ci=16, co=16, pad=1, dtype="int8"),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, stride=2, pad=1, bias=1),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, pad=1, bias=1, last=1),
    convolution(h=6, w=5, ci=32, co=32, groups=4, last=1, dtype="int8"),
)
LONG_CONVOLUTIONS = (
    conv2d(h=6, w=5, ci=64, co=32, pad=1, bias=1, dtype=HALVES),
    convolution(n=2, h=6, w=6, ci=64, co=16, pad=1, bias=1, dtype="bfloat16"),
)
OF_WARPGROUPS = (
    gemm(m=128, n=32, k=64, dtype=HALVES),
    dense(m=64, n=24, k=64, dtype="bfloat16"),
    batch_matmul(b=2, m=64, n=16, k=32, dtype=HALVES),
    gemm(m=50, n=44, k=52, dtype=HALVES),
    gemm(m=64, n=96, k=96, dtype="int8"),
    conv2d(h=8, w=8, ci=3, co=16, pad=1, bias=1, relu=1, dtype="bfloat16"),
    convolution(h=5, w=8, ci=16, co=64, groups=2, pad=1),
)
LONG = (
    gemm(m=64, n=32, k=512, dtype=HALVES),
    gemm(m=50, n=44, k=1024, dtype="bfloat16"),
    convolution(h=8, w=8, ci=64, co=32, pad=1, bias=1),
    gemm(m=64, n=32, k=512, dtype="int8"),
)
FLOATS = (gemm(m=40, n=24, k=50), dense(m=32, n=24, k=40), conv2d(h=6, w=6, ci=3, co=8, pad=1))
MIDDLING = gemm(m=1024, n=1024, k=1024, dtype=HALVES)
LARGE = gemm(m=4096, n=4096, k=4096, dtype=HALVES)


def weighted_values() -> Workload:
    """Attention's last product with the heads between rows and columns of its result."""
    factors = "P[2, 3, 20, 32]: float16, V[2, 32, 3, 24]: float16"
    product = "float32(P[b, h, s, t]) * float32(V[b, t, h, d])"
    return written(factors, f"O[b:2, s:20, h:3, d:24; t:32] += {product}", name="weighted_values")


def squares(dtype: str = HALVES) -> Workload:
    """A matrix times itself: one tensor is both factors."""
    product = "C[i:32, j:32; k:32] += float32(A[i, k]) * float32(A[k, j])"
    return written(f"A[32, 32]: {dtype}", product, name="squares")


def computed_factor() -> Workload:
    return written(
        "X[128, 64]: float16, B[64, 64]: float16",
        "A[i:128, k:64]: float16 = X[i, k] * 2.0",
        "C[i:128, j:64; k:64] += float32(A[i, k]) * float32(B[j, k])",
        name="scaled",
    )


def space_of(workload: Workload, target: str, limits: ScheduleLimits = LIMITS) -> SketchSpace:
    return SketchSpace(workload, resolve(target), limits)


def sketch_in(space: SketchSpace, label: str) -> Sketch:
    (found,) = (it for it in space.sketches() if it.name == label)
    return found


def sketch_of(workload: Workload, label: str = WARPS, target: str = "a100") -> Sketch:
    return sketch_in(space_of(workload, target), label)


def candidates(workload: Workload, label: str, target: str, count: int) -> list[Candidate]:
    space = space_of(workload, target)
    sketch = sketch_in(space, label)
    rows = space.feasible_set(sketch).uniform(count, 4).tolist()
    return [Candidate(sketch, tuple(row)) for row in rows]


def check(workload: Workload, found: list[Candidate]) -> None:
    """Candidates compute the reference by their nests."""
    inputs = random_inputs(workload, np.random.default_rng(1))
    for candidate in found:
        assert layout_conflict(candidate) is None
        check_nest(candidate, inputs)


def ids(value: Any) -> str:
    return named(value) if isinstance(value, Workload) else str(value)


@pytest.mark.parametrize(
    ("workload", "label", "target"),
    [
        *thinned(
            (
                (it, WARPS, "a100")
                for it in (weighted_values(), *MULTIPLIED, *UNEVEN, *CONVOLUTIONS)
            ),
            3,
        ),
        (gemm(m=20, n=64, k=1024, dtype=HALVES), f"split-{WARPS}", "a100"),
        *((it, f"split-{WARPS}", "a100") for it in LONG_CONVOLUTIONS),
        *((it, WARPS, "a100-tf32") for it in FLOATS),
        *thinned(((it, GROUPS, "h100") for it in OF_WARPGROUPS), 2),
        *thinned(((it, f"split-{GROUPS}", "h100") for it in LONG), 2),
        (gemm(m=128, n=64, k=64, dtype=HALVES), BULK, "h100"),
        (batch_matmul(b=2, m=64, n=32, k=32, dtype="bfloat16"), BULK, "h100"),
        (rows_product("int8", 70, 40, 144), BULK, "h100"),
        (gemm(m=50, n=48, k=56, dtype=HALVES), BULK, "h100"),
        (gemm(m=64, n=32, k=512, dtype=HALVES), f"split-{BULK}", "h100"),
    ],
    ids=ids,
)
def test_the_nest_computes_the_reference(workload: Workload, label: str, target: str) -> None:
    """Each thread writes what it computed itself, whatever the order of its loops."""
    check(workload, candidates(workload, label, target, 3))


@pytest.mark.parametrize("workload", (*MULTIPLIED, *UNEVEN, *CONVOLUTIONS, *FLOATS), ids=named)
def test_products_that_an_instruction_computes_have_the_sketch(workload: Workload) -> None:
    sketch = sketch_of(workload, target="a100-tf32")
    (step,) = (step for step in sketch.steps if isinstance(step, WarpTensorize))
    assert find_intrinsic(step.intrinsic).left.dtype == workload.inputs[0].dtype


@pytest.mark.parametrize(
    ("workload", "label", "target"),
    [
        pytest.param(gemm(m=64, n=64, k=64), WARPS, "a100", id="float32"),
        pytest.param(gemm(m=64, n=64, k=64, dtype="float64"), WARPS, "a100-tf32", id="float64"),
        pytest.param(gemm(m=64, n=64, k=64, dtype="u8s8s32"), WARPS, "a100", id="unsigned"),
        pytest.param(gemm(m=7, n=64, k=64, dtype=HALVES), WARPS, "a100", id="rows"),
        pytest.param(gemm(m=64, n=3, k=64, dtype=HALVES), WARPS, "a100", id="columns"),
        pytest.param(gemm(m=64, n=64, k=15, dtype="int8"), WARPS, "a100", id="reduction"),
        pytest.param(MULTIPLIED[0], WARPS, "t4", id="sm_75"),
        pytest.param(depthwise_conv2d(h=8, w=8, c=16, dtype=HALVES), WARPS, "a100", id="channels"),
        pytest.param(squares(), WARPS, "a100", id="squares"),
        pytest.param(gemm(m=20, n=64, k=1032, dtype=HALVES), f"split-{WARPS}", "a100", id="part"),
        pytest.param(OF_WARPGROUPS[0], GROUPS, "a100", id="groups sm_80"),
        pytest.param(gemm(m=64, n=64, k=64, dtype="u8s8s32"), GROUPS, "h100", id="groups bytes"),
        pytest.param(gemm(m=64, n=64, k=64), GROUPS, "h100", id="groups without tf32"),
        pytest.param(gemm(m=31, n=64, k=64, dtype=HALVES), GROUPS, "h100", id="groups rows"),
        pytest.param(gemm(m=128, n=64, k=64, dtype=HALVES), BULK, "a100", id="bulk sm_80"),
        pytest.param(gemm(m=128, n=64, k=64), BULK, "h100-tf32", id="bulk rounded"),
        pytest.param(gemm(m=64, n=96, k=96, dtype="int8"), BULK, "h100", id="bulk turned"),
        pytest.param(dense(m=64, n=64, k=68, dtype=HALVES), BULK, "h100", id="bulk pitch"),
        pytest.param(
            conv2d(h=8, w=8, ci=64, co=64, pad=1, dtype=HALVES), BULK, "h100", id="bulk windows"
        ),
        pytest.param(computed_factor(), BULK, "h100", id="bulk computed"),
        pytest.param(gemm(m=64, n=64, k=16, dtype=HALVES), BULK, "h100", id="bulk one iteration"),
    ],
)
def test_others_have_the_sketches_that_they_had(
    workload: Workload, label: str, target: str
) -> None:
    assert label not in [it.name for it in space_of(workload, target).sketches()]


@pytest.mark.parametrize(
    ("missing", "names"),
    [
        ("warp_tensorize", {"shared", "shared-transposed", "direct"}),
        ("core_matrices", {"shared", "shared-transposed", "direct", WARPS}),
        ("bulk_copy", {"shared", "shared-transposed", "direct", WARPS, GROUPS}),
    ],
)
def test_a_backend_without_a_step_gets_no_such_sketch(missing: str, names: set[str]) -> None:
    lacking = evolve(LIMITS, steps=LIMITS.steps - {missing})
    assert {it.name for it in space_of(MULTIPLIED[0], "h100", lacking).sketches()} == names


def test_extents_are_padded_where_no_fragment_divides_them() -> None:
    def padded(sketch: Sketch) -> dict[str, int | None]:
        steps = (step for step in sketch.steps if isinstance(step, PadExtent))
        return {step.axis: step.extent.value for step in steps}

    assert padded(sketch_of(UNEVEN[0])) == {"i": 64, "j": 48, "k": 64}
    assert padded(sketch_of(MULTIPLIED[0])) == {}
    # A part has as many terms as there are, and none of the next part.
    split = sketch_of(gemm(m=20, n=64, k=1024, dtype=HALVES), f"split-{WARPS}")
    assert "k" not in padded(split)
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"pad_extent"})
    assert WARPS not in [it.name for it in space_of(UNEVEN[0], "a100", lacking).sketches()]


PARTS = {
    conv2d(h=14, w=14, ci=256, co=256, pad=1, dtype=HALVES): 8,
    dense(m=128, n=768, k=3072, dtype="bfloat16"): 8,
    gemm(m=128, n=128, k=16384, dtype=HALVES): 32,
    gemm(m=512, n=512, k=8192, dtype=HALVES): 8,
    dense(m=128, n=768, k=3072): 8,
    gemm(m=31, n=64, k=4096, dtype=HALVES): 0,
    gemm(m=64, n=64, k=1032, dtype=HALVES): 0,
    LARGE: 0,
}


@pytest.mark.parametrize("workload", PARTS, ids=named)
def test_long_reductions_are_split_into_parts_for_warpgroups(workload: Workload) -> None:
    """Between what warps and what the wide split have; not where rows or terms do not suit."""
    parts = PARTS[workload]
    sketches = space_of(workload, "h100-tf32").sketches()
    split = [it for it in sketches if it.name == f"split-{GROUPS}"]
    found = [step.chunks for it in split for step in it.steps if isinstance(step, ChunkReduction)]
    assert found == [parts][: bool(parts)]


@pytest.mark.parametrize("workload", LONG_CONVOLUTIONS, ids=named)
def test_parts_of_a_convolution_are_of_all_its_terms(workload: Workload) -> None:
    """Four parts have 144 of 576 terms each: whole calls, and not whole windows."""
    sketch = sketch_of(workload, f"split-{WARPS}")
    (chunk,) = (it for it in sketch.steps if isinstance(it, ChunkReduction))
    assert (chunk.axis, chunk.chunks) == (TERMS, 4)


def values_of(sketch: Sketch, *names: str) -> list[tuple[int, ...] | None]:
    found = {param.name.partition(".")[2]: param.values for param in sketch.params}
    return [found[name] for name in names]


def test_vectors_are_as_wide_as_neighbours_in_memory() -> None:
    """Rows of weights lie in memory as they are; images with windows one element at a time."""
    names = "Y_columns.lanes", "Y_weights.lanes"
    for workload in CONVOLUTIONS[5:7]:
        columns, weights = values_of(sketch_of(workload), *names)
        assert columns and weights and (columns[-1], weights[-1]) == (1, 8)
    even = sketch_of(convolution(h=6, w=4, ci=16, co=16, kernel=1))
    assert values_of(even, "Y_columns.lanes") == [(2, 4, 8)]


@pytest.mark.parametrize(
    ("workload", "label", "target", "depths"),
    [
        (MIDDLING, WARPS, "a100", (1, 2, 3, 4)),
        (gemm(m=64, n=64, k=48, dtype=HALVES), WARPS, "a100", (1, 2, 3)),
        (gemm(m=64, n=64, k=16, dtype=HALVES), WARPS, "a100", ()),
        (gemm(m=50, n=44, k=52, dtype=HALVES), WARPS, "a100", (1, 2, 3, 4)),
        (gemm(m=51, n=45, k=53, dtype=HALVES), WARPS, "a100", ()),  # odd
        (gemm(m=64, n=64, k=128, dtype="int8"), WARPS, "a100", ()),  # turned
        (conv2d(h=8, w=8, ci=16, co=16, pad=1, dtype=HALVES), WARPS, "a100", (1, 2, 3, 4)),
        (conv2d(h=8, w=8, ci=3, co=16, pad=1, dtype=HALVES), WARPS, "a100", ()),
        (MIDDLING, "shared", "a100", ()),
        (LARGE, GROUPS, "h100", (1, 2, 3, 4)),
        (gemm(m=64, n=64, k=32, dtype=HALVES), GROUPS, "h100", (1, 2)),
        (gemm(m=50, n=44, k=52, dtype=HALVES), GROUPS, "h100", (1, 2, 3, 4)),
        (gemm(m=64, n=96, k=96, dtype="int8"), GROUPS, "h100", ()),  # turned
        (conv2d(h=8, w=8, ci=16, co=16, pad=1, dtype=HALVES), GROUPS, "h100", (1, 2, 3, 4)),
        (conv2d(h=8, w=8, ci=3, co=16, pad=1, dtype=HALVES), GROUPS, "h100", ()),
        (LARGE, BULK, "h100", (2, 3, 4)),
    ],
    ids=ids,
)
def test_what_is_moved_in_vectors_is_fetched_ahead(
    workload: Workload, label: str, target: str, depths: tuple[int, ...]
) -> None:
    """Bytes that do not lie along the reduction are turned on the way, one by one."""
    assert depths_of(sketch_of(workload, label, target)) == depths
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"pipeline_fetches"})
    assert not any(map(depths_of, space_of(workload, target, lacking).sketches()))


def depths_of(sketch: Sketch) -> tuple[int, ...]:
    """Stages to choose from; none where everything is waited for."""
    found = [param.values for param in sketch.params if param.name.endswith(".stages")]
    steps = [step for step in sketch.steps if isinstance(step, PipelineFetches)]
    assert len(found) == len(steps)
    return tuple(found[0] or ()) if found else ()


# Tiles of the middling product for warps, and of the large one for warpgroups.
TILES = {
    WARPS: {"i.0": 16, "i.1": 2, "i.2": 2, "j.0": 16, "j.1": 2, "j.2": 4, "k.0": 32, "k.1": 2},
    GROUPS: {"i.0": 32, "i.1": 2, "i.2": 1, "j.0": 16, "j.1": 1, "j.2": 32, "k.0": 64, "k.1": 4},
}
CASES = ((MIDDLING, WARPS, "a100"), (LARGE, GROUPS, "h100"))


def candidate_of(sketch: Sketch, **changes: int) -> Candidate:
    """The candidate with the tiles of the label's product; values that it has no choice of go."""
    of_warps = sketch.name == WARPS
    known = {
        "unroll": 0,
        "stages": 2,
        "A.lanes": 8,
        "B.lanes": 8,
        **TILES[WARPS if of_warps else GROUPS],
    }
    known |= dict.fromkeys(("A.pad", "B.pad"), 8 if of_warps else 1) | changes
    own = {name.removeprefix("C."): name for name in sketch.param_names}
    return Candidate.from_config(
        sketch, {own[name]: value for name, value in known.items() if name in own}
    )


def rows_of(sketch: Sketch, *changes: dict[str, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([candidate_of(sketch, **it).values for it in changes])


@pytest.mark.parametrize(("workload", "label", "target"), CASES)
def test_every_stage_is_memory_of_a_block(workload: Workload, label: str, target: str) -> None:
    machine, space = resolve(target), space_of(workload, target)
    sketch = sketch_in(space, label)
    tape = nest_tape(sketch).tape
    rows = space.feasible_set(sketch).uniform(200, 0)
    column = sketch.param_names.index("C.stages")
    assert set(rows[:, column]) == {1, 2, 3, 4}
    alone = rows.copy()
    alone[:, column] = 1
    place = tape.output_index["shared_bytes"]
    held, of_one = (tape.evaluate(it)[:, place] for it in (rows, alone))
    np.testing.assert_array_equal(held, of_one * rows[:, column])
    assert machine.shared_memory_bytes < held.max() <= most_shared_memory(machine)
    rounds = rows[:, sketch.param_names.index("C.k.0")]
    assert np.all(rows[:, column] <= rounds)


@pytest.mark.parametrize(
    ("workload", "label", "target", "tiles", "fitting"),
    [
        # Three of 52 KiB fit the 163 KiB that a block may ask for, four do not.
        (MIDDLING, WARPS, "a100", {"i.2": 4, "i.0": 8, "k.1": 8, "k.0": 8}, 3),
        # Two of 96 KiB fit 227 KiB, three do not; of half the terms, all do.
        (LARGE, GROUPS, "h100", {"k.0": 32, "k.1": 8, "A.pad": 0, "B.pad": 0}, 2),
        (LARGE, GROUPS, "h100", {"A.pad": 0, "B.pad": 0}, 4),
    ],
    ids=ids,
)
def test_stages_that_overflow_shared_memory_are_infeasible(
    workload: Workload, label: str, target: str, tiles: dict[str, int], fitting: int
) -> None:
    space = space_of(workload, target)
    sketch = sketch_in(space, label)
    rows = rows_of(sketch, *({**tiles, "stages": depth} for depth in (1, 2, 3, 4)))
    wanted = [depth <= fitting for depth in (1, 2, 3, 4)]
    assert space.feasible_set(sketch).contains(rows).tolist() == wanted
    for formula in ("published", "corrected"):
        scores = GpuScorer(resolve(target), formula).score(sketch, rows)
        assert np.isfinite(scores).tolist() == wanted
        assert all(score == -np.inf for score in scores[fitting:])


@pytest.mark.parametrize(
    ("workload", "label", "target", "tiles"),
    [
        (MIDDLING, WARPS, "a100", {}),
        # Of a block that is alone on its multiprocessor whatever its stages.
        (LARGE, GROUPS, "h100", {"i.0": 8, "i.1": 8, "k.0": 128, "k.1": 2}),
    ],
    ids=ids,
)
def test_the_draft_expects_copies_to_be_hidden_behind_products(
    workload: Workload, label: str, target: str, tiles: dict[str, int]
) -> None:
    """With as many blocks resident, stages only hide."""
    sketch = sketch_of(workload, label, target)
    rows = rows_of(sketch, *({**tiles, "stages": depth} for depth in (1, 2, 3)))
    one, two, three = GpuScorer(resolve(target)).score(sketch, rows)
    assert one < two <= three


def test_the_published_formula_does_not_see_stages() -> None:
    sketch = sketch_of(MIDDLING)
    rows = rows_of(sketch, *({"stages": depth} for depth in (1, 2, 3)))
    assert len(set(GpuScorer(resolve("a100"), "published").score(sketch, rows))) == 1


def test_an_asynchronous_copy_is_one_instruction() -> None:
    """64 x 32 elements of either factor are two vectors of each of the 128 threads, 32 times."""
    sketch = sketch_of(MIDDLING)
    names = ("other instructions of a thread", "vectors that a thread copies")
    ((others, copied),) = corrected_symbols(derive_nest(sketch), resolve("a100"), names)
    configs = [candidate_of(sketch, stages=depth).config for depth in (1, 2)]
    waiting, ahead = (int(evaluate(others, config)) for config in configs)
    assert int(evaluate(copied, configs[1])) == 2 * 2 * 32
    assert waiting - ahead == 2 * 2 * 32


def test_floats_are_rounded_where_they_are_fetched() -> None:
    """Threads wait for what they round, so two stages are enough; rows are turned one by one."""
    target = resolve("h100-tf32")
    sketch = sketch_of(gemm(m=1024, n=1024, k=1024), GROUPS, "h100-tf32")
    (step,) = (it for it in sketch.steps if isinstance(it, WarpTensorize))
    assert step.intrinsic == "wgmma-m64n8k8-tf32"
    widths = values_of(sketch, "A.lanes", "B.lanes", "stages")
    assert widths == [(1, 2, 4), (1,), (1, 2)]
    tiles = {"i.0": 8, "j.0": 8, "j.2": 16, "k.0": 32, "A.lanes": 4, "B.lanes": 1}
    found = [candidate_of(sketch, **tiles, stages=depth) for depth in (1, 2)]
    names = ("other instructions of a thread",)
    ((others,),) = corrected_symbols(derive_nest(sketch), target, names)
    one, two = (int(evaluate(others, it.config)) for it in found)
    assert one == two
    waiting, ahead = GpuScorer(target).score(sketch, np.array([it.values for it in found]))
    assert waiting < ahead


def test_floats_that_are_computed_on_the_way_are_left_to_warps() -> None:
    doubled, product = "S[i:128, k:64] = X[i, k] * 2.0", "S[i, k] * W[j, k]"
    workload = written("X[128, 64], W[64, 64]", doubled, f"Y[i:128, j:64; k:64] += {product}")
    names = [it.name for it in space_of(workload, "h100-tf32").sketches()]
    assert any(name.endswith(WARPS) for name in names)
    assert not any(name.endswith(GROUPS) for name in names)


@pytest.mark.parametrize(
    ("tiles", "rows"),
    [
        ({}, (64, 64)),
        ({"k.0": 256, "k.1": 1}, (16, 64)),
        ({"k.0": 128, "k.1": 2, "j.0": 64, "j.1": 2, "j.2": 4}, (32, 32)),
    ],
    ids=("wide", "short", "narrow"),
)
def test_rows_are_the_widest_that_tiles_have_whole(
    tiles: dict[str, int], rows: tuple[int, int]
) -> None:
    sketch = sketch_of(LARGE, BULK, "h100")
    config = candidate_of(sketch, **tiles).config
    steps = [step for step in sketch.steps if isinstance(step, BulkCopy)]
    assert tuple(int(evaluate(step.row, config)) for step in steps) == rows


def test_the_draft_counts_requests_and_not_what_threads_would_copy() -> None:
    target, found, scores = resolve("h100"), [], []
    for label in (BULK, GROUPS):
        sketch = sketch_of(LARGE, label, "h100")
        (symbols,) = corrected_symbols(derive_nest(sketch), target)
        candidate = candidate_of(sketch)
        numbers = (int(evaluate(it, candidate.config)) for it in symbols)
        found.append(dict(zip(CORRECTED_SYMBOLS, numbers, strict=True)))
        scores.append(float(GpuScorer(target).score(sketch, np.array([candidate.values]))[0]))
    bulk, plain = found
    # One request for either factor in each of 64 iterations, for 8 and 4 vectors of a thread.
    copied, issued = "vectors that a thread copies", "other instructions of a thread"
    assert (bulk[copied], plain[copied]) == (2 * 64, (4 + 8) * 64)
    assert bulk[issued] < plain[issued]
    for name in ("bytes of device memory touched", "blocks", "threads of a block"):
        assert bulk[name] == plain[name]
    assert scores[0] >= scores[1]


@pytest.mark.parametrize(
    ("workload", "label", "target", "spare"),
    [
        *(
            (it, WARPS, target, 63 * 2)
            for target in ("a100", "h100")
            for it in (MIDDLING, *MULTIPLIED, UNEVEN[0], CONVOLUTIONS[0])
        ),
        (LARGE, GROUPS, "h100", 63 * 2),
        (LARGE, BULK, "h100", 3 * 1024),  # barriers and alignment
    ],
    ids=ids,
)
def test_candidates_keep_the_limits_of_the_target(
    workload: Workload, label: str, target: str, spare: int
) -> None:
    machine, found = resolve(target), candidates(workload, label, target, 40)
    (launch,) = launches(derive_nest(found[0].sketch))
    for candidate in found:
        config = candidate.config
        threads = int(evaluate(launch.threads, config))
        assert threads % (machine.warp_size if label == WARPS else 128) == 0
        assert threads <= machine.max_threads_per_block
        ahead = any(name.endswith(".stages") for name in config)
        most = most_shared_memory(machine) if ahead else machine.shared_memory_bytes
        assert int(evaluate(launch.shared_bytes, config)) + spare <= most
        assert label == WARPS or 8 <= config["C.j.2"] <= 32
        assert label != BULK or config["C.stages"] >= 2
    rows = np.array([it.values for it in found])
    assert np.all(np.isfinite(GpuScorer(machine).score(found[0].sketch, rows)))


@pytest.mark.parametrize(
    ("workload", "target", "label", "others", "times"),
    [
        (MIDDLING, "a100", WARPS, {"shared"}, 2.0),
        (LARGE, "h100", GROUPS, {WARPS}, 1.2),
        (LARGE, "h100", GROUPS, {"shared", "shared-transposed"}, 1.0),
        (
            dense(m=128, n=768, k=3072, dtype=HALVES),
            "h100",
            f"split-{GROUPS}",
            {f"split-{WARPS}"},
            1.1,
        ),
    ],
    ids=ids,
)
def test_the_draft_puts_tensor_cores_first(
    workload: Workload, target: str, label: str, others: set[str], times: float
) -> None:
    space, scorer = space_of(workload, target), GpuScorer(resolve(target))
    best = {
        sketch.name: scorer.score(sketch, space.feasible_set(sketch).uniform(2000, 1)).max()
        for sketch in space.sketches()
        if sketch.name in {label, *others}
    }
    assert best.keys() == {label, *others}
    assert all(best[label] > times * best[other] for other in others)


@pytest.mark.parametrize(
    ("workload", "label", "target", "changes", "pad"),
    [
        (MIDDLING, WARPS, "a100", {}, 8),  # rows 64 bytes apart
        (LARGE, GROUPS, "h100", {"j.0": 32, "j.2": 16}, 1),  # planes of multiples of 128 bytes
    ],
    ids=ids,
)
def test_the_draft_sees_bank_conflicts(
    workload: Workload, label: str, target: str, changes: dict[str, int], pad: int
) -> None:
    """Of two candidates that differ in padding alone, those that meet in banks are slower."""
    sketch = sketch_of(workload, label, target)
    rows = rows_of(sketch, *({**changes, "stages": 1, "A.pad": it} for it in (0, pad)))
    plain, padded = GpuScorer(resolve(target)).score(sketch, rows)
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
    (candidate,) = candidates(workload, WARPS, "a100", 1)
    renamed = candidate.sketch.on(other)
    assert renamed.digest == candidate.sketch.digest
    assert renamed.on(workload) == candidate.sketch
    check(other, [Candidate(renamed, candidate.values)])


def changed(step: Step, change: str) -> Step | None:
    """A step as a change leaves it; None where it is left out."""
    of_left = getattr(step, "operand", "") == "A"
    if change == "unstaged" and of_left:
        return None
    if isinstance(step, CoreMatrices) and of_left and change in ("plain", "narrow"):
        return None if change == "plain" else evolve(step, width=4)
    if isinstance(step, WarpTensorize) and change == "order":
        return evolve(step, loops=step.loops[::-1])
    if isinstance(step, WarpTensorize) and change == "warps":
        return evolve(step, intrinsic="mma-m16n8k16")
    if isinstance(step, Tile) and step.axis == "k" and change == "extent":
        return evolve(step, factors=(*step.factors[:1], step.factors[1] * 2, const(8)))
    if isinstance(step, Tile) and step.axis == "k" and change == "terms":
        return evolve(step, factors=(step.factors[0], const(24)))
    if isinstance(step, BulkCopy) and change == "rows":
        return evolve(step, row=const(8))
    return step


@pytest.mark.parametrize(
    ("label", "change", "tiles", "message"),
    [
        *((WARPS, it, {}, "mma-m16n8k16 in stage 'C'") for it in ("extent", "order", "unstaged")),
        (GROUPS, "unstaged", {}, "'A' is not in shared memory"),
        (GROUPS, "plain", {}, "'A.fetch' does not lie in rows of 16 bytes"),
        (GROUPS, "narrow", {}, "'A.fetch' does not lie in rows of 16 bytes"),
        (GROUPS, "wide", {"j.0": 8, "j.2": 64}, "a tile has 512 columns, and no instruction has"),
        (GROUPS, "terms", {}, r"have extents \[2, 2, 24\], a call has \[2, 2, 16\]"),
        (GROUPS, "warps", {"k.0": 256, "k.1": 1}, "'A.fetch' lies in core matrices"),
        (BULK, "rows", {}, "'A.fetch' does not lie in rows of 32, 64, 128 bytes"),
    ],
)
def test_what_no_instruction_computes_is_found(
    label: str, change: str, tiles: dict[str, int], message: str
) -> None:
    workload, target = (MIDDLING, "a100") if label == WARPS else (LARGE, "h100")
    candidate = candidate_of(
        sketch_of(workload, label, target),
        **({"j.0": 32, "j.2": 16} if label == GROUPS else {}) | tiles,
    )
    steps = [changed(step, change) for step in candidate.sketch.steps]
    kept = tuple(step for step in steps if step is not None)
    conflict = layout_conflict(evolve(candidate, sketch=evolve(candidate.sketch, steps=kept)))
    assert conflict is not None and re.search(message, conflict)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (PipelineFetches("C", "i.0", const(2)), r"no step fetches anything inside 'i\.0'"),
        (BulkCopy("C", "C", const(64)), "no step fetches 'C' before"),
    ],
)
def test_what_nothing_fetches_is_refused(step: Step, message: str) -> None:
    sketch = sketch_of(LARGE, BULK, "h100")
    steps = tuple(it for it in sketch.steps if not isinstance(it, PipelineFetches))
    with pytest.raises(InvalidValueError, match=message):
        derive_nest(evolve(sketch, steps=(*steps, step)))


def test_a_product_before_one_without_tensor_cores_has_the_choice() -> None:
    """Of attention, scores are products of halves; their sums weight values in float32."""
    workload = attention(h=2, n=16, d=32, dtype=HALVES)
    check(workload, candidates(workload, f"shared+direct+direct+{WARPS}", "a100", 1))
    of_groups = space_of(attention(h=2, n=64, d=32, dtype=HALVES), "h100").sketches()
    assert any(it.name.endswith(GROUPS) for it in of_groups)
    assert any(it.name.endswith(f"+{WARPS}") for it in of_groups)
