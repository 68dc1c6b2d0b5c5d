"""Measuring on a CUDA device, shown on a fake driver: real processes, real kernels on CPU threads.

What is fake is the driver's library, whose functions have the prototypes of ``cuda.h``, and the
compiler. Everything else is what runs where there is a device.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import fake_cuda
import pytest
from autotune_tvm import doctor
from autotune_tvm.backend import TVMBackend
from autotune_tvm.doctor import cuda_findings
from fake_cuda import FakeCuda

from autotune.backends import BuildFailed, BuildRequest, CudaCompiler, CudaExecutable
from autotune.backends.cuda.measuring import (
    FAST_MATH_VARIABLE,
    check_versions,
    compiler_described,
)
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import gemm, softmax
from autotune.measure import LocalMeasurer, MeasureProtocol, WorkerStartFailed
from autotune.runtime.device import held_bytes, open_device, shared_device
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import load_driver, preset, resolve
from autotune.targets.cuda_driver import DRIVER_VARIABLE

SMALL = gemm(m=16, n=16, k=16)
DEADLINES = {"task": 100.0, "build": 60.0, "verify": 20.0, "run": 40.0}


@pytest.fixture(scope="module")
def few() -> list[Candidate]:
    return fake_cuda.candidates_of(SMALL, 3)


def measured(
    candidates: Sequence[Candidate],
    act: Callable[[LocalMeasurer], list[Outcome]],
    backend: str = "tvm",
    **deadlines: float,
) -> list[Outcome]:
    protocol = MeasureProtocol(deadlines={**DEADLINES, **deadlines}, min_sample_seconds=1e-4)
    workload, here = candidates[0].sketch.workload, resolve("cuda")
    with LocalMeasurer(backend, here, 1, workload, workers=1, protocol=protocol) as local:
        return act(local)


def statuses(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


@pytest.mark.slow
def test_printed_candidates_and_the_untuned_program_run_in_one_process(
    cuda: FakeCuda, few: list[Candidate]
) -> None:
    def act(local: LocalMeasurer) -> list[Outcome]:
        outcomes = local.measure(few)
        outcomes += local.measure_baselines([None])
        assert local.versions["compiler_version"].startswith("nvcc 13.0")
        return outcomes

    outcomes = measured(few, act, "cuda")
    assert statuses(outcomes) == ["ok"] * 4, [it.message for it in outcomes]
    assert all(outcome.latency and outcome.latency < 1e-3 for outcome in outcomes)
    assert len(set(cuda.processes)) == 1


LOST = {
    "error 700": ("crash", "CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS)"),
    "error 716": ("crash", "CUDA error 716 (CUDA_ERROR_MISALIGNED_ADDRESS)"),
    "error 702": ("crash", "CUDA error 702 (CUDA_ERROR_LAUNCH_TIMEOUT)"),
    "error 214": ("crash", "CUDA error 214 (CUDA_ERROR_ECC_UNCORRECTABLE)"),
    "hang": ("timeout", "verify took more than 6 s"),
}


@pytest.mark.slow
def test_a_lost_context_is_the_outcome_of_its_candidate(cuda: FakeCuda) -> None:
    for ordinal, fault in enumerate(LOST, 1):
        cuda.fail(ordinal, fault)
    candidates = fake_cuda.candidates_of(SMALL, len(LOST) + 2)
    outcomes = measured(candidates, lambda local: local.measure(candidates), verify=6.0)
    blamed = [outcome for outcome in outcomes if not outcome.ok]
    assert len(blamed) == len(LOST), [it.message for it in outcomes]
    for status, why in LOST.values():
        assert [it.status for it in blamed if why in it.message] == [status]
    lost, later = cuda.processes[: len(LOST)], cuda.processes[len(LOST) :]
    # The device is usable again, each time in another process.
    assert len(set(lost)) == len(LOST) and len(later) >= 2
    assert not set(lost) & set(later)


@pytest.mark.slow
def test_what_a_kernel_must_not_do_is_found_and_leaves_the_device_usable(
    cuda: FakeCuda, few: list[Candidate]
) -> None:
    for ordinal, fault in enumerate(("nothing", "beside", "input"), 1):
        cuda.fail(ordinal, fault)

    def act(local: LocalMeasurer) -> list[Outcome]:
        outcomes = [*local.measure(few), *local.rematch(few), *local.measure_baselines([None])]
        assert local.versions["compiler_version"].startswith("apache-tvm")
        return outcomes

    outcomes = measured(few, act)
    wrong, right = outcomes[:3], outcomes[3:]
    assert statuses(wrong) == ["wrong_result"] * 3
    messages = " ".join(outcome.message for outcome in wrong)
    assert "256 of 256 elements are wrong" in messages
    assert "memory beside 'A' was written to" in messages
    assert "input 'A' was changed" in messages
    # Candidates and the untuned program, in the same process.
    assert statuses(right) == ["ok"] * 4, [it.message for it in right]
    assert all(outcome.latency and outcome.latency < 1e-3 for outcome in right)
    assert len(set(cuda.processes)) == 1


def test_a_device_that_cannot_be_had_is_one_line(cuda: FakeCuda) -> None:
    cuda.set(MODE="3")
    with pytest.raises(UnsupportedTarget, match="is busy: another process has it for itself"):
        open_device(preset("h100"), patience=0.0)
    cuda.set(USED=str(60 << 30), MODE="0")
    why = r"cuda:0 .NVIDIA H100 80GB HBM3. is busy: 60\.5 GiB of its 80"
    with pytest.raises(UnsupportedTarget, match=why):
        open_device(preset("h100"), patience=0.0)
    target = resolve("cuda")
    cuda.patch.setenv("AUTOTUNE_ALLOW_BUSY_GPU", "1")
    cuda.set(USED="0", MEMORY=str((512 << 20) + 3000))
    why = "needs 8192 bytes .*, cuda:0 has 3000 of 536873912"
    with (
        LocalMeasurer("tvm", target, 1, SMALL, workers=1) as local,
        pytest.raises(WorkerStartFailed, match=why) as refused,
    ):
        local.wait_ready()
    assert "\n" not in str(refused.value)


def test_what_the_caller_keeps_on_the_device_does_not_make_it_busy(cuda: FakeCuda) -> None:
    """Arrays of tuned programs, and what torch has reserved."""
    gc.collect()
    array = shared_device(resolve("cuda")).empty((1 << 28,), "float32")
    of_torch = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 0,
        memory_reserved=lambda index: (3 << 30) * (1 - index),
    )
    cuda.patch.setitem(sys.modules, "torch", SimpleNamespace(cuda=of_torch))
    assert held_bytes() == {0: array.bytes + (4 << 30)}
    cuda.set(USED=str(5 << 30))
    with LocalMeasurer("tvm", resolve("cuda"), 1, SMALL, workers=1) as local:
        local.wait_ready()
    cuda.set(USED=str(8 << 30))
    why = "8.5 GiB of its 80.0 GiB are in use, 5.0 of them by this process"
    with (
        LocalMeasurer("tvm", resolve("cuda"), 1, SMALL, workers=1) as local,
        pytest.raises(WorkerStartFailed, match=why),
    ):
        local.wait_ready()


def test_what_is_kept_is_that_of_the_driver_in_use(cuda: FakeCuda) -> None:
    gc.collect()
    array = shared_device(resolve("cuda")).empty((256,), "float32")
    assert held_bytes() == {0: array.bytes + (1 << 30)}
    cuda.patch.setenv(DRIVER_VARIABLE, "another.so")
    assert held_bytes() == {}


def free_soon(cuda: FakeCuda) -> None:
    time.sleep(0.3)
    cuda.set(USED="0")


def test_a_device_that_is_on_its_way_to_be_free_is_waited_for(cuda: FakeCuda) -> None:
    """A device is on its way to be free when its last user has just been killed."""
    cuda.set(USED=str(8 << 30))
    with ThreadPoolExecutor(1) as other:
        freed = other.submit(free_soon, cuda)
        device = open_device(preset("h100"), patience=300.0)
        freed.result()
    assert device.device.index == 0
    cuda.set(USED=str(8 << 30))
    with pytest.raises(UnsupportedTarget, match=r"is busy: 8\.5 GiB"):
        open_device(preset("h100"), patience=0.2)


def test_measuring_asks_for_the_device_that_is_here(cuda: FakeCuda) -> None:
    backend = TVMBackend()
    backend.check_measuring(preset("h100"))
    with pytest.raises(UnsupportedTarget, match=r"'a100' .*is no device of this machine: cuda:0"):
        backend.check_measuring(preset("a100"))
    cuda.set(DEVICES="rtx4090,h100")
    assert resolve("cuda:1").name == "h100:1"
    assert resolve("cuda").processor == "sm_89"
    cuda.set(DEVICES="")
    with pytest.raises(UnsupportedTarget, match="there is no CUDA device here"):
        backend.check_measuring(preset("h100"))


def test_doctor_says_what_there_is(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda.set(DEVICES="h100,rtx4090")
    found = {label: (status, message) for label, status, message in cuda_findings()}
    assert found["cuda"] == ("ok", "driver for CUDA 13.0")
    assert found["cuda:0"][1].endswith("sm_90, 80 GiB: target 'h100'")
    assert found["cuda:1"][1].startswith("NVIDIA GeForce RTX 4090, sm_89")
    assert found["cuda compiler"] == ("ok", "nvcc 13.0")
    assert "cuda headers" not in found
    with monkeypatch.context() as patch:
        patch.setattr(
            doctor, "find_cuda_compiler", lambda: CudaCompiler("nvrtc", (13, 0), lambda *_: b"")
        )
        patch.setattr(doctor, "header_folders", list)
        status, why = {label: rest for label, *rest in cuda_findings()}["cuda headers"]
    assert status == "warning"
    assert "pip install nvidia-cuda-runtime" in why
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "find_cuda_compiler", lambda: CudaCompiler("nvrtc", (13, 0), broken))
        status, why = {label: rest for label, *rest in cuda_findings()}["cuda compiler"]
    assert status == "error"
    assert "for sm_90a: failed to open" in why
    cuda.set(VERSION="12040")
    status, why = {label: rest for label, *rest in cuda_findings()}["cuda compiler"]
    assert status == "error"
    assert "too old for nvcc 13.0" in why
    cuda.set(VERSION="11040")
    ((_, status, why),) = cuda_findings()
    assert status == "warning"
    assert "for CUDA 11.4" in why
    cuda.patch.setenv("AUTOTUNE_LIBCUDA", "/nonexistent/libcuda.so.1")
    ((_, status, why),) = cuda_findings()
    assert status == "ok"
    assert "there is no CUDA device here" in why


def broken(source: str, architecture: str, options: Sequence[str]) -> bytes:
    raise BuildFailed(f"nvrtc for {architecture}: failed to open libnvrtc-builtins.so.13.0.")


def test_drivers_that_are_too_old_are_refused(cuda: FakeCuda) -> None:
    cuda.set(VERSION="11080")
    with pytest.raises(UnsupportedTarget, match=r"too old: it is for CUDA 11\.8, and 12\.0"):
        load_driver()
    compiler = CudaCompiler("nvrtc", (13, 5), lambda *_: b"")
    check_versions(compiler, 13000)
    with pytest.raises(UnsupportedTarget, match=r"too old for nvrtc 13\.5.*nvrtc-cu12"):
        check_versions(compiler, 12080)


def test_fast_math_is_a_choice_that_records_name(cuda: FakeCuda) -> None:
    target = preset("h100")
    backend = TVMBackend()
    request = BuildRequest(softmax(m=4, n=32), None, None, target, 1)
    exact = backend.build(request)
    assert isinstance(exact, CudaExecutable)
    assert not exact.program.fast_math
    assert backend.compiler_version_for(target).endswith("nvcc 13.0")
    cuda.patch.setenv(FAST_MATH_VARIABLE, "1")
    assert compiler_described() == "nvcc 13.0, fast math"
    cuda.patch.setenv(FAST_MATH_VARIABLE, "yes")
    with pytest.raises(InvalidValueError, match="is 0 or 1, not 'yes'"):
        compiler_described()


def test_intermediates_are_the_launchers(cuda: FakeCuda) -> None:
    request = BuildRequest(softmax(m=4, n=32), None, None, preset("h100"), 1)
    lowered = TVMBackend().lower(request).program
    assert [buffer.name for buffer in lowered.intermediates] == ["M", "S"]
    assert [launch.arguments for launch in lowered.launches] == [
        ("M", "X"),
        ("M", "S", "X"),
        ("M", "S", "X", "Y"),
    ]


@pytest.mark.slow
def test_a_program_of_several_kernels_and_cold_caches(cuda: FakeCuda) -> None:
    workload = softmax(m=2, n=32)
    protocol = MeasureProtocol(cold=True, deadlines=DEADLINES, min_sample_seconds=1e-4)
    target = resolve("cuda")
    with LocalMeasurer("tvm", target, 1, workload, workers=1, protocol=protocol) as local:
        (outcome,) = local.measure_baselines([None])
    assert outcome.ok, outcome.message


def test_the_environment_of_the_fake_driver_is_gone_afterwards() -> None:
    assert "FAKE_CUDA" not in os.environ
