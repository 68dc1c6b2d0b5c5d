"""Relaxed features: they are those of configurations there, and their gradients are right."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.ir.workloads import conv2d, gemm, softmax
from autotune.models.features import (
    FEATURE_COLUMNS,
    RELAXED_COLUMNS,
    RelaxedFeatures,
    pam_features,
)
from autotune.nest.relaxed import Smoothing
from autotune.sketches import CandidateBatch
from autotune.sketches.steps import STEP_TYPES
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "test")
CPU, GPU = preset("sapphirerapids-4core"), preset("a100")
CASES = {
    "gemm": (gemm(m=96, n=128, k=64), CPU),
    "conv2d": (conv2d(h=14, w=14, ci=16, co=32, pad=1), CPU),
    "softmax": (softmax(m=16, n=64), CPU),
    "gemm on a GPU": (gemm(m=96, n=128, k=64), GPU),
}
OWN = [i for i, name in enumerate(RELAXED_COLUMNS) if not name.startswith("buffer")]


def sampled(case: str) -> CandidateBatch:
    workload, target = CASES[case]
    return SketchSpace(workload, target, LIMITS).sample(24, np.random.default_rng(3))


@pytest.mark.parametrize("case", ["gemm", "conv2d"])
def test_at_configurations_they_are_the_features(case: str) -> None:
    target = CASES[case][1]
    relaxed = RelaxedFeatures(target)
    kept = [FEATURE_COLUMNS.index(name) for name in RELAXED_COLUMNS]
    assert len(kept) == 154
    for sketch, rows in sampled(case).parts:
        found = relaxed.at(sketch, rows.astype(np.float64)).values
        exact = pam_features(sketch, rows, target)
        expected = exact.values.reshape(len(rows), len(exact.statements), -1)[:, :, kept]
        assert found.shape == expected.shape
        difference = np.abs(found - expected)
        # Whole columns of a statement; those of buffers are in another order.
        assert difference[:, :, OWN].max() < 0.3
        assert difference[:, :, OWN].mean() < 0.01
        for name in ("bytes", "unique_bytes"):
            columns = [RELAXED_COLUMNS.index(f"buffer{slot}_{name}") for slot in range(5)]
            one, other = (np.sort(each[:, :, columns], axis=2) for each in (found, expected))
            np.testing.assert_allclose(one, other, atol=0.2)


@pytest.mark.parametrize(
    ("case", "smoothing"), [*((case, None) for case in CASES), ("gemm", Smoothing(1.0, 0.5))]
)
def test_gradients_are_those_of_differences(case: str, smoothing: Smoothing | None) -> None:
    relaxed = RelaxedFeatures(CASES[case][1], smoothing)
    rng = np.random.default_rng(4)
    for sketch, rows in sampled(case).parts[:3]:
        # Between two configurations in the logarithms, where the bounds are kept.
        upper, lower = np.maximum(rows, 1), np.maximum(rows[::-1], 1)
        points = np.sqrt(upper * lower.astype(np.float64))
        step = 1e-6 * points * np.where(upper == lower, 0.0, rng.normal(size=points.shape))
        cotangent = rng.normal(size=relaxed.at(sketch, points).values.shape)
        high, low = relaxed.at(sketch, points + step), relaxed.at(sketch, points - step)
        slope = (cotangent * (high.values - low.values)).sum(axis=(1, 2)) / 2
        found = (relaxed.at(sketch, points).gradient(cotangent) * step).sum(axis=1)
        scale = np.abs(found).max()
        np.testing.assert_allclose(found / scale, slope / scale, rtol=1e-3, atol=1e-5)


def test_points_that_do_not_fit_are_refused() -> None:
    sketch, rows = sampled("gemm").parts[0]
    with pytest.raises(InvalidValueError, match="parameters takes points"):
        RelaxedFeatures(CPU).at(sketch, rows[:, 1:].astype(np.float64))
