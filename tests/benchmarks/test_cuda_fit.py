"""Fitting the constants of the corrected PSA to measured candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from benchmark_scripts import benchmark_scripts

from autotune.ir.workloads import dense, gemm
from autotune.models.pruning.psa_gpu import Calibration, GpuScorer
from autotune.sketches import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace

pytestmark = pytest.mark.needs("tvm")


LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 16, 512, "this test")


@pytest.fixture(scope="module")
def fit() -> Iterator[Any]:
    with benchmark_scripts("cuda_fit") as (module,):
        yield module


@pytest.fixture(scope="module")
def measured(fit: Any) -> tuple[dict[str, list[dict[str, Any]]], dict[str, SketchSpace]]:
    """Two workloads, with latencies that the formula itself says, of a device with slow memory."""
    workloads = {"gemm": gemm(m=256, n=256, k=256), "dense": dense(m=64, n=128, k=512)}
    spaces = {
        name: SketchSpace(workload, fit.TARGET, LIMITS) for name, workload in workloads.items()
    }
    rows = {name: drawn(space) for name, space in spaces.items()}
    slow = evolve(fit.START, global_latency=1000, shared_wavefront=2.0)
    for name, own in rows.items():
        scores = fit.case_of(own, spaces[name]).scores(slow)
        for row, score in zip(own, scores, strict=True):
            row["latency"] = 1e-3 / score
    return rows, spaces


def drawn(space: SketchSpace) -> list[dict[str, Any]]:
    sample = space.sample(60, np.random.default_rng(0))
    return [
        {"sketch": it.sketch.name, "config": it.config, "latency": 1.0, "drawn_by": ["R"]}
        for it in sample
    ]


def test_a_case_is_scored_as_the_model_scores_it(fit: Any, measured: Any) -> None:
    rows, spaces = measured
    case, scorer = fit.case_of(rows["gemm"], spaces["gemm"]), GpuScorer(fit.TARGET)
    for sketch in spaces["gemm"].sketches():
        own = [at for at, row in enumerate(rows["gemm"]) if row["sketch"] == sketch.name]
        matrix = [list(rows["gemm"][at]["config"].values()) for at in own]
        expected = scorer.score(sketch, np.array(matrix, dtype=np.int64).reshape(len(own), -1))
        assert case.scores(Calibration())[own].tolist() == expected.tolist()


def test_the_fit_moves_towards_the_constants_that_made_the_latencies(
    fit: Any, measured: Any
) -> None:
    rows, spaces = measured
    cases = [fit.case_of(rows[name], spaces[name]) for name in rows]
    best = fit.fitted(cases)
    assert fit.error_of(cases, best) < 0.5 * fit.error_of(cases, fit.START)
    assert best.global_latency > fit.START.global_latency


def test_a_workload_is_not_fitted_to_where_it_is_judged(
    fit: Any, measured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, spaces = measured
    seen = []
    monkeypatch.setattr(fit, "fitted", lambda cases: seen.append(cases) or fit.START)
    figures = fit.figures_left_out(rows, spaces)
    assert list(figures) == ["gemm", "dense"]
    assert [[case.rows for case in cases] for cases in seen] == [[rows["dense"]], [rows["gemm"]]]
