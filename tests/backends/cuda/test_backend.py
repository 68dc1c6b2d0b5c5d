"""The backend of CUDA devices, without a device."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from autotune.backends import BuildRequest, CudaExecutable, InvalidSchedule
from autotune.backends.cuda import CudaBackend
from autotune.backends.cuda_compilers import find_cuda_compiler, read_report
from autotune.errors import UnsupportedTarget
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.sketches import Candidate, PipelineFetches
from autotune.spaces import SketchSpace
from autotune.targets import Target, preset

A100 = preset("a100")


def request_of(workload: Workload, target: Target = A100) -> BuildRequest:
    space = SketchSpace(workload, target, CudaBackend().limits(target))
    (candidate,) = space.sample(1, np.random.default_rng(0))
    return BuildRequest(workload, None, candidate, target, threads=1)


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", ["a100", "h100"])
@pytest.mark.parametrize(
    "workload",
    [conv2d(h=8, w=8, ci=8, co=16, pad=1), softmax(m=8, n=64)],
    ids=["conv2d", "softmax"],
)
def test_kernels_are_compiled(workload: Workload, name: str) -> None:
    backend, request = CudaBackend(), request_of(workload, preset(name))
    lowered = backend.lower(request)
    built = backend.compile(lowered)
    assert isinstance(built, CudaExecutable)
    program = built.program
    assert program.cubin.startswith(b"\x7fELF")
    known = {it.name for it in (*workload.inputs, *program.intermediates)} | {*workload.outputs}
    assert {name for launch in program.launches for name in launch.arguments} <= known
    assert f"__launch_bounds__({program.launches[0].block[0]})" in backend.show(request)


@pytest.mark.needs("nvrtc")
def test_an_untuned_program_has_a_thread_for_each_result() -> None:
    workload = gemm(m=20, n=30, k=8)
    built = CudaBackend().build(BuildRequest(workload, None, None, A100, threads=1))
    assert isinstance(built, CudaExecutable)
    (launch,) = built.program.launches
    assert (launch.grid, launch.block) == ((3, 1, 1), (256, 1, 1))


@pytest.mark.needs("nvrtc")
def test_registers_are_not_spilled_to_make_room_for_other_blocks() -> None:
    workload = gemm(m=1000, n=1000, k=1000, dtype="float16")
    space = SketchSpace(workload, A100, CudaBackend().limits(A100))
    (sketch,) = (it for it in space.sketches() if it.name == "shared-transposed")
    values = (1024, 16, 1, 64, 1, 1, 1008, 18, 1, 14, 1, 4, 10, 5, 20, 1, 4, 0, 4, 64)
    candidate = Candidate(sketch, values)
    source = CudaBackend().show(BuildRequest(workload, None, candidate, A100, threads=1))
    explain = find_cuda_compiler().explain
    assert explain is not None
    (kernel,) = read_report(explain(source, "sm_80")[1])
    assert kernel.spill_stores == 0 and kernel.registers <= 72


def test_a_cpu_and_old_devices_are_refused() -> None:
    backend = CudaBackend()
    with pytest.raises(UnsupportedTarget, match="'cuda' compiles for CUDA devices; target .*cpu"):
        backend.limits(preset("skylake-avx512-2core"))
    with pytest.raises(UnsupportedTarget, match="sm_75 and later"):
        backend.check_target(Target(kind="cuda", name="old", processor="sm_61"))


def test_steps_that_are_not_printed_are_outside_its_limits_and_refused() -> None:
    workload = gemm(m=64, n=64, k=64, dtype="float16")
    limits = CudaBackend().limits(A100)
    assert "software_pipeline" not in limits.steps
    drawn = SketchSpace(workload, A100, limits).sample(60, np.random.default_rng(0))
    candidate = next(it for it in drawn if it.config.get("C.stages", 1) > 1)
    steps = tuple(
        evolve(step, depth=const(9)) if isinstance(step, PipelineFetches) else step
        for step in candidate.sketch.steps
    )
    other = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    with pytest.raises(InvalidSchedule, match="has no 9 stages"):
        CudaBackend().lower(BuildRequest(workload, None, other, A100, threads=1))
