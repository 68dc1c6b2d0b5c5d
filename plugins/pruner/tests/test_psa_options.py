from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from attrs import asdict
from autotune_pruner.psa_options import ConfigurablePSA, PSAOptions, published_milliseconds
from hypothesis import given
from hypothesis import strategies as st
from oracles.psa import published_milliseconds as oracle

from autotune.errors import InvalidValueError, UnknownNameError, UnsupportedTarget
from autotune.ir.workloads.builders import gemm
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.models.pruning.psa_gpu import PUBLISHED_GPUS
from autotune.sketches import STEP_TYPES, CandidateBatch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target, preset
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite

A100_40 = preset("a100_40")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES) - {"shared_layout"}, 1 << 16, 512, "this test")
TERMS = ("waves", "lanes", "registers", "reuse", "memory")


def configured(target: Target, options: Mapping[str, Any] | None = None) -> ConfigurablePSA:
    return ConfigurablePSA(ModelContext(target=target, options=options or {}))


def psa(target: Target, options: Mapping[str, Any] | None = None) -> PSA:
    return PSA(ModelContext(target=target, options=options or {}))


def sample(n: int = 200) -> CandidateBatch:
    space = SketchSpace(gemm(m=256, n=256, k=256), A100_40, LIMITS)
    return space.sample(n, np.random.default_rng(2))


@pytest.mark.parametrize(
    "options", [{}, {"formula": "corrected"}, {"waves": False}, dict.fromkeys(TERMS, False)]
)
class TestConfigurablePSA(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self, options: dict[str, Any]) -> PruningModelFactory:
        return lambda: configured(A100_40, options)


@pytest.mark.parametrize("formula", ["published", "corrected"])
def test_with_all_terms_it_is_the_model_of_the_core(formula: str) -> None:
    batch = sample()
    found = configured(A100_40, {"formula": formula}).score(batch)
    np.testing.assert_array_equal(found, psa(A100_40, {"formula": formula}).score(batch))


def test_figures_may_be_those_of_another_gpu() -> None:
    batch = sample()
    found = configured(preset("h100"), {"gpu_spec": "a100_40"}).score(batch)
    expected = psa(preset("h100"), {"gpu_spec": "a100_40"}).score(batch)
    np.testing.assert_array_equal(found, expected)


SIZES = st.integers(1, 1 << 20).map(float)
COUNTS = st.one_of(st.just(0.0), SIZES)
SYMBOLS = st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, SIZES, st.integers(1, 1024).map(float))


@given(st.lists(SYMBOLS.map(list), min_size=1, max_size=4))
def test_all_terms_are_the_published_formula(symbols: list[list[float]]) -> None:
    gpu = PUBLISHED_GPUS["a100_40"]
    [found] = published_milliseconds(np.array([symbols]), gpu, PSAOptions())
    assert found == pytest.approx(oracle(symbols, asdict(gpu)), rel=1e-12)


def published(symbols: list[float], **options: bool) -> float:
    gpu = PUBLISHED_GPUS["a100_40"]
    [found] = published_milliseconds(np.array([[symbols]]), gpu, PSAOptions(**options))
    return float(found)


# Statements of the first two products in the released arithmetic: F, R, Q, D, G, T.
UPDATE = [2 * 16 * 1024.0, 24.0, 16 + 2 * 4 * 1024.0, 0.0, 256.0, 256.0]
SPILLED = [2 * 4 * 64 * 1024.0, 320.0, 4 * 64 + 2 * 4 * 8 * 1024.0, 0.0, 64.0, 64.0]


@pytest.mark.parametrize(
    ("term", "factor"),
    [("waves", 0.296296), ("registers", 1 / 2.5), ("reuse", 8.9688716 / 9.9688716)],
)
def test_without_a_term_its_factor_is_missing(term: str, factor: float) -> None:
    assert published(SPILLED, **{term: False}) == pytest.approx(
        published(SPILLED) * factor, rel=1e-5
    )


def test_without_lanes_a_warp_that_is_not_full_costs_nothing() -> None:
    partial = [*UPDATE[:5], 40.0]
    assert published(partial, lanes=False) == pytest.approx(published(partial) * 40 / 64)


def test_without_memory_copies_are_free() -> None:
    copy = [0.0, 0.0, 0.0, 1e6, 256.0, 256.0]
    assert published(copy) > 0
    assert published(copy, memory=False) == 0


def test_what_cannot_run_scores_minus_infinity_without_terms_too() -> None:
    batch = sample(500)
    whole = psa(A100_40).score(batch)
    found = configured(A100_40, {"lanes": False}).score(batch)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(whole))


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="'correct'"):
        configured(A100_40, {"formula": "correct"})
    with pytest.raises(UnknownNameError, match="'a200'"):
        configured(A100_40, {"gpu_spec": "a200", "waves": False})
    with pytest.raises(InvalidValueError, match="published formula only"):
        ConfigurablePSA(
            ModelContext(target=A100_40, options={"formula": "corrected", "waves": False})
        )
    with pytest.raises(InvalidValueError, match="must be true or false"):
        configured(A100_40, {"waves": 0.5})
    with pytest.raises(UnsupportedTarget, match="are for GPUs"):
        configured(preset("skylake-avx512"), {"waves": False})


def test_on_cpus_it_is_the_model_of_the_core() -> None:
    target = preset("skylake-avx512")
    space = SketchSpace(gemm(m=64, n=64, k=64), target, LIMITS)
    batch = space.sample(50, np.random.default_rng(1))
    np.testing.assert_array_equal(
        configured(target).score(batch),
        psa(target).score(batch),
    )
