"""TVM's default schedule: what users have without tuning."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.default_schedule import DEFAULT_SCHEDULE

import autotune
from autotune.backends import BuildRequest, InvalidSchedule
from autotune.ir.expressions import Binary, Load, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.sketches import UNTUNED, baseline_candidate
from autotune.store.database import RecordFilter
from autotune.store.sqlite import open_database
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_program, request_for

TARGET = detect_cpu()


@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_right_where_there_is_one(threads: int) -> None:
    candidate = baseline_candidate(softmax(m=24, n=80), DEFAULT_SCHEDULE)
    backend = TVMBackend()
    request = request_for(candidate, TARGET, threads)
    check_program(backend, request)
    assert "T.parallel" in backend.show(request)
    untuned = evolve(request, candidate=None)
    assert backend.lower(request).digest != backend.lower(untuned).digest


@pytest.mark.parametrize("workload", [gemm(m=16, n=16, k=16), elementwise(m=8, n=64)])
def test_a_program_that_no_rule_fits_has_none(workload: Workload) -> None:
    candidate = baseline_candidate(workload, DEFAULT_SCHEDULE)
    with pytest.raises(InvalidSchedule, match="no default schedule for this program"):
        TVMBackend().lower(request_for(candidate, TARGET, 1))


@pytest.mark.parametrize("workload", [gemm(m=64, n=64, k=64), elementwise(m=8, n=64)])
def test_gpus_have_one_for_every_program(workload: Workload) -> None:
    target: Target = preset("a100")
    candidate = baseline_candidate(workload, DEFAULT_SCHEDULE)
    assert "threadIdx.x" in TVMBackend().show(request_for(candidate, target, 1))


def test_rules_are_not_asked_that_would_inline_without_end() -> None:
    """Fourteen stages, each of which reads the one before three times: five million copies."""
    axes, at = (Axis("i", 8),), (var("i"),)
    stages = []
    for number in range(14):
        read = Load(f"T{number}", at)
        body = Binary("add", Binary("mul", read, read), read)
        stages.append(Stage(Tensor(f"T{number + 1}", (8,), "float32"), axes, body))
    workload = Workload("chain", (Tensor("T0", (8,), "float32"),), tuple(stages), ("T14",))
    request = request_for(baseline_candidate(workload, DEFAULT_SCHEDULE), TARGET, 1)
    with pytest.raises(InvalidSchedule, match="there would be .* operations; at most 50,000"):
        TVMBackend().lower(request)


def test_a_rule_that_fails_leaves_a_program_to_the_next() -> None:
    """The schedule of matrix-vector products fails on a depthwise convolution of one pixel."""
    target = evolve(preset("h100"), processor="sm_90a")
    workload = depthwise_conv2d(h=1, w=1, c=40, pad=1)
    candidate = baseline_candidate(workload, DEFAULT_SCHEDULE)
    source = TVMBackend().cuda_source(BuildRequest(workload, None, candidate, target, 1))
    assert "threadIdx.x" in source


@pytest.mark.slow
def test_tuning_compares_with_it(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    result = autotune.tune(softmax(m=64, n=256), backend="tvm", trials=1, database=path)
    assert {it.name: it.outcome.status for it in result.baselines} == {
        UNTUNED: "ok",
        DEFAULT_SCHEDULE: "ok",
    }
    with open_database(path) as database:
        assert database.best(RecordFilter()) == result.best
