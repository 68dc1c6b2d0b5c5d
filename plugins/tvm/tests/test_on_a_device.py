"""Tests that only a device can pass: every kind of kernel, faults, times, and other users of it.

Programs go the way of a tuning run: one that fails is an outcome that says why, in a process of
its own, and spoils no other test.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import device_faults
import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from device_faults import FAULTS, FAULTY_BACKEND
from tensor_products import rows_product, turned_gemm
from workload_names import named

from autotune.backends import BuildRequest, CudaExecutable
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.measure.workers import SharedWorkers
from autotune.runtime.device import shared_device
from autotune.runtime.function import DeviceFunction
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.store.records import Outcome
from autotune.targets import Target, detect_cuda, with_tf32

pytestmark = pytest.mark.gpu

_WORKERS = min(8, os.cpu_count() or 1)
_GIB = 1 << 30
WORKLOADS = (
    gemm(m=256, n=192, k=160, dtype="float16"),
    gemm(m=130, n=72, k=96, dtype="bfloat16"),
    rows_product("int8", 128, 96, 256),
    turned_gemm("float16"),
    batch_matmul(b=3, m=64, n=48, k=64, dtype="bfloat16"),
    dense(m=64, n=64, k=2048, dtype="float16"),
    conv2d(h=14, w=14, ci=64, co=64, pad=1, bias=1, relu=1, dtype="float16"),
    attention(h=2, n=64, d=32, causal=1, dtype="float16"),
    gemm(m=100, n=84, k=60),
    gemm(m=33, n=40, k=50, dtype="float64"),
    conv2d(h=13, w=11, ci=8, co=16, pad=1, stride=2, bias=1, relu=1),
    depthwise_conv2d(h=14, w=14, c=32, pad=1),
    softmax(m=33, n=257),
)
ROUNDED = (gemm(m=256, n=192, k=160), conv2d(h=14, w=14, ci=32, co=64, pad=1))


@pytest.fixture(scope="module")
def target() -> Target:
    return detect_cuda()


@pytest.fixture(scope="module")
def shared(target: Target) -> Iterator[SharedWorkers]:
    workers = SharedWorkers()
    yield workers
    workers.close()


def sampled(workload: Workload, target: Target, count: int) -> list[Candidate]:
    """Candidates of every sketch."""
    space = SketchSpace(workload, target, TVMBackend().limits(target))
    return [
        Candidate(sketch, tuple(row))
        for sketch in space.sketches()
        for row in space.feasible_set(sketch).uniform(count, 11).tolist()
    ]


def failures(candidates: Sequence[Candidate], outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{candidate.sketch.name} {dict(candidate.config)}: {outcome.status}: {outcome.message}"
        for candidate, outcome in zip(candidates, outcomes, strict=True)
        if not outcome.ok
    ]


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_candidates_of_every_sketch_are_right(
    workload: Workload, target: Target, shared: SharedWorkers
) -> None:
    candidates = sampled(workload, target, 3)
    with LocalMeasurer(*("tvm", target, 1, workload), workers=_WORKERS, shared=shared) as local:
        failed = failures(candidates, local.measure(candidates))
        baseline = local.measure_baselines([None])
    assert not failed, "\n".join(failed)
    assert baseline[0].ok, baseline[0].message


def test_products_that_round_to_tf32_are_right(target: Target) -> None:
    rounding, shared = with_tf32(target), SharedWorkers()
    failed = []
    try:
        for workload in ROUNDED:
            candidates = sampled(workload, rounding, 3)
            with LocalMeasurer(
                *("tvm", rounding, 1, workload), workers=_WORKERS, shared=shared
            ) as local:
                failed += failures(candidates, local.measure(candidates))
    finally:
        shared.close()
    assert not failed, "\n".join(failed)


EXPECTED = {
    "illegal": ("crash", "CUDA error 700"),
    "misaligned": ("crash", "CUDA error 716"),
    "trap": ("crash", "CUDA error 7"),
    "endless": ("timeout", "verify took more than"),
    "beside": ("wrong_result", "memory beside"),
    "input": ("wrong_result", "was changed"),
    "too much shared memory": ("crash", "CUDA error 1 "),
    "nothing": ("wrong_result", "elements are wrong"),
}


def test_what_programs_do_wrong_is_their_outcome_and_the_device_goes_on(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of them others are measured, in another process where it has lost its context."""
    workload = gemm(m=64, n=64, k=64)
    candidates = sampled(workload, target, 8)[: 2 * len(FAULTS) + 1]
    faulty = dict(zip((it.digest for it in candidates[1::2]), FAULTS, strict=True))
    monkeypatch.setenv(device_faults.VARIABLE, json.dumps(faulty))
    protocol = MeasureProtocol(deadlines={"verify": 8.0})
    with LocalMeasurer(
        *(FAULTY_BACKEND, target, 1, workload), workers=_WORKERS, protocol=protocol
    ) as local:
        outcomes = local.measure(candidates)
        again = local.rematch(candidates[:1])
    found = {
        faulty.get(it.digest, str(number)): outcome
        for number, (it, outcome) in enumerate(zip(candidates, outcomes, strict=True))
    }
    for fault, (status, why) in EXPECTED.items():
        assert found[fault].status == status, f"{fault}: {found[fault]}"
        assert why in found[fault].message, f"{fault}: {found[fault]}"
    failed = failures(candidates[::2], outcomes[::2])
    assert not failed, "\n".join(failed)
    assert again[0].ok, again[0].message


