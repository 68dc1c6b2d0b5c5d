"""Sketches whose factors the device's copy engine fetches: which products have them."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from tensor_products import rows_product
from workload_names import named
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Workload,
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
from autotune.models.pruning.psa_symbols import CORRECTED_SYMBOLS, corrected_symbols
from autotune.nest import derive_nest, layout_conflict
from autotune.sketches import STEP_TYPES, BulkCopy, Candidate, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import most_shared_memory, preset, resolve
from autotune.testing.nest_interpreter import run_candidate

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1020, 512, "test")
H100 = preset("h100")
LABEL, PARTS = "tensor-cores-bulk", "split-tensor-cores-bulk"
LARGE = gemm(m=4096, n=4096, k=4096, dtype="float16")
TILES = {"i.0": 32, "i.1": 2, "i.2": 1, "j.0": 16, "j.1": 1, "j.2": 32, "k.0": 64, "k.1": 4}


def computed_factor() -> Workload:
    return written(
        "X[128, 64]: float16, B[64, 64]: float16",
        "A[i:128, k:64]: float16 = X[i, k] * 2.0",
        "C[i:128, j:64; k:64] += float32(A[i, k]) * float32(B[j, k])",
        name="scaled",
    )


def sketch_of(workload: Workload, label: str = LABEL, target: str = "h100") -> Sketch | None:
    space = SketchSpace(workload, resolve(target), LIMITS)
    return next((it for it in space.sketches() if it.name == label), None)


@pytest.mark.parametrize(
    ("workload", "label"),
    [
        (gemm(m=128, n=64, k=64, dtype="float16"), LABEL),
        (batch_matmul(b=2, m=64, n=32, k=32, dtype="bfloat16"), LABEL),
        (rows_product("int8", 70, 40, 144), LABEL),
        (gemm(m=50, n=48, k=56, dtype="float16"), LABEL),
        (gemm(m=64, n=32, k=512, dtype="float16"), PARTS),
    ],
    ids=lambda value: value if isinstance(value, str) else named(value),
)
def test_the_nest_computes_the_reference(workload: Workload, label: str) -> None:
    sketch = sketch_of(workload, label)
    assert sketch is not None
    space = SketchSpace(workload, H100, LIMITS)
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = reference_outputs(workload, inputs)
    for values in space.feasible_set(sketch).uniform(3, 1).tolist():
        candidate = Candidate(sketch, tuple(values))
        assert layout_conflict(candidate) is None
        for name, got in run_candidate(candidate, inputs).items():
            element = workload.tensors[name].element
            wanted, found = element.numbers(expected[name]), element.numbers(got)
            bound = error_bound(wanted, relative_bound(workload, name))
            assert np.all(np.abs(found.astype(np.float64) - wanted) <= bound)


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        (gemm(m=128, n=64, k=64, dtype="float16"), "a100"),
        (gemm(m=128, n=64, k=64), "h100-tf32"),
        (gemm(m=64, n=96, k=96, dtype="int8"), "h100"),
        (dense(m=64, n=64, k=68, dtype="float16"), "h100"),
        (conv2d(h=8, w=8, ci=64, co=64, pad=1, dtype="float16"), "h100"),
        (computed_factor(), "h100"),
        (gemm(m=64, n=64, k=16, dtype="float16"), "h100"),
    ],
    ids=("sm_80", "rounded", "turned", "pitch", "windows", "computed", "one iteration"),
)
def test_others_have_no_such_sketch(workload: Workload, target: str) -> None:
    assert sketch_of(workload, target=target) is None
    lacking = evolve(LIMITS, steps=LIMITS.steps - {"bulk_copy"})
    whole = gemm(m=128, n=64, k=64, dtype="float16")
    assert not any("bulk" in it.name for it in SketchSpace(whole, H100, lacking).sketches())


def candidate_of(sketch: Sketch, **changes: int) -> Candidate:
    known = {"stages": 2, "unroll": 0, "A.lanes": 8, "B.lanes": 8, "A.pad": 1, "B.pad": 1}
    known |= TILES | changes
    names = {name.removeprefix("C."): name for name in sketch.param_names}
    return Candidate.from_config(
        sketch, {names[it]: value for it, value in known.items() if it in names}
    )


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
    sketch = sketch_of(LARGE)
    assert sketch is not None
    config = candidate_of(sketch, **tiles).config
    steps = [step for step in sketch.steps if isinstance(step, BulkCopy)]
    assert tuple(int(evaluate(step.row, config)) for step in steps) == rows


def test_the_draft_counts_requests_and_not_what_threads_would_copy() -> None:
    bulk, plain = sketch_of(LARGE), sketch_of(LARGE, "tensor-cores-warpgroup")
    assert bulk is not None and plain is not None
    found = {}
    for sketch in (bulk, plain):
        (symbols,) = corrected_symbols(derive_nest(sketch), H100)
        config = candidate_of(sketch).config
        found[sketch] = {
            name: int(evaluate(value, config))
            for name, value in zip(CORRECTED_SYMBOLS, symbols, strict=True)
        }
    # One request for either factor in each of 64 iterations, for 8 and 4 vectors of a thread.
    assert found[bulk]["vectors that a thread copies"] == 2 * 64
    assert found[plain]["vectors that a thread copies"] == (4 + 8) * 64
    issued = "other instructions of a thread"
    assert found[bulk][issued] < found[plain][issued]
    for name in ("bytes of device memory touched", "blocks", "threads of a block"):
        assert found[bulk][name] == found[plain][name]
    scores = [
        float(GpuScorer(H100).score(it, np.array([candidate_of(it).values]))[0])
        for it in (bulk, plain)
    ]
    assert scores[0] >= scores[1]


def test_barriers_and_alignment_fit_the_memory_of_a_block() -> None:
    sketch = sketch_of(LARGE)
    assert sketch is not None
    space = SketchSpace(LARGE, H100, LIMITS)
    (launch,) = launches(derive_nest(sketch))
    for values in space.feasible_set(sketch).uniform(40, 2).tolist():
        config = Candidate(sketch, tuple(values)).config
        assert int(evaluate(launch.shared_bytes, config)) + 3 * 1024 <= most_shared_memory(H100)
        assert config["C.stages"] >= 2


def test_rows_that_are_not_swizzled_and_operands_that_are_not_fetched_are_refused() -> None:
    sketch = sketch_of(LARGE)
    assert sketch is not None
    steps = tuple(
        evolve(step, row=const(8)) if isinstance(step, BulkCopy) else step for step in sketch.steps
    )
    candidate = candidate_of(evolve(sketch, steps=steps))
    message = "'A.fetch' does not lie in rows of 32, 64, 128 bytes"
    assert message in str(layout_conflict(candidate))
    other = tuple(
        evolve(step, operand="C") if isinstance(step, BulkCopy) else step for step in sketch.steps
    )
    with pytest.raises(InvalidValueError, match="no step fetches 'C' before"):
        derive_nest(evolve(sketch, steps=other))
