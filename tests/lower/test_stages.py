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

from autotune.backends.native import NativeBackend
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
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

i, j, k, a = var("i"), var("j"), var("k"), var("a")
ZERO = Constant(0.0, "float32")
A, B = Load("A", (i, k)), Load("B", (k, j))
X = Load("X", (i, j))
COLUMN_AT_MOST_ROW = Binary("le", IndexValue(j), IndexValue(i))
NOT_FIRST = Binary("ge", IndexValue(j), IndexValue(const(1)))


def check_sketches(workload: Workload, target: Target = HERE, *, threads: int = 1) -> None:
    """Check one candidate of each sketch, if not more, between guarded pages."""
    candidates = sample_candidates(BACKEND, workload, target)
    assert candidates
    for candidate in candidates:
        check_candidate(BACKEND, candidate, target, threads=threads)


def product(left: ScalarExpr, right: ScalarExpr, *reduced: Axis) -> Workload:
    """A sum of products of ``A`` [40, 64] and ``B`` [64, 48], into ``C`` [32, 48]."""
    inputs = (Tensor("A", (40, 64), "float32"), Tensor("B", (64, 48), "float32"))
    axes = (Axis("i", 32), Axis("j", 48), *reduced, Axis("k", 64, "reduce"))
    stage = Stage(Tensor("C", (32, 48), "float32"), axes, Binary("mul", left, right), "add")
    return Workload("product", inputs, (stage,), ("C",))


def pointwise(body: ScalarExpr) -> Workload:
    """``Y[i, j]`` of shape [48, 64] from ``X`` of shape [64, 64]."""
    axes = (Axis("i", 48), Axis("j", 64))
    stage = Stage(Tensor("Y", (48, 64), "float32"), axes, body)
    return Workload("pointwise", (Tensor("X", (64, 64), "float32"),), (stage,), ("Y",))


def pooling(combiner: str) -> Workload:
    """Over windows of 3 by 3 with stride 2, per channel."""
    axes = tuple(map(Axis, ("n", "h", "w", "c"), (1, 8, 8, 32)))
    windows = (Axis("a", 3, "reduce"), Axis("b", 3, "reduce"))
    read = Load("X", (var("n"), var("h") * 2 + a, var("w") * 2 + var("b"), var("c")))
    stage = Stage(Tensor("Y", (1, 8, 8, 32), "float32"), (*axes, *windows), read, combiner)
    return Workload("pooling", (Tensor("X", (1, 18, 17, 32), "float32"),), (stage,), ("Y",))


def mean() -> Workload:
    """A single number, which is computed with."""
    axes = (Axis("i", 16, "reduce"), Axis("j", 32, "reduce"))
    total = Stage(Tensor("S", (), "float32"), axes, X, "add")
    divided = Binary("div", Load("S", ()), Constant(512, "float32"))
    inputs = (Tensor("X", (16, 32), "float32"),)
    stages = (total, Stage(Tensor("M", (), "float32"), (), divided))
    return Workload("mean", inputs, stages, ("M",))


UNUSUAL = {
    "part-of-an-operand": product(Load("A", (i + 3, k)), B),
    "window-of-one-operand": product(Load("A", (i + a, k)), B, Axis("a", 3, "reduce")),
    "conditional-operand": product(A, Select(COLUMN_AT_MOST_ROW, B, ZERO)),
    "pooling": pooling("max"),
    "average": pooling("add"),
    "causal-mask": pointwise(Select(COLUMN_AT_MOST_ROW, X, Constant(-1e9, "float32"))),
    "neighbours": pointwise(Binary("add", X, Select(NOT_FIRST, Load("X", (i, j - 1)), ZERO))),
    "reversed": pointwise(Load("X", (i, const(63) - j))),
    "gelu": pointwise(Binary("mul", X, Unary("erf", X))),
    "diagonal": pointwise(Load("X", (i, i))),
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
    "workload", thinned((mean(), *SPLIT_REDUCTIONS, transpose(64, 48), transposed_pair(40, 32)), 2)
)
def test_reductions_in_parts_and_transposes(workload: Workload, cores: int) -> None:
    check_sketches(workload, HERE.with_cores(cores))


@pytest.mark.parametrize("dtype", HALF_DTYPES)
@pytest.mark.parametrize("build", [conv2d, dense, batch_matmul, softmax, elementwise])
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


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize(
    "indices", ["bak,bkn->ban", "bak,kn->ban", "akq,kqn->an", "nk,ak->an", "ak,ak->a"]
)
def test_products_of_narrow_factors_in_any_order(indices: str, dtype: str) -> None:
    extents = {"a": 3, "b": 2, "n": 16, "k": 4, "q": 2}
    total = "int32" if dtype == "int8" else "float32"
    left, right, result = re.split(",|->", indices)
    factors = {"X": left, "W": right}
    body = [Cast(total, Load(name, tuple(map(var, of)))) for name, of in factors.items()]
    reduced = [name for name in dict.fromkeys(left + right) if name not in result]
    axes = [Axis(name, extents[name]) for name in result]
    axes += [Axis(name, extents[name], "reduce") for name in reduced]
    output = Tensor("Y", tuple(extents[name] for name in result), total)
    inputs = tuple(
        Tensor(name, tuple(extents[axis] for axis in of), dtype) for name, of in factors.items()
    )
    stage = Stage(output, tuple(axes), Binary("mul", *body), "add")
    check_sketches(Workload("product", inputs, (stage,), ("Y",)))


def test_two_stages_may_pack_one_operand() -> None:
    workload = two_products(12, 6)
    space = SketchSpace(workload, HERE, BACKEND.limits(HERE))
    both = [s for s in space.sketches() if sum(isinstance(x, Pack) for x in s.steps) == 2]
    assert both
    for candidate in space.sample(3 * len(space.sketches()), np.random.default_rng(1)):
        if candidate.sketch in both:
            check_candidate(BACKEND, candidate, HERE)


def test_a_product_may_pack_the_result_of_one_that_is_padded() -> None:
    axes = (Axis("i", 7), Axis("j", 16), Axis("k", 16, "reduce"))

    def multiplied(name: str, left: str, right: str) -> Stage:
        factors = Load(left, (i, k)), Load(right, (k, j))
        return Stage(Tensor(name, (7, 16), "float32"), axes, Binary("mul", *factors), "add")

    inputs = (
        Tensor("A", (7, 16), "float32"),
        Tensor("B", (16, 16), "float32"),
        Tensor("E", (16, 16), "float32"),
    )
    stages = (multiplied("C", "A", "B"), multiplied("D", "C", "E"))
    padded = [
        candidate
        for candidate in sample_candidates(
            BACKEND, Workload("two", inputs, stages, ("D",)), HERE, each=10
        )
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
    body = Binary("add", Load("X", (i, k)), Constant(1.0, "float32"))
    axes = (Axis("i", 6), Axis("k", 5, "reduce"))
    stage = Stage(Tensor("Y", (6,), "float32"), axes, body, "max")
    rows = Workload("rows", (Tensor("X", (6, 5), "float32"),), (stage,), ("Y",))
    check_steps(Parallel("Y", ("i.0",)), workload=rows)