def test_processes_that_build_take_nothing_of_the_device(target: Target) -> None:
    """A context of each would make it busy."""
    workload = gemm(m=64, n=64, k=64)
    candidates = sampled(workload, target, 8)
    with LocalMeasurer("tvm", target, 1, workload, workers=4) as local:
        failed = failures(candidates, local.measure(candidates))
        # Of this process and of the one that measures.
        with shared_device(target).current() as driver:
            free, total = driver.memory()
    assert not failed, "\n".join(failed)
    assert total - free < 2.5 * _GIB


def test_times_are_those_of_the_device(target: Target) -> None:
    """No faster than its memory; slower where the cache is cold, and the same twice."""
    large, small = elementwise(m=8192, n=4096), elementwise(m=1024, n=1024)
    found = {}
    for name, workload, cold in (
        *(("large", large, False), ("again", large, False)),
        *(("warm", small, False), ("cold", small, True)),
    ):
        protocol = MeasureProtocol(cold=cold)
        with LocalMeasurer("tvm", target, 1, workload, workers=1, protocol=protocol) as local:
            (outcome,) = local.measure_baselines([None])
        assert outcome.ok, outcome.message
        found[name] = outcome.latency or 0.0
    rate = large.io_bytes / found["large"]
    assert 0.2 * target.memory_bandwidth < rate < 1.02 * target.memory_bandwidth, found
    assert found["again"] == pytest.approx(found["large"], rel=0.1)
    assert found["cold"] > 1.1 * found["warm"], found


@pytest.fixture(scope="module")
def torch(target: Target) -> Any:
    import torch

    return torch


def built(workload: Workload, target: Target) -> DeviceFunction:
    executable = TVMBackend().build(BuildRequest(workload, None, None, target, 1))
    assert isinstance(executable, CudaExecutable)
    return DeviceFunction(workload, executable, target)


@pytest.mark.needs("torch of CUDA")
def test_what_torch_has_begun_on_any_stream_is_waited_for(torch: Any, target: Target) -> None:
    """And what torch does next, on that stream, sees what was computed."""
    function = built(gemm(m=512, n=512, k=512), target)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            busy = torch.randn(4096, 4096, device="cuda")
            for _ in range(20):
                busy = (busy @ busy).sin()
            left, right = busy[:512, :512] + 1, busy[:512, 512:1024]
            wanted = left.contiguous() @ right.contiguous()
            found = function(left, right) + 1
            torch.testing.assert_close(found, wanted + 1, rtol=1e-3, atol=1e-3)
            out = torch.empty(512, 512, device="cuda")
            assert function(left, B=right, out=out) is out
            torch.testing.assert_close(out, wanted, rtol=1e-3, atol=1e-3)
    assert torch.cuda.current_device() == 0


@pytest.mark.needs("torch of CUDA")
def test_tensors_of_torch_in_any_place_and_order(torch: Any, target: Target) -> None:
    """Turned, misaligned, with gradients, and with memory that torch gives to others at once."""
    function = built(gemm(m=64, n=64, k=64), target)
    plain = torch.randn(64, 64, device="cuda")
    shifted = torch.randn(64 * 64 + 1, device="cuda")[1:].view(64, 64)
    for left in (plain.t(), shifted, plain.clone().requires_grad_()):
        wanted = left.detach().double() @ plain.double()
        found = function(left, plain)
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    kept = [function(torch.full((64, 64), float(n), device="cuda"), plain) for n in range(20)]
    for number, found in enumerate(kept):
        wanted = number * plain.sum(0, keepdim=True).expand(64, 64)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(50):
        function(plain, plain)
    assert torch.cuda.mem_get_info()[0] >= before - (16 << 20)


@pytest.mark.needs("torch of CUDA")
def test_torch_records_a_program(torch: Any, target: Target) -> None:
    function = built(softmax(m=64, n=256), target)
    given = torch.randn(64, 256, device="cuda")
    function(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = function(given) + 1
    for factor in (1.0, 3.0):
        given.mul_(factor)
        graph.replay()
        torch.testing.assert_close(found, given.softmax(1) + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("torch of CUDA")
def test_halves_of_torch_are_read_as_they_are(torch: Any, target: Target) -> None:
    for dtype in ("float16", "bfloat16"):
        workload = dense(m=32, n=48, k=64, dtype=dtype)
        inputs = random_inputs(workload, np.random.default_rng(3))
        there = []
        for tensor in workload.inputs:
            array = torch.from_numpy(inputs[tensor.name].copy())
            there.append(array.view(getattr(torch, dtype)).cuda())
        (wanted,) = reference_outputs(workload, inputs).values()
        element = workload.tensors[workload.outputs[0]].element
        found = built(workload, target)(*there)
        assert found.dtype == getattr(torch, tensor.dtype)
        np.testing.assert_allclose(
            found.float().cpu().numpy(), element.numbers(wanted), rtol=2e-2, atol=2e-2
        )
