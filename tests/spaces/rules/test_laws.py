"""Laws of all spaces, whatever is computed and on whatever machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from made_workloads import TILED_WORKLOADS
from rule_sketches import LIMITS, TARGET, check_reference, lacking
from scanned import scan
from split_reductions import SPLIT_REDUCTIONS
from transposes import transpose
from workload_names import named

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    elementwise,
    gemm,
    softmax,
)
from autotune.nest import nest_tape
from autotune.sketches import (
    STEP_TYPES,
    AtMost,
    Candidate,
    Factor,
    ProductEquals,
    Sketch,
    names_used,
)
from autotune.spaces import SketchSpace
from autotune.targets import Target, preset, preset_names

ON_GPUS = (
    gemm(m=1, n=1000, k=4096),
    gemm(m=3, n=33, k=512, dtype="float64"),
    gemm(m=17, n=64, k=5, dtype="int8"),
    gemm(m=64, n=768, k=768, dtype="int8"),
    dense(m=128, n=768, k=3072),
    conv2d(h=7, w=7, ci=512, co=509, pad=1),
    batch_matmul(b=12, m=1, n=64, k=2048),
)
ON_CORES = (
    *SPLIT_REDUCTIONS,
    transpose(8, 16),
    softmax(m=48, n=64),
    scan((64,), 0),
    cumsum(m=3, n=8),
    cumsum(m=3, n=8, axis=0),
)
PRODUCTS = [
    gemm(m=m, n=768, k=768, dtype=dtype)
    for m in (1, 64, 128, 200)
    for dtype in ("u8s8s32", "int8", "float32")
]


@pytest.mark.parametrize("workload", TILED_WORKLOADS, ids=named)
@pytest.mark.parametrize(
    "target", ["sse2-1core", "haswell", "skylake-avx512-2core", "zen4-64core", "a100"]
)
def test_spaces_are_small_and_sound(workload: Workload, target: str) -> None:
    machine = preset(target)
    space = SketchSpace(workload, machine, LIMITS)
    _check_sketches(space)
    batch = space.sample(8 * len(space.sketches()), np.random.default_rng(0))
    assert space.contains(batch).all()
    for candidate in batch:
        _check_products(candidate)
        if machine.kind == "cuda":
            _check_limits(candidate, machine)


def _check_sketches(space: SketchSpace) -> None:
    """Few sketches, each once, that have configurations and come back from JSON."""
    sketches = space.sketches()
    assert 1 <= len(sketches) <= 12
    assert len({it.digest for it in sketches}) == len({it.name for it in sketches})
    assert len({it.digest for it in sketches}) == len(sketches)
    for sketch in sketches:
        assert space.feasible_set(sketch).count > 0
        restored = Sketch.from_json(json.loads(json.dumps(sketch.to_json())), sketch.workload)
        assert restored == sketch and restored.digest == sketch.digest


def _check_products(candidate: Candidate) -> None:
    """Tiles multiply to their padded extents."""
    config, covered = candidate.config, set[str]()
    for constraint in candidate.sketch.constraints:
        if isinstance(constraint, ProductEquals):
            product = math.prod(config[name] for name in constraint.factors)
            assert product == evaluate(constraint.total, config)
            covered.update(constraint.factors)
    assert covered == {p.name for p in candidate.sketch.params if isinstance(p, Factor)}


def _check_limits(candidate: Candidate, target: Target) -> None:
    """Check that a GPU has what a candidate's kernels take."""
    nest = nest_tape(candidate.sketch).nest
    config = candidate.config
    kernels: dict[str, list[tuple[int, ...]]] = {}
    for statement in nest.statements:
        sizes = tuple(
            int(evaluate(loop.extent, config))
            for loop in statement.loops
            if loop.kind == "thread" and loop.name not in statement.cooperating
        )
        if statement.role != "init" and statement.loops:
            kernels.setdefault(statement.loops[0].name, []).extend([sizes] if sizes else [])
        assert 0 < math.prod(sizes) <= target.max_threads_per_block
        vthreads = [loop.extent for loop in statement.loops if loop.kind == "vthread"]
        assert all(evaluate(extent, config) <= 8 for extent in vthreads)
        vectors = [loop.extent for loop in statement.loops if loop.kind == "vectorized"]
        for extent in vectors:
            for access in statement.accesses:
                size = nest.element_bytes(access.buffer)
                assert evaluate(extent, config) * size <= target.vector_bytes
    # Every loop over a dimension of a kernel's threads has the same extent.
    assert all(len(set(sizes)) <= 1 for sizes in kernels.values())
    shared = [b for b in nest.buffers if b.scope == "shared"]
    total = sum(int(evaluate(buffer.bytes, config)) for buffer in shared)
    assert total <= target.shared_memory_bytes
    stated = [
        constraint
        for constraint in candidate.sketch.constraints
        if isinstance(constraint, AtMost) and "shared memory" in constraint.source
    ]
    assert all(evaluate(constraint.expression, config) == total for constraint in stated)


@pytest.mark.parametrize("cores", [1, 2, 3, 64, 256])
def test_no_number_of_cores_empties_a_space(cores: int) -> None:
    _check_spaces(ON_CORES, TARGET.with_cores(cores))
    _check_spaces(PRODUCTS, preset("sapphirerapids").with_cores(cores))


@pytest.mark.parametrize("name", preset_names())
def test_no_machine_empties_a_space(name: str) -> None:
    machine = preset(name)
    _check_spaces(ON_GPUS if machine.kind == "cuda" else PRODUCTS, machine)


def test_taste_never_empties_a_space() -> None:
    products = ((m, n) for m in (1, 2, 3, 5, 8, 17, 32, 96) for n in (1, 4, 7, 31, 64))
    _check_spaces((gemm(m=m, n=n, k=6) for m, n in products if m * n > 1), preset("a100"))


def _check_spaces(workloads: Iterable[Workload], target: Target) -> None:
    for workload in workloads:
        _check_sketches(SketchSpace(workload, target, evolve(LIMITS, backend="tvm")))


@given(
    st.sampled_from(
        [
            gemm(m=7, n=20, k=16),
            conv2d(h=5, w=6, ci=4, co=20, pad=1, bias=1, relu=1),
            softmax(m=4, n=32),
            elementwise(m=4, n=6),
        ]
    ),
    st.sampled_from([TARGET, preset("a100")]),
    st.sets(st.sampled_from(sorted(STEP_TYPES)), max_size=6),
    st.integers(0, 2**32),
)
def test_sketches_use_only_what_is_declared_and_stay_right(
    workload: Workload, target: Target, missing: set[str], seed: int
) -> None:
    try:
        space = SketchSpace(workload, target, lacking(*missing))
    except UnsupportedWorkload as error:
        assert any(name in str(error) for name in missing)
        return
    for sketch in space.sketches():
        assert not missing & names_used(sketch)
    check_reference(workload, space.sample(2, np.random.default_rng(seed)), seed)
