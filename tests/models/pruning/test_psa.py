"""PSA from sketch to score."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from oracles.psa import corrected_milliseconds, published_milliseconds, score
from oracles.psa_gemm import corrected_gemm_symbols, published_gemm_symbols
from oracles.tape import evaluate_row
from written import written

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.models.pruning.psa_gpu import PUBLISHED_GPUS, corrected_gpu, symbol_tape
from autotune.models.pruning.psa_symbols import CORRECTED_SYMBOLS, PUBLISHED_SYMBOLS, slot_cost
from autotune.plugins.parts import create_part
from autotune.sketches import STEP_TYPES, CandidateBatch, Sketch
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.targets import Target, preset
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite

A100_40 = preset("a100_40")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES) - {"shared_layout"}, 1 << 16, 512, "this test")
Rows = NDArray[np.int64]


def psa(target: Target, **options: str) -> PSA:
    model: PSA = create_part("pruning_model", "psa", ModelContext(target=target, options=options))
    return model


def gemm_sketch(size: int, dtype: str = "float32") -> Sketch:
    """A product of square matrices, tiled as "block, vthread, thread, serial".

    Parameters: five factors of i and of j, three of k, vector widths of the fetches of A and B
    and of the write-back, and a limit on unrolling.
    """
    workload = gemm(m=size, n=size, k=size, dtype=dtype)
    [sketch] = generate_sketches(workload, A100_40, LIMITS, BUILT_IN_RULES).sketches
    assert len(sketch.params) == 17
    return sketch


@pytest.mark.parametrize(("dtype", "vectors"), [("bool", False), ("int8", True)])
def test_truth_values_are_written_one_by_one(dtype: str, vectors: bool) -> None:
    """CUDA has no vectors of them: neighbours are then best written by neighbouring threads."""
    positive = "X[i, j] > float32(0.0)"
    body = positive if dtype == "bool" else f"{dtype}({positive})"
    workload = written("X[1024, 1024]", f"Y[i:1024, j:1024]: {dtype} = {body}")
    space = SketchSpace(workload, A100_40, LIMITS)
    (sketch,) = space.sketches()
    rows = space.feasible_set(sketch).uniform(500, 0)
    best = rows[np.argmax(psa(A100_40).score(CandidateBatch(((sketch, rows),))))]
    assert (best[sketch.param_names.index("Y.j.2")] > 1) == vectors


@pytest.mark.parametrize("formula", ["published", "corrected"])
class TestPSA(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self, formula: str) -> PruningModelFactory:
        return lambda: psa(A100_40, formula=formula)


VECTORS = [
    (1024, (16, 1, 16, 2, 2), (64, 4, 4), 5.31604432921032),
    (1024, (8, 2, 8, 4, 2), (128, 2, 4), 0.9578465584692278),
    (128, (4, 1, 8, 2, 2), (16, 2, 4), 279.1859956455022),
]


def rows_of(*configurations: tuple[int, ...]) -> Rows:
    return np.array(configurations, dtype=np.int64)


def scores(model: PSA, sketch: Sketch, rows: Rows) -> list[float]:
    found: list[float] = model.score(CandidateBatch(((sketch, rows),))).tolist()
    return found


@pytest.mark.parametrize(("size", "i", "k", "expected"), VECTORS)
def test_published_vectors(
    size: int, i: tuple[int, ...], k: tuple[int, ...], expected: float
) -> None:
    rows = rows_of((*i, *i, *k, 1, 1, 1, 0))
    found = scores(psa(A100_40, formula="published"), gemm_sketch(size), rows)
    assert found == [pytest.approx(expected, rel=1e-12)]
    elsewhere = psa(preset("h100"), formula="published", gpu_spec="a100_40")
    assert scores(elsewhere, gemm_sketch(size), rows) == found


def factors_of(size: int, count: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Powers of two whose product is ``size``."""
    bits = size.bit_length() - 1
    cuts = st.lists(st.integers(0, bits), min_size=count - 1, max_size=count - 1).map(sorted)
    return cuts.map(
        lambda at: tuple(1 << (b - a) for a, b in zip([0, *at], [*at, bits], strict=True))
    )


