"""Sketches on the tensor cores of warpgroups: where there are any, and what they compute."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve
from convolutions import convolution
from numpy.typing import NDArray
from thinning import thinned
from workload_names import named
from written import written

from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv2d,
    dense,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.measure.validation import error_bound, relative_bound
from autotune.models.pruning.gpu_accesses import launches
from autotune.models.pruning.psa_gpu import GpuScorer
from autotune.models.pruning.psa_symbols import corrected_symbols
from autotune.nest import derive_nest, layout_conflict, nest_tape
from autotune.sketches import (
    STEP_TYPES,
    Candidate,
    ChunkReduction,
    CooperativeFetch,
    CoreMatrices,
    PipelineFetches,
    Sketch,
    Tile,
    WarpTensorize,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target, most_shared_memory, preset, resolve
from autotune.testing.nest_interpreter import run_candidate

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1020, 512, "test")
H100 = preset("h100")
LABEL, BULK = "tensor-cores-warpgroup", "tensor-cores-bulk"
PRODUCTS = (
    gemm(m=128, n=32, k=64, dtype="float16"),
    dense(m=64, n=24, k=64, dtype="bfloat16"),
    batch_matmul(b=2, m=64, n=16, k=32, dtype="float16"),
    gemm(m=50, n=44, k=52, dtype="float16"),
    gemm(m=64, n=96, k=96, dtype="int8"),
    conv2d(h=8, w=8, ci=3, co=16, pad=1, bias=1, relu=1, dtype="bfloat16"),
    convolution(h=5, w=8, ci=16, co=64, groups=2, pad=1),
)
LONG = (
    gemm(m=64, n=32, k=512, dtype="float16"),
    gemm(m=50, n=44, k=1024, dtype="bfloat16"),
    convolution(h=8, w=8, ci=64, co=32, pad=1, bias=1),
    gemm(m=64, n=32, k=512, dtype="int8"),
)
LARGE = gemm(m=4096, n=4096, k=4096, dtype="float16")


def space_of(workload: Workload, target: Target = H100) -> SketchSpace:
    return SketchSpace(workload, target, LIMITS)


def sketch_of(workload: Workload, target: Target = H100) -> Sketch | None:
    found = [it for it in space_of(workload, target).sketches() if it.name == LABEL]
    return found[0] if found else None


def candidates(workload: Workload, count: int, label: str = LABEL) -> list[Candidate]:
    space = space_of(workload)
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(4))
    return [candidate for candidate in drawn if candidate.sketch.name == label]


@pytest.mark.parametrize("workload", thinned((*PRODUCTS, *LONG), 2), ids=named)
def test_the_nest_computes_the_reference(workload: Workload) -> None:
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = reference_outputs(workload, inputs)
    found = candidates(workload, 2, f"split-{LABEL}" if workload in LONG else LABEL)
    assert found
    for candidate in found:
        assert layout_conflict(candidate) is None
        for name, got in run_candidate(candidate, inputs).items():
            element = workload.tensors[name].element
            wanted, values = element.numbers(expected[name]), element.numbers(got)
            bound = error_bound(wanted, relative_bound(workload, name))
            assert np.all(np.abs(values.astype(np.float64) - wanted) <= bound)


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        (PRODUCTS[0], "a100"),
        (gemm(m=64, n=64, k=64, dtype="u8s8s32"), "h100"),
        (gemm(m=64, n=64, k=64), "h100"),
        (gemm(m=31, n=64, k=64, dtype="float16"), "h100"),
    ],
    ids=("sm_80", "unsigned", "without tf32", "rows"),
)
def test_others_have_no_such_sketch(workload: Workload, target: str) -> None:
    assert sketch_of(workload, resolve(target)) is None


PARTS = {
    conv2d(h=14, w=14, ci=256, co=256, pad=1, dtype="float16"): 8,
    dense(m=128, n=768, k=3072, dtype="bfloat16"): 8,
    gemm(m=128, n=128, k=16384, dtype="float16"): 32,
    gemm(m=512, n=512, k=8192, dtype="float16"): 8,
    dense(m=128, n=768, k=3072): 8,
    gemm(m=31, n=64, k=4096, dtype="float16"): 0,
    gemm(m=64, n=64, k=1032, dtype="float16"): 0,
    LARGE: 0,
}


@pytest.mark.parametrize("workload", PARTS, ids=named)
def test_long_reductions_are_split_into_parts_for_warpgroups(workload: Workload) -> None:
    """Between what warps and what the wide split have; not where rows or terms do not suit."""
    parts = PARTS[workload]
    space = space_of(workload, resolve("h100-tf32"))
    split = [it for it in space.sketches() if it.name == f"split-{LABEL}"]
    found = [step.chunks for it in split for step in it.steps if isinstance(step, ChunkReduction)]
    assert found == [parts][: bool(parts)]


def test_the_draft_puts_parts_on_warpgroups_first_where_results_are_few() -> None:
    space, scorer = space_of(dense(m=128, n=768, k=3072, dtype="float16")), GpuScorer(H100)
    best = {
        sketch.name: scorer.score(sketch, space.feasible_set(sketch).uniform(2000, 1)).max()
        for sketch in space.sketches()
    }
    assert best[f"split-{LABEL}"] > 1.1 * best["split-tensor-cores"]


def test_a_backend_without_the_layout_gets_no_such_sketch() -> None:
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"core_matrices"})
    names = [it.name for it in SketchSpace(PRODUCTS[0], H100, lacking).sketches()]
    assert LABEL not in names and "tensor-cores" in names


@pytest.mark.parametrize(
    ("workload", "depths"),
    [
        (LARGE, (1, 2, 3, 4)),
        (gemm(m=64, n=64, k=32, dtype="float16"), (1, 2)),
        (gemm(m=50, n=44, k=52, dtype="float16"), (1, 2, 3, 4)),
        (gemm(m=64, n=96, k=96, dtype="int8"), ()),
        (conv2d(h=8, w=8, ci=16, co=16, pad=1, dtype="float16"), (1, 2, 3, 4)),
        (conv2d(h=8, w=8, ci=3, co=16, pad=1, dtype="float16"), ()),
    ],
    ids=("large", "two", "padded", "turned", "windows", "three channels"),
)
def test_copies_in_core_matrices_are_fetched_ahead(
    workload: Workload, depths: tuple[int, ...]
) -> None:
    """As those of warps are: bytes that do not lie along the reduction are turned on the way."""
    sketch = sketch_of(workload)
    assert sketch is not None
    found = [param.values for param in sketch.params if param.name.endswith(".stages")]
    assert tuple(found[0] or () if found else ()) == depths
    assert any(isinstance(step, PipelineFetches) for step in sketch.steps) == bool(depths)


def test_floats_are_rounded_where_they_are_fetched() -> None:
    """Threads wait for what they round, so two stages are enough; rows are turned one by one."""
    target = resolve("h100-tf32")
    sketch = sketch_of(gemm(m=1024, n=1024, k=1024), target)
    assert sketch is not None
    assert any(
        isinstance(step, WarpTensorize) and step.intrinsic == "wgmma-m64n8k8-tf32"
        for step in sketch.steps
    )
    values = {param.name: param.values for param in sketch.params}
    assert values["C.A.lanes"] == (1, 2, 4) and values["C.B.lanes"] == (1,)
    assert values["C.stages"] == (1, 2)
    tiles = {"i.0": 8, "i.1": 2, "i.2": 1, "j.0": 8, "j.1": 1, "j.2": 16, "k.0": 32, "k.1": 4}
    tiles |= {"A.lanes": 4, "B.lanes": 1, "A.pad": 1, "B.pad": 1, "unroll": 0}
    config = {f"C.{name}": value for name, value in tiles.items()}
    nest, names = derive_nest(sketch), ("other instructions of a thread",)
    ((others,),) = corrected_symbols(nest, target, names)
    one, two = (int(evaluate(others, config | {"C.stages": depth})) for depth in (1, 2))
    assert one == two
    found = [Candidate.from_config(sketch, config | {"C.stages": depth}) for depth in (1, 2)]
    waiting, ahead = GpuScorer(target).score(sketch, np.array([it.values for it in found]))
    assert waiting < ahead


def test_floats_that_are_computed_on_the_way_are_left_to_warps() -> None:
    doubled, product = "S[i:128, k:64] = X[i, k] * 2.0", "S[i, k] * W[j, k]"
    workload = written("X[128, 64], W[64, 64]", doubled, f"Y[i:128, j:64; k:64] += {product}")
    names = [it.name for it in space_of(workload, resolve("h100-tf32")).sketches()]
    assert any(name.endswith("tensor-cores") for name in names)
    assert not any(name.endswith(LABEL) for name in names)


def test_every_stage_is_memory_of_a_block() -> None:
    """Two of 96 KiB fit the 227 KiB that a block may ask for, three do not."""
    sketch = sketch_of(LARGE)
    assert sketch is not None
    tiles = {"i.0": 32, "i.1": 2, "i.2": 1, "j.0": 16, "j.1": 1, "j.2": 32, "k.0": 64, "k.1": 4}
    tiles |= {"A.lanes": 8, "B.lanes": 8, "A.pad": 0, "B.pad": 0, "unroll": 0}

    def rows(**changes: int) -> NDArray[np.int64]:
        config = {f"C.{name}": value for name, value in (tiles | changes).items()}
        found = [Candidate.from_config(sketch, config | {"C.stages": it}) for it in (1, 2, 3, 4)]
        return np.array([candidate.values for candidate in found])

    tape = nest_tape(sketch).tape
    held = tape.evaluate(rows())[:, tape.output_index["shared_bytes"]]
    assert held.tolist() == [48 * 1024 * depth for depth in (1, 2, 3, 4)]
    feasible, large = space_of(LARGE).feasible_set(sketch), {"k.0": 32, "k.1": 8}
    assert feasible.contains(rows()).tolist() == [True, True, True, True]
    assert feasible.contains(rows(**large)).tolist() == [True, True, False, False]
    assert np.isfinite(GpuScorer(H100).score(sketch, rows(**large))).tolist() == [1, 1, 0, 0]


def test_the_draft_expects_copies_to_be_hidden_behind_products() -> None:
    """Of a block that is alone on its multiprocessor whatever its stages."""
    sketch = sketch_of(LARGE)
    assert sketch is not None
    tiles = {"i.0": 8, "i.1": 8, "i.2": 1, "j.0": 16, "j.1": 1, "j.2": 32, "k.0": 128, "k.1": 2}
    tiles |= {"A.lanes": 8, "B.lanes": 8, "A.pad": 1, "B.pad": 1, "unroll": 0}
    config = {f"C.{name}": value for name, value in tiles.items()}
    found = [Candidate.from_config(sketch, config | {"C.stages": it}) for it in (1, 2, 3)]
    one, two, three = GpuScorer(H100).score(sketch, np.array([it.values for it in found]))
    assert one < two <= three


def test_candidates_keep_the_limits_of_the_target() -> None:
    for candidate in candidates(LARGE, 40):
        (launch,) = launches(derive_nest(candidate.sketch))
        config = candidate.config
        assert int(evaluate(launch.threads, config)) % 128 == 0
        assert int(evaluate(launch.threads, config)) <= H100.max_threads_per_block
        shared = int(evaluate(launch.shared_bytes, config))
        assert shared + 63 * 2 <= most_shared_memory(H100)
        assert 8 <= config["C.j.2"] <= 32
        score = GpuScorer(H100).score(candidate.sketch, np.array([candidate.values]))
        assert np.all(np.isfinite(score))


def test_the_draft_puts_warpgroups_first_for_a_large_product() -> None:
    space, scorer = space_of(LARGE), GpuScorer(H100)
    best = {
        sketch.name: scorer.score(sketch, space.feasible_set(sketch).uniform(2000, 1)).max()
        for sketch in space.sketches()
    }
    assert best[LABEL] > max(best[name] for name in best if name not in (LABEL, BULK))
    assert best[LABEL] > 1.2 * best["tensor-cores"]


def test_the_draft_sees_bank_conflicts_of_stores() -> None:
    """Of two candidates that differ in padding alone, planes of multiples of 128 bytes lose."""
    sketch = sketch_of(LARGE)
    assert sketch is not None
    tiles = {"i.0": 32, "i.1": 2, "i.2": 1, "j.0": 32, "j.1": 1, "j.2": 16, "k.0": 64, "k.1": 4}
    config = {f"C.{name}": value for name, value in tiles.items()}
    config |= {"C.A.lanes": 8, "C.B.lanes": 8, "C.B.pad": 1, "C.stages": 1, "C.unroll": 0}
    rows = [Candidate.from_config(sketch, config | {"C.A.pad": pad}).values for pad in (0, 1)]
    plain, padded = GpuScorer(H100).score(sketch, np.array(rows))
    assert plain < padded


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("unstaged", "'A' is not in shared memory"),
        ("plain", "'A.fetch' does not lie in rows of 16 bytes"),
        ("narrow", "'A.fetch' does not lie in rows of 16 bytes"),
        ("wide", "a tile has 512 columns, and no instruction has"),
        ("terms", r"have extents \[2, 2, 24\], a call has \[2, 2, 16\]"),
        ("warps", "'A.fetch' lies in core matrices"),
    ],
)
def test_what_no_warpgroup_computes_is_found(change: str, message: str) -> None:
    sketch = sketch_of(LARGE)
    assert sketch is not None
    steps = []
    for step in sketch.steps:
        of_left = getattr(step, "operand", "") == "A"
        if change == "unstaged" and of_left and isinstance(step, (CooperativeFetch, CoreMatrices)):
            continue
        if change == "plain" and of_left and isinstance(step, CoreMatrices):
            continue
        if change == "narrow" and of_left and isinstance(step, CoreMatrices):
            step = evolve(step, width=4)
        if change == "terms" and isinstance(step, Tile) and step.axis == "k":
            step = evolve(step, factors=(step.factors[0], const(24)))
        if change == "warps" and isinstance(step, WarpTensorize):
            step = evolve(step, intrinsic="mma-m16n8k16")
        steps.append(step)
    tiles = {"i.0": 32, "i.1": 2, "i.2": 1, "j.0": 32, "j.1": 1, "j.2": 16, "k.0": 64, "k.1": 4}
    if change == "warps":
        tiles |= {"k.0": 256, "k.1": 1}
    if change == "wide":
        tiles |= {"j.0": 8, "j.2": 64}
    config = {f"C.{name}": value for name, value in tiles.items()}
    config |= {f"C.{name}": 1 for name in ("A.pad", "B.pad")}
    config |= {"C.A.lanes": 8, "C.B.lanes": 8, "C.stages": 1, "C.unroll": 0}
    changed = evolve(sketch, steps=tuple(steps))
    candidate = Candidate(changed, tuple(config[name] for name in sketch.param_names))
    conflict = layout_conflict(candidate)
    assert conflict is not None and re.search(message, conflict)


def test_a_second_product_is_treated_as_the_first() -> None:
    """Scores of an attention in halves on warpgroups; its sums weight values in float32."""
    workload = attention(h=2, n=64, d=32, dtype="float16")
    names = [sketch.name for sketch in space_of(workload).sketches()]
    assert any(name.endswith(LABEL) for name in names)
    assert any(name.endswith("+tensor-cores") for name in names)
