"""Torch as the vendor's library: what it computes is what the builders mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from autotune.measure.vendor import has_routine, torch_latency
from autotune.targets import Target, allows_tf32, detect_cuda, preset, with_tf32

WORKLOADS = [
    gemm(m=5, n=7, k=9),
    gemm(m=5, n=7, k=9, dtype="float16"),
    gemm(m=5, n=7, k=9, dtype="bfloat16"),
    gemm(m=17, n=16, k=24, dtype="int8"),
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


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "workload", WORKLOADS, ids=lambda it: f"{it.name}-{it.parameters['dtype']}"
)
def test_every_builder_has_a_routine_that_computes_it(workload: Workload) -> None:
    assert has_routine(workload)
    protocol = MeasureProtocol(min_sample_seconds=1e-5, budget_seconds=1e-3)
    outcome = measure_here(workload, preset("h100"), "cpu", protocol, 0)
    assert outcome.ok, outcome.message
    assert outcome.latency is not None


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    "target", [preset("h100"), with_tf32(preset("h100"))], ids=lambda it: it.name
)
def test_it_rounds_to_tf32_where_programs_may(target: Target) -> None:
    import torch

    protocol = MeasureProtocol(min_sample_seconds=1e-5, budget_seconds=1e-3)
    assert measure_here(gemm(m=4, n=4, k=4), target, "cpu", protocol, 0).ok
    of_cuda = torch.backends
    assert of_cuda.cuda.matmul.allow_tf32 == of_cuda.cudnn.allow_tf32 == allows_tf32(target)


@pytest.mark.parametrize(
    "workload",
    [
        # cuBLAS takes more rows of bytes, and multiples of eight.
        gemm(m=16, n=8, k=8, dtype="int8"),
        gemm(m=32, n=12, k=8, dtype="int8"),
        gemm(m=32, n=8, k=8, requantize=1, dtype="int8"),
        # Another workload that goes by the name, and one that nobody knows.
        evolve(gemm(m=4, n=4, k=4), parameters=gemm(m=4, n=4, k=8).parameters),
        evolve(gemm(m=4, n=4, k=4), parameters={}),
        evolve(gemm(m=4, n=4, k=4), name="softmax"),
        evolve(gemm(m=4, n=4, k=4), name="main"),
    ],
    ids=(
        "few rows of bytes",
        "odd columns",
        "requantised",
        "other sizes",
        "no sizes",
        "another name",
        "unknown",
    ),
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


@pytest.mark.needs("torch")
def test_each_way_is_compiled_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    asked = []

    def compiled(routine: Any, **given: Any) -> Any:
        asked.append(given)
        return routine

    monkeypatch.setattr(torch, "compile", compiled)
    protocol = MeasureProtocol(min_sample_seconds=1e-5, budget_seconds=1e-3)
    images = conv2d(h=7, w=6, ci=3, co=5)
    assert measure_here(images, preset("h100"), "cpu", protocol, 0, compiled=True).ok
    # Channels first, and last; without graphs, which are made of all that is timed.
    assert asked == 2 * [{"mode": "max-autotune-no-cudagraphs", "dynamic": False}]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("failing", [{0}, {1}, {0, 1}], ids=str)
def test_ways_that_fail_or_are_wrong_count_where_all_are(failing: set[int]) -> None:
    import torch

    workload = gemm(m=4, n=4, k=4)

    def calls(_: Workload, tensors: Mapping[str, Any]) -> list[Any]:
        def broken() -> Any:
            raise torch.OutOfMemoryError("no\nmemory")

        def right() -> Any:
            return tensors["A"] @ tensors["B"]

        wrong = torch.zeros(4, 4)
        return [(broken, lambda: wrong)[it] if it in failing else right for it in range(2)]

    protocol = MeasureProtocol(min_sample_seconds=1e-5, budget_seconds=1e-3)
    outcome = measure_here(workload, preset("h100"), "cpu", protocol, 0, calls=calls)
    if failing == {0, 1}:
        assert (outcome.status, outcome.message) == (
            "crash",
            "torch: OutOfMemoryError: no memory",
        )
    else:
        assert outcome.ok, outcome.message


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_it_is_timed_on_the_device() -> None:
    """With TF32 where the target allows it: a large product is several times as fast by it."""
    target, protocol = detect_cuda(), MeasureProtocol()
    images = torch_latency(conv2d(h=14, w=14, ci=64, co=64), target, protocol)
    product = gemm(m=2048, n=2048, k=2048)
    exact, rounded = (torch_latency(product, it, protocol) for it in (target, with_tf32(target)))
    sums = torch_latency(gemm(m=1024, n=1024, k=1024, dtype="int8"), target, protocol)
    compiled = torch_latency(softmax(m=512, n=4096), target, protocol, compiled=True)
    for outcome in (images, exact, rounded, sums, compiled):
        assert outcome is not None
        assert outcome.ok, outcome.message
        assert 1e-6 < (outcome.latency or 0.0) < 1e-2
    assert exact and rounded and exact.latency and rounded.latency
    assert exact.latency > 2 * rounded.latency
