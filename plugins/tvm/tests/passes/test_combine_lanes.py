"""The lanes of a reduction are combined in halves, and nothing else is reordered."""

from __future__ import annotations

import re

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import generate_code, lower_module
from autotune_tvm.passes import combine_lanes
from autotune_tvm.scheduled import scheduled_module
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm_programs import machine_code

from autotune.backends import BuildRequest
from autotune.ir.expressions import Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, softmax
from autotune.sketches import Candidate
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import (
    check_candidate,
    request_for,
    run_executable,
    sample_candidates,
)

BACKEND, TARGET = TVMBackend(), detect_cpu()
FUNCTIONS = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}


def rows(combiner: str, dtype: str = "float32", m: int = 6, n: int = 128) -> Workload:
    axes = (Axis("i", m), Axis("k", n, "reduce"))
    stage = Stage(Tensor("Y", (m,), dtype), axes, Load("X", (var("i"), var("k"))), combiner)
    return Workload("rows", (Tensor("X", (m, n), dtype),), (stage,), ("Y",))


def in_lanes(workload: Workload) -> list[Candidate]:
    found = sample_candidates(BACKEND, workload, TARGET)
    return [it for it in found if it.sketch.name.startswith(("split-reduction", "row-fusion"))]


def lowered_text(candidate: Candidate) -> str:
    request = BuildRequest(candidate.sketch.workload, None, candidate, TARGET, 1)
    return str(lower_module(scheduled_module(request), TARGET, 1).script())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("combiner", FUNCTIONS)
def test_every_operation_is_that_of_numpy(combiner: str, dtype: str) -> None:
    workload = rows(combiner, dtype)
    x = np.random.default_rng(0).uniform(0.9, 1.1, (6, 128)).astype(dtype)
    candidates = in_lanes(workload)
    assert candidates
    for candidate in candidates:
        assert "autotune_lanes_" in lowered_text(candidate), candidate.sketch.name
        executable = BACKEND.build(request_for(candidate, TARGET))
        (output,) = run_executable(executable, workload, {"X": x})
        np.testing.assert_allclose(output, FUNCTIONS[combiner](x.astype("float64"), 1), rtol=1e-5)


@settings(max_examples=8, deadline=None)
@given(m=st.integers(1, 40), n=st.integers(1, 200), seed=st.integers(0, 9))
def test_softmax_of_any_rows(m: int, n: int, seed: int) -> None:
    candidates = sample_candidates(BACKEND, softmax(m=m, n=n), TARGET, seed=seed)
    check_candidate(BACKEND, candidates[seed % len(candidates)], TARGET)


@pytest.mark.parametrize("dtype", ["int32", "float16"])
def test_lanes_of_other_types_are_left_to_their_loop(dtype: str) -> None:
    for candidate in in_lanes(rows("max", dtype)):
        assert "autotune_lanes_" not in lowered_text(candidate)
        check_candidate(BACKEND, candidate, TARGET)


def test_reductions_that_no_step_split_keep_their_order() -> None:
    """A loop over 16 elements, of which nothing says that they may be reordered."""
    workload = rows("add", m=4, n=16)
    request = BuildRequest(workload, None, None, TARGET, 1)
    lowered = lower_module(scheduled_module(request), TARGET, 1)
    assert "autotune_lanes_" not in str(lowered.script())
    assert combine_lanes(lowered) is not None
    assert "autotune_lanes_" not in str(combine_lanes(lowered).script())


def test_no_lane_waits_for_all_before_it(target: Target) -> None:
    """16 lanes take four additions of vectors, not sixteen of numbers."""
    candidates = [it for it in in_lanes(softmax(m=16, n=128)) if it.sketch.name == "row-fusion"]
    assert candidates
    for candidate in candidates:
        text = machine_code(candidate, target)
        assert len(re.findall(r"\bv?addss\b", text)) <= 4
        assert len(re.findall(r"\bv?maxss\b", text)) <= 4


def test_equal_programs_have_equal_code() -> None:
    (candidate, *_) = in_lanes(rows("add"))
    request = BuildRequest(candidate.sketch.workload, None, candidate, TARGET, 1)
    texts = {
        generate_code(lower_module(scheduled_module(request), TARGET, 1), TARGET, 1)[1]
        for _ in range(2)
    }
    assert len(texts) == 1
