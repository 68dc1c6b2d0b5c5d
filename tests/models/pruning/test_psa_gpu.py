"""The arithmetic of PSA on symbols given directly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st
from needs import skip_here
from oracles.psa import corrected_milliseconds, published_milliseconds, score

from autotune import _native as native
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models.pruning.psa_gpu import (
    PUBLISHED_GPUS,
    CorrectedGpu,
    PublishedGpu,
    corrected_gpu,
    published_gpu,
)
from autotune.targets import Target, preset

A100_40 = PUBLISHED_GPUS["a100_40"]


def native_scores(gpu: PublishedGpu | CorrectedGpu, rows: list[list[list[float]]]) -> list[float]:
    arithmetic = "published" if isinstance(gpu, PublishedGpu) else "corrected"
    matrix = np.array([np.concatenate(row) for row in rows], dtype=np.float64)
    scores: list[float] = (
        native.PsaGpu(arithmetic, gpu.parameters()).score_symbols(matrix).tolist()
    )
    return scores


SIZES = st.integers(1, 1 << 20).map(float)
COUNTS = st.one_of(st.just(0.0), SIZES)
PUBLISHED_SYMBOLS = st.tuples(
    COUNTS, COUNTS, COUNTS, COUNTS, SIZES, st.integers(1, 1024).map(float)
).map(list)
CORRECTED_SYMBOLS = st.tuples(
    *(SIZES, st.integers(1, 1024).map(float), st.integers(1, 400).map(float)),
    *(st.integers(0, 49152).map(float), *[COUNTS] * 10),
    *(st.integers(0, 4).map(float), COUNTS, st.sampled_from([0.0, 1.0])),
    st.integers(1, 4).map(float),
).map(list)


@given(st.lists(st.lists(PUBLISHED_SYMBOLS, min_size=3, max_size=3), min_size=1, max_size=70))
def test_published_arithmetic_equals_the_oracle(rows: list[list[list[float]]]) -> None:
    for gpu in (A100_40, PUBLISHED_GPUS["t4"]):
        expected = [score(published_milliseconds(row, asdict(gpu))) for row in rows]
        assert native_scores(gpu, rows) == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.lists(CORRECTED_SYMBOLS, min_size=2, max_size=2), min_size=1, max_size=70))
def test_corrected_arithmetic_equals_the_oracle(rows: list[list[list[float]]]) -> None:
    for name in ("t4", "h100"):
        gpu = corrected_gpu(preset(name))
        expected = [score(corrected_milliseconds(row, asdict(gpu))) for row in rows]
        assert native_scores(gpu, rows) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
@pytest.mark.parametrize("arithmetic", ["published", "corrected"])
def test_instruction_sets_agree_to_the_last_bit(level: str, arithmetic: str) -> None:
    gpu = A100_40 if arithmetic == "published" else corrected_gpu(preset("a100"))
    rng = np.random.default_rng(3)
    symbols = rng.integers(1, 1 << 10, size=(1000, 6 * 18)).astype(np.float64)
    try:
        scorer = native.PsaGpu(arithmetic, gpu.parameters(), level)
    except ValueError as error:
        skip_here(str(error))
    best = native.PsaGpu(arithmetic, gpu.parameters()).score_symbols(symbols)
    np.testing.assert_array_equal(scorer.score_symbols(symbols), best)
    np.testing.assert_array_equal(scorer.score_symbols(symbols, threads=3), best)


def test_what_is_no_time_scores_minus_infinity() -> None:
    nothing = [[0.0, 0.0, 0.0, 0.0, 1.0, 32.0]]
    broken = [[math.nan, 1.0, 1.0, 0.0, 1.0, 32.0]]
    endless = [[math.inf, 1.0, 1.0, 0.0, 1.0, 32.0]]
    threadless = [[1e6, 1.0, 1.0, 0.0, 1.0, 0.0]]
    assert native_scores(A100_40, [nothing, broken, endless, threadless]) == [-math.inf] * 4


def test_the_native_scorer_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match='"published" or "corrected"'):
        native.PsaGpu("other", A100_40.parameters())
    for numbers in ([1.0] * 6, [1.0] * 6 + [0.0], [1.0] * 6 + [math.nan], []):
        with pytest.raises(ValueError, match="7 positive numbers"):
            native.PsaGpu("published", numbers)
    scorer = native.PsaGpu("published", A100_40.parameters())
    with pytest.raises(ValueError, match="6 symbols a group"):
        scorer.score_symbols(np.zeros((2, 7)))
    with pytest.raises(ValueError, match="threads"):
        scorer.score_symbols(np.zeros((2, 6)), threads=0)
    assert scorer.score_symbols(np.zeros((0, 6))).shape == (0,)
    assert scorer.score_symbols(np.zeros((2, 0))).tolist() == [-math.inf] * 2


def test_figures_come_from_the_table_or_from_the_target() -> None:
    t4 = preset("t4")
    assert published_gpu(t4) == published_gpu(preset("h100"), "t4") == PUBLISHED_GPUS["t4"]
    own = published_gpu(evolve(t4, name="mine"))
    assert (own.peak, own.bandwidth, own.multiprocessors) == pytest.approx((8141.0, 320.0, 40.0))
    with pytest.raises(UnknownNameError, match="Did you mean 'h100'"):
        published_gpu(t4, "h1000")


@pytest.mark.parametrize("arithmetic", [published_gpu, corrected_gpu])
def test_a_target_that_says_too_little_is_refused(arithmetic: type) -> None:
    with pytest.raises(InvalidValueError, match="PSA needs peak_flops of float32, .*'bare'"):
        arithmetic(Target("cuda", "bare"))
