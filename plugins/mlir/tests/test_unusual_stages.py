"""Candidates of stages that no builder makes: windows, parts, conditions, extracted elements."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from made_workloads import REDUCED_FIRST
from thinning import thinned

from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune.testing.programs import check_candidate, sample_candidates

CANDIDATES = 5

i, j, k, a = var("i"), var("j"), var("k"), var("a")
ZERO = Constant(0.0, "float32")
A, B = Load("A", (i, k)), Load("B", (k, j))
X = Load("X", (i, j))
COLUMN_AT_MOST_ROW = Binary("le", IndexValue(j), IndexValue(i))
NOT_FIRST = Binary("ge", IndexValue(j), IndexValue(const(1)))


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


WORKLOADS = {
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


@pytest.mark.parametrize("workload", thinned(WORKLOADS.values(), 3), ids=WORKLOADS.keys())
def test_candidates_compute_what_the_reference_computes(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    space = SketchSpace(workload, target, backend.limits(target))
    sampled = list(space.sample(CANDIDATES, np.random.default_rng(0)))
    assert sampled
    for candidate in sampled:
        check_candidate(backend, candidate, target)


@pytest.mark.parametrize("workload", thinned(REDUCED_FIRST, 3))
def test_reduced_axes_may_come_before_those_of_the_result(
    workload: Workload, backend: MLIRBackend, target: Target
) -> None:
    for candidate in sample_candidates(backend, workload, target.with_cores(2)):
        check_candidate(backend, candidate, target)