SKETCH = gemm_sketch(256)
MODELS = {formula: psa(A100_40, formula=formula) for formula in ("published", "corrected")}
TAPES = {formula: symbol_tape(SKETCH, A100_40, formula) for formula in ("published", "corrected")}
TILINGS = st.tuples(
    *(factors_of(256, 5), factors_of(256, 5), factors_of(256, 3)),
    *(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([0, 64, 1024])),
)
Tiling = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int, int]


def row_of(tiling: Tiling) -> tuple[int, ...]:
    i, j, k, first, second, unroll = tiling
    return (*i, *j, *k, first, second, 1, unroll)


def is_legal(tiling: Tiling) -> bool:
    i, j, k, *_ = tiling
    shared = 4 * k[1] * k[2] * (256 // i[0] + 256 // j[0])
    return i[2] * j[2] <= 1024 and i[1] * j[1] <= 8 and shared <= 49152


def symbols_of(formula: str, tiling: Tiling) -> list[int]:
    tape, maxima = TAPES[formula]
    return evaluate_row(tape, row_of(tiling))[: len(tape.outputs) - len(maxima)]


@given(TILINGS)
def test_published_symbols_and_scores_equal_the_closed_form(tiling: Tiling) -> None:
    i, j, k, *lanes = tiling
    found = symbols_of("published", tiling)
    width = len(PUBLISHED_SYMBOLS)
    grouped = [found[at : at + width] for at in range(0, len(found), width)]
    expected = published_gemm_symbols(i, j, k, (lanes[0], lanes[1]))
    assert sorted(grouped) == sorted([list(map(int, group)) for group in expected])
    milliseconds = published_milliseconds(expected, asdict(PUBLISHED_GPUS["a100_40"]))
    wanted = score(milliseconds) if is_legal(tiling) else -math.inf
    assert scores(MODELS["published"], SKETCH, rows_of(row_of(tiling))) == [
        pytest.approx(wanted, rel=1e-12)
    ]


@given(TILINGS)
def test_corrected_symbols_and_scores_equal_the_closed_form(tiling: Tiling) -> None:
    i, j, k, *lanes = tiling
    expected = corrected_gemm_symbols(i, j, k, (lanes[0], lanes[1]), lanes[2])
    assert symbols_of("corrected", tiling) == expected
    wanted = -math.inf
    if is_legal(tiling):  # a block of more threads than registers has no time at all
        wanted = score(corrected_milliseconds([expected], asdict(corrected_gpu(A100_40))))
    assert scores(MODELS["corrected"], SKETCH, rows_of(row_of(tiling))) == [
        pytest.approx(wanted, rel=1e-12)
    ]


@pytest.mark.parametrize("formula", ["published", "corrected"])
def test_vectors_of_32_bytes_score_minus_infinity(formula: str) -> None:
    wide, legal = ((4, 1, 16, 2, 2, 4, 1, 16, 2, 2, 64, 2, 2, n, 1, 1, 0) for n in (8, 4))
    found = scores(MODELS[formula], SKETCH, rows_of(wide, legal))
    assert found[0] == -math.inf < found[1]


def test_integers_have_no_published_arithmetic_and_a_corrected_rate() -> None:
    rows = rows_of((8, 1, 8, 2, 2, 8, 1, 8, 2, 2, 32, 4, 2, 1, 1, 1, 0))
    whole = gemm_sketch(256, "int32")
    tape, _ = symbol_tape(whole, A100_40, "published")
    assert sum(value for name, value in named(tape.outputs, tape.evaluate(rows)[0], "flop")) == 0
    target = evolve(A100_40, peak_flops={"float32": 1.6e13, "int32": 4e12})
    assert slot_cost({"mul": 1, "add": 1}, "int32", target) == 64
    assert slot_cost({"mul": 1, "add": 1}, "float32", target) == 16
    assert slot_cost({"mul": 1, "add": 1}, "bfloat16", target) == 16
    assert slot_cost({"exp": 1, "sub": 1}, "float32", target) == 7 * 16
    assert slot_cost({}, "float32", target) == 0


def named(
    outputs: tuple[tuple[str, int], ...], values: NDArray[np.int64], word: str
) -> list[tuple[str, int]]:
    return [
        (name, int(value))
        for (name, _), value in zip(outputs, values, strict=True)
        if word in name
    ]


def test_double_precision_is_slower_only_when_corrected() -> None:
    rows = rows_of((8, 1, 8, 2, 2, 8, 1, 8, 2, 2, 32, 4, 2, 1, 1, 1, 0))
    single, double = gemm_sketch(256), gemm_sketch(256, "float64")
    t4 = preset("t4")
    published = psa(t4, formula="published")
    assert scores(published, single, rows) == scores(published, double, rows)
    assert (
        scores(psa(t4, formula="corrected"), single, rows)[0]
        > 4 * scores(psa(t4, formula="corrected"), double, rows)[0]
    )


SMALL_WORKLOADS = [
    gemm(m=32, n=64, k=16),
    batch_matmul(b=2, m=16, n=32, k=16),
    dense(m=16, n=32, k=32),
    conv2d(h=8, w=8, ci=4, co=16, pad=1, stride=2),
    depthwise_conv2d(h=8, w=8, c=4, pad=1),
    softmax(m=16, n=128),
    elementwise(m=32, n=64),
    cumsum(m=32, n=64, axis=0),
]


@pytest.mark.parametrize("workload", SMALL_WORKLOADS, ids=lambda workload: str(workload.name))
@pytest.mark.parametrize("formula", ["published", "corrected"])
def test_every_gpu_sketch_is_scored_as_the_oracle_scores_its_symbols(
    formula: str, workload: Workload
) -> None:
    batch = SketchSpace(workload, A100_40, LIMITS).sample(40, np.random.default_rng(2))
    found = MODELS[formula].score(batch)
    assert np.isfinite(found).all() and (found > 0).all()
    expected = []
    for sketch, rows in batch.parts:
        tape, maxima = symbol_tape(sketch, A100_40, formula)
        for values in tape.evaluate(rows)[:, : len(tape.outputs) - len(maxima)].tolist():
            expected.append(score(oracle_milliseconds(formula, values)))
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def oracle_milliseconds(formula: str, values: list[int]) -> float:
    published = formula == "published"
    width = len(PUBLISHED_SYMBOLS if published else CORRECTED_SYMBOLS)
    groups = [values[at : at + width] for at in range(0, len(values), width)]
    if published:
        return published_milliseconds(groups, asdict(PUBLISHED_GPUS["a100_40"]))
    return corrected_milliseconds(groups, asdict(corrected_gpu(A100_40)))


def test_it_is_registered_and_says_what_it_does_not_know() -> None:
    assert isinstance(create_part("pruning_model", "psa", ModelContext(target=A100_40)), PSA)
    with pytest.raises(UnsupportedTarget, match="formulas and specs of GPUs only"):
        psa(preset("haswell"), formula="corrected")
    with pytest.raises(UnknownNameError, match="Did you mean 'corrected'"):
        psa(A100_40, arithmetic="correct")
    with pytest.raises(UnknownNameError, match="unknown preset of PSA 'a10'"):
        psa(A100_40, figures="a10")
    with pytest.raises(InvalidValueError, match="are for the published formula"):
        psa(A100_40, formula="corrected", figures="t4")
    with pytest.raises(InvalidValueError, match="clock"):
        psa(evolve(A100_40, clock=0.0), formula="corrected")
    with pytest.raises(InvalidValueError, match="'bare'; the GPU presets have them"):
        psa(Target("cuda", "bare"))


def test_a_matrix_that_does_not_fit_is_refused() -> None:
    model = MODELS["published"]
    with pytest.raises(InvalidValueError, match="sketch 'shared' cannot be scored"):
        scores(model, SKETCH, np.ones((3, 4), dtype=np.int64))
    zeros = np.zeros((1, 17), dtype=np.int64)
    with pytest.raises(InvalidValueError, match="divides by zero"):
        scores(model, SKETCH, zeros)
    huge = np.full((1, 17), 1 << 40, dtype=np.int64)
    with pytest.raises(InvalidValueError, match="passes"):
        scores(model, SKETCH, huge)


def test_options_are_read_under_their_earlier_names() -> None:
    h100 = preset("h100")
    rows = rows_of((8, 1, 8, 2, 2, 8, 1, 8, 2, 2, 32, 4, 2, 2, 2, 1, 0))
    found = scores(psa(h100, arithmetic="published", figures="a100_40"), SKETCH, rows)
    assert found == scores(psa(h100, formula="published", gpu_spec="a100_40"), SKETCH, rows)
    assert found != scores(psa(h100), SKETCH, rows)
