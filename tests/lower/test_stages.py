"""Stages that no builder makes, on the backend that takes the least time to compile them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from indexed_workloads import INDEXED_WORKLOADS, chosen_elements
from made_workloads import REDUCED_FIRST, VARIED_WORKLOADS, gram, two_products
from split_reductions import SPLIT_REDUCTIONS
from thinning import thinned
from transposes import transpose, transposed_pair
from written import written

from autotune.backends.native import NativeBackend
from autotune.ir.expressions import IntExpr, const
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv2d,
    dense,
    elementwise,
    gemm,
    softmax,
)
from autotune.ir.workloads.halves import HALF_DTYPES
from autotune.sketches import (
    Accumulate,
    Candidate,
    CandidateBatch,
    Order,
    Pack,
    PadExtent,
    Parallel,
    Sketch,
    Step,
    Tile,
    Unroll,
    Vectorize,
)
from autotune.spaces import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_candidate, sample_candidates
from autotune.testing.step_suite import StepSuite

BACKEND = NativeBackend()
HERE = detect_cpu()


def check_sketches(workload: Workload, target: Target = HERE, *, threads: int = 1) -> None:
    """Check one candidate of each sketch, if not more, between guarded pages."""
    candidates = sample_candidates(BACKEND, workload, target)
    assert candidates
    for candidate in candidates:
        check_candidate(BACKEND, candidate, target, threads=threads)


def product(body: str, reduced: str = "k:64") -> Workload:
    """A sum of products of ``A`` [40, 64] and ``B`` [64, 48], into ``C`` [32, 48]."""
    return written("A[40, 64], B[64, 48]", f"C[i:32, j:48; {reduced}] += {body}", name="product")


def pointwise(body: str) -> Workload:
    """``Y[i, j]`` of shape [48, 64] from ``X`` of shape [64, 64]."""
    return written("X[64, 64]", f"Y[i:48, j:64] = {body}", name="pointwise")


def pooling(combiner: str) -> Workload:
    """Over windows of 3 by 3 with stride 2, per channel."""
    read = f"{combiner}= X[n, h * 2 + a, w * 2 + b, c]"
    return written("X[1, 18, 17, 32]", f"Y[n:1, h:8, w:8, c:32; a:3, b:3] {read}", name="pooling")


MEAN = written("X[16, 32]", "S[; i:16, j:32] += X[i, j]", "M[] = S[()] / 512", name="mean")
"""A single number, which is computed with."""

UNUSUAL = {
    "part-of-an-operand": product("A[i + 3, k] * B[k, j]"),
    "window-of-one-operand": product("A[i + a, k] * B[k, j]", "a:3, k:64"),
    "conditional-operand": product("A[i, k] * (B[k, j] if j <= i else 0.0)"),
    "pooling": pooling("max"),
    "average": pooling("+"),
    "causal-mask": pointwise("X[i, j] if j <= i else -1e9"),
    "neighbours": pointwise("X[i, j] + (X[i, j - 1] if j >= 1 else 0.0)"),
    "reversed": pointwise("X[i, 63 - j]"),
    "gelu": pointwise("X[i, j] * erf(X[i, j])"),
    "diagonal": pointwise("X[i, i]"),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_windows_parts_and_conditions(name: str) -> None:
    check_sketches(UNUSUAL[name])


@pytest.mark.parametrize("workload", REDUCED_FIRST)
def test_reduced_axes_may_come_before_those_of_the_result(workload: Workload) -> None:
    check_sketches(workload, HERE.with_cores(2))


@pytest.mark.parametrize("workload", [*thinned(VARIED_WORKLOADS, 4), gram(20, 12)])
def test_workloads_of_many_kinds_on_two_threads(workload: Workload) -> None:
    check_sketches(workload, threads=2)


@pytest.mark.parametrize("cores", [1, 64])
@pytest.mark.parametrize(
    "workload", thinned((MEAN, *SPLIT_REDUCTIONS, transpose(64, 48), transposed_pair(40, 32)), 2)
)
def test_reductions_in_parts_and_transposes(workload: Workload, cores: int) -> None:
    check_sketches(workload, HERE.with_cores(cores))


# Products of either type are converted alike.
ALIKE = {(build, HALF_DTYPES[-1]) for build in (conv2d, batch_matmul)}


@pytest.mark.parametrize(
    ("build", "dtype"),
    [
        pytest.param(build, dtype, marks=[pytest.mark.slow] * ((build, dtype) in ALIKE))
        for build in (conv2d, dense, batch_matmul, softmax, elementwise)
        for dtype in HALF_DTYPES
    ],
)
def test_halves(build: Callable[..., Workload], dtype: str) -> None:
    """Others than the products whose types the tests of all builders vary."""
    extents = {
        conv2d: {"h": 7, "w": 7, "ci": 5, "co": 18, "pad": 1, "bias": 1, "relu": 1},
        dense: {"m": 4, "n": 32, "k": 31},
        batch_matmul: {"b": 2, "m": 7, "n": 33, "k": 3},
        softmax: {"m": 7, "n": 37},
        elementwise: {"m": 5, "n": 13},
    }
    check_sketches(build(**extents[build], dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("causal", [0, 1])
def test_tiles_of_an_attention(causal: int, dtype: str) -> None:
    workload = attention(h=2, n=16, d=32, causal=causal, dtype=dtype)
    candidates = sample_candidates(BACKEND, workload, HERE, each=2)
    tiles = [it for it in candidates if it.sketch.name == "attention-tiles"]
    assert tiles
    for candidate in tiles:
        check_candidate(BACKEND, candidate, HERE, threads=2)


@pytest.mark.parametrize(
    ("indices", "dtype"),
    [
        *((it, "int8") for it in ("bak,bkn->ban", "akq,kqn->an", "nk,ak->an", "ak,ak->a")),
        ("bak,kn->ban", "float16"),
        pytest.param("bak,kn->ban", "int8", marks=pytest.mark.slow),
        *(
            pytest.param(it, "float16", marks=pytest.mark.slow)
            for it in ("bak,bkn->ban", "akq,kqn->an", "nk,ak->an", "ak,ak->a")
        ),
    ],
)
def test_products_of_narrow_factors_in_any_order(indices: str, dtype: str) -> None:
    total = "int32" if dtype == "int8" else "float32"
    left, right, result = re.split(",|->", indices)
    reduced = [name for name in dict.fromkeys(left + right) if name not in result]
    x, w, y, k = (", ".join(axes) for axes in (left, right, result, reduced))
    inputs = f"X[{x}]: {dtype}, W[{w}]: {dtype}"
    product = f"Y[{y}; {k}]: {total} += {total}(X[{x}]) * {total}(W[{w}])"
    check_sketches(written(inputs, product, a=3, b=2, n=16, k=4, q=2))


def test_two_stages_may_pack_one_operand() -> None:
    workload = two_products(12, 6)
    space = SketchSpace(workload, HERE, BACKEND.limits(HERE))
    both = [s for s in space.sketches() if sum(isinstance(x, Pack) for x in s.steps) == 2]
    assert both
    for candidate in space.sample(3 * len(space.sketches()), np.random.default_rng(1)):
        if candidate.sketch in both:
            check_candidate(BACKEND, candidate, HERE)


def test_a_product_may_pack_the_result_of_one_that_is_padded() -> None:
    first, second = (f"[i:7, j:16; k:16] += {it}[k, j]" for it in ("A[i, k] * B", "C[i, k] * E"))
    workload = written("A[7, 16], B[16, 16], E[16, 16]", f"C{first}", f"D{second}")
    padded = [
        candidate
        for candidate in sample_candidates(BACKEND, workload, HERE, each=10)
        if (candidate.config.get("C.i.extent"), candidate.config.get("D.i.extent")) == (8, 7)
    ]
    assert padded
    for candidate in padded:
        check_candidate(BACKEND, candidate, HERE)


@pytest.mark.parametrize(("name", "least"), [("sandybridge-2core", 15), ("haswell-2core", 8)])
def test_every_point_of_a_small_space_is_exact(name: str, least: int) -> None:
    """With bytes over their whole ranges, and extents that are multiples of nothing.

    In plain loops, and around the instruction that the second one has.
    """
    workload, target = gemm(m=3, n=5, k=2, dtype="u8s8s32"), preset(name)
    space = SketchSpace(workload, target, BACKEND.limits(target))
    rows = [(s, row) for s in space.sketches() for row in space.feasible_set(s).enumerate()]
    assert len(rows) >= least
    for sketch, row in rows:
        check_candidate(BACKEND, Candidate(sketch, row), HERE)


class TestIndexedReads(StepSuite):
    """Nest, features and program of every sketch."""

    @pytest.fixture
    def backend(self) -> NativeBackend:
        return BACKEND

    @pytest.fixture(
        params=[*INDEXED_WORKLOADS, chosen_elements()], ids=lambda workload: workload.name
    )
    def batch(self, request: pytest.FixtureRequest) -> CandidateBatch:
        return CandidateBatch.of(sample_candidates(BACKEND, request.param, HERE))


# Steps that no rule combines in this way.

SMALL = gemm(m=8, n=16, k=4)


def numbers(*values: int) -> tuple[IntExpr, ...]:
    return tuple(map(const, values))


def check_steps(*steps: Step, workload: Workload = SMALL) -> None:
    check_candidate(BACKEND, Candidate(Sketch("made", workload, (), (), steps), ()), HERE)


TILES = (Tile("C", "i", numbers(2, 4)), Tile("C", "j", numbers(1, 16)))
ORDER = Order("C", ("i.0", "j.0", "k.0", "i.1", "j.1"))


@pytest.mark.parametrize(
    "steps",
    [
        (),
        TILES,
        (*TILES, ORDER),
        (*TILES, ORDER, Parallel("C", ("i.0", "j.0"))),
        (*TILES, ORDER, Vectorize("C", "j.1"), Unroll("C", ("i.1",))),
        (*TILES, ORDER, Accumulate("C", "j.0", numbers(1, 16))),
        (*TILES, ORDER, Accumulate("C", "k.0", numbers(1, 16))),
        (*TILES, ORDER, Pack("C", "B", "j.0", 1, const(16), 16)),
        (*TILES, ORDER, Pack("C", "B", None, 1, const(8), 8)),
        (*TILES, ORDER, Pack("C", "A", "i.0", None, None, 4)),
        (*TILES, ORDER, Pack("C", "A", None, None, None, 1)),
    ],
    ids=lambda steps: "+".join(type(step).__name__ for step in steps) or "none",
)
def test_single_steps(steps: tuple[Step, ...]) -> None:
    check_steps(*steps)


@pytest.mark.parametrize("extents", [{"i": 9}, {"j": 17}, {"i": 10, "j": 32}], ids=str)
def test_padding_a_product(extents: dict[str, int]) -> None:
    m, n = extents.get("i", 8), extents.get("j", 16)
    check_steps(
        *(PadExtent("C", axis, const(extent)) for axis, extent in extents.items()),
        Tile("C", "i", numbers(1, m)),
        Tile("C", "j", numbers(1, n)),
        ORDER,
        Pack("C", "A", None, None, None, 1),
        Pack("C", "B", "j.0", None, None, 1),
        Accumulate("C", "j.0", numbers(1, n)),
    )


def test_a_reduction_without_an_order_keeps_its_own() -> None:
    rows = written("X[6, 5]", "Y[i:6; k:5] max= X[i, k] + 1.0")
    check_steps(Parallel("Y", ("i.0",)), workload=rows)
