"""Stages that transpose make several rows at a time."""

from __future__ import annotations

import re

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.scripted import scheduled_text
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import candidates

from autotune.ir.expressions import Binary, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_candidate, request_for


def transposed(m: int, n: int, dtype: str = "float32", scaled: bool = False) -> Workload:
    """The transpose of a matrix, perhaps with each column times a number."""
    read = Load("X", (var("j"), var("i")))
    body = Binary("mul", read, Load("W", (var("j"),))) if scaled else read
    stage = Stage(Tensor("Y", (m, n), dtype), (Axis("i", m), Axis("j", n)), body)
    inputs = (Tensor("X", (n, m), dtype), *([Tensor("W", (n,), dtype)] if scaled else ()))
    return Workload("transpose", inputs, (stage,), ("Y",))


@pytest.mark.parametrize("scaled", [False, True])
def test_squares_are_read_and_written_by_rows(
    scaled: bool, backend: MLIRBackend, target: Target
) -> None:
    workload = transposed(64, 96, scaled=scaled)
    seen = 0
    for candidate in candidates(workload, target, 4):
        if any(name.endswith("copies") for name in candidate.sketch.name.split("-")):
            continue
        text = scheduled_text(request_for(candidate, target))
        lanes = next(v for k, v in candidate.config.items() if k == "Y.j.2")
        shapes = re.findall(r"vector\.transpose .* to vector<(\d+)x(\d+)xf32>", text)
        assert (shapes == [("16", str(lanes))]) == (lanes >= 4), candidate.config
        seen += lanes >= 4
        check_candidate(backend, candidate, target)
    assert seen


def test_lines_of_elements_stay_with_copies_of_rows(target: Target) -> None:
    """Nothing changes where lanes are neighbours in what is read."""
    axes = (Axis("i", 64), Axis("j", 32))
    read = Binary("add", Load("X", (var("i"), var("j"))), Load("W", (var("i"),)))
    stage = Stage(Tensor("Y", (64, 32), "float32"), axes, read)
    inputs = (Tensor("X", (64, 32), "float32"), Tensor("W", (64,), "float32"))
    workload = Workload("sum", inputs, (stage,), ("Y",))
    for candidate in candidates(workload, target, 2):
        assert "vector.transpose" not in scheduled_text(request_for(candidate, target))


@settings(max_examples=15, deadline=None)
@given(
    extents=st.tuples(*[st.sampled_from((1, 5, 7, 8, 12, 16, 23, 36, 48, 64))] * 2),
    dtype=st.sampled_from(("float32", "float64", "int8", "float16")),
    scaled=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_transposes_are_what_the_workload_says(
    extents: tuple[int, int], dtype: str, scaled: bool, seed: int
) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    workload = transposed(*extents, dtype, scaled and dtype == "float32")
    for each in (target, preset("avx2").with_cores(1)):
        space = SketchSpace(workload, each, backend.limits(each))
        for candidate in space.sample(2, np.random.default_rng(seed)):
            check_candidate(backend, candidate, each)
