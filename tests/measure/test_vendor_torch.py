"""Torch as the vendor's library: what it computes is what the builders mean."""

from __future__ import annotations

import pytest
from attrs import evolve

from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.measure import MeasureProtocol
from autotune.measure.torch_routines import measure_here
from autotune.measure.vendor_torch import has_routine, torch_latency
from autotune.targets import detect_cuda, preset

WORKLOADS = [
    gemm(m=5, n=7, k=9),
    gemm(m=5, n=7, k=9, dtype="float16"),
    gemm(m=5, n=7, k=9, dtype="bfloat16"),
    batch_matmul(b=2, m=5, n=7, k=9, dtype="float64"),
    dense(m=3, n=5, k=7),
    dense(m=3, n=5, k=7, bias=0, relu=0),
    conv1d(w=9, ci=3, co=4, pad=1),
    conv2d(h=7, w=6, ci=3, co=5, kh=3, kw=1, stride=2, pad=1, bias=1, relu=1),
    conv3d(d=4, h=5, w=6, ci=2, co=3),
    depthwise_conv2d(h=7, w=6, c=4, pad=1, dilation=2),
    softmax(m=4, n=9),
    attention(h=2, n=5, d=8, causal=1),
    attention(h=2, n=5, m=6, d=8),
    elementwise(m=4, n=5),
]


@pytest.mark.parametrize(
    "workload", WORKLOADS, ids=lambda it: f"{it.name}-{it.parameters['dtype']}"
)
def test_every_builder_has_a_routine_that_computes_it(workload: Workload) -> None:
    pytest.importorskip("torch")
    assert has_routine(workload)
    protocol = MeasureProtocol(min_sample_seconds=1e-5, budget_seconds=1e-3)
    outcome = measure_here(workload, "cpu", protocol, 0)
    assert outcome.ok, outcome.message
    assert outcome.latency is not None


@pytest.mark.parametrize(
    "workload",
    [
        gemm(m=4, n=4, k=4, dtype="int8"),
        # Another workload that goes by the name, and one that nobody knows.
        evolve(gemm(m=4, n=4, k=4), parameters=gemm(m=4, n=4, k=8).parameters),
        evolve(gemm(m=4, n=4, k=4), parameters={}),
        evolve(gemm(m=4, n=4, k=4), name="softmax"),
        evolve(gemm(m=4, n=4, k=4), name="main"),
    ],
    ids=("bytes", "other sizes", "no sizes", "another name", "unknown"),
)
def test_what_only_seems_to_be_one_has_none(workload: Workload) -> None:
    assert not has_routine(workload)
    assert torch_latency(workload, preset("h100"), MeasureProtocol()) is None


def test_without_torch_or_a_device_the_outcome_says_so() -> None:
    outcome = torch_latency(gemm(m=4, n=4, k=4), preset("h100"), MeasureProtocol())
    assert outcome is not None
    if outcome.latency is None:
        assert "torch" in outcome.message
        assert "\n" not in outcome.message


@pytest.mark.gpu
def test_it_is_timed_on_the_device() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    outcome = torch_latency(conv2d(h=14, w=14, ci=64, co=64), detect_cuda(), MeasureProtocol())
    assert outcome is not None
    assert outcome.ok, outcome.message
    assert 1e-6 < (outcome.latency or 0.0) < 1e-2
