"""Copies ahead of their use in printed kernels: what arrives when, and who waits for it.

There is no device here: a copy is made when its thread waits for it, and garbage is in its place
until then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import matrix_programs
import numpy as np
import pytest
from attrs import evolve
from cuda_threads import Program, run_all, run_each
from printed_kernels import is_right, program_of
from tensor_products import rows_product, turned_gemm

from autotune.backends import BuildRequest, CudaExecutable, find_cuda_compiler
from autotune.backends.cuda import CudaBackend
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, batch_matmul, conv2d, dense, depthwise_conv2d, gemm
from autotune.lower.instructions.warpgroups import SHARE, WAIT
from autotune.lower.kernels import print_kernels
from autotune.sketches import (
    BulkCopy,
    Candidate,
    CooperativeFetch,
    PipelineFetches,
    SharedLayout,
    Step,
)
from autotune.sketches.copy_engine import SWIZZLED_ROW_BYTES
from autotune.spaces import SketchSpace
from autotune.targets import Target, preset, resolve

TARGET = preset("h100")
FEW = (gemm(m=32, n=32, k=96), conv2d(h=5, w=4, ci=16, co=16, pad=1, bias=1, relu=1))
MANY = (
    gemm(m=13, n=24, k=20, dtype="float64"),
    gemm(m=24, n=32, k=36, dtype="int8"),
    gemm(m=32, n=48, k=64, dtype="float16"),
    gemm(m=20, n=20, k=52, dtype="bfloat16"),
    batch_matmul(b=3, m=33, n=40, k=50),
    dense(m=33, n=64, k=64, bias=0),
    conv2d(h=15, w=15, ci=8, co=16, kh=5, kw=3, dilation=2, stride=3),
    depthwise_conv2d(h=14, w=14, c=32, pad=1),
)
IN_BULK = (
    gemm(m=32, n=32, k=64, dtype="float16"),
    dense(m=24, n=48, k=96, dtype="bfloat16"),
    batch_matmul(b=2, m=32, n=32, k=64, dtype="float16"),
    gemm(m=40, n=48, k=80, dtype="float16"),
)
WARPS, WARPGROUPS = resolve("a100-tf32"), resolve("h100-tf32")
ON_TENSOR_CORES = (
    (gemm(m=32, n=32, k=96, dtype="float16"), WARPS),
    (gemm(m=128, n=64, k=64, dtype="float16"), WARPGROUPS),
    (gemm(m=20, n=20, k=52, dtype="bfloat16"), WARPS),
    (conv2d(h=5, w=4, ci=16, co=16, pad=1, bias=1, relu=1, dtype="float16"), WARPS),
    (batch_matmul(b=2, m=16, n=24, k=64, dtype="float16"), WARPS),
    (gemm(m=20, n=32, k=1024, dtype="float16"), WARPS),
    (dense(m=32, n=24, k=40), WARPS),
    (dense(m=64, n=48, k=96, dtype="bfloat16"), WARPGROUPS),
    (dense(m=64, n=24, k=48), WARPGROUPS),
    (turned_gemm("float16"), WARPGROUPS),
    (batch_matmul(b=2, m=64, n=32, k=32, dtype="bfloat16"), WARPGROUPS),
    (gemm(m=50, n=48, k=56, dtype="float16"), WARPGROUPS),
    (rows_product("int8", 64, 32, 128), WARPGROUPS),
    (rows_product("int8", 70, 40, 144), WARPGROUPS),
    (conv2d(h=8, w=8, ci=16, co=24, pad=1, dtype="float16"), WARPGROUPS),
    (gemm(m=64, n=32, k=512, dtype="float16"), WARPGROUPS),
)
# More threads than these are not worth their barriers here.
_GRID_THREADS, _TENSOR_THREADS = 20_000, 4_000
_BARRIER = re.compile(r"^\s*__syncthreads\(\);$", re.MULTILINE)
_WAIT = re.compile(r"^(\s*autotune_wait_copies_)(\d)\(\);$", re.MULTILINE)
_BULK_WAIT = re.compile(r"^\s*autotune_bulk_wait\(.*\);$", re.MULTILINE)


def with_steps(candidate: Candidate, steps: list[Step]) -> Candidate:
    """The candidate with other steps."""
    return evolve(candidate, sketch=evolve(candidate.sketch, steps=tuple(steps)))


def ahead(candidate: Candidate, depth: int) -> Candidate:
    """The candidate with all that it fetches ahead."""
    fetches = [it for it in candidate.sketch.steps if isinstance(it, CooperativeFetch)]
    loops = dict.fromkeys((it.stage, it.at) for it in fetches)
    steps = [PipelineFetches(*loop, const(depth)) for loop in loops]
    return with_steps(candidate, [*candidate.sketch.steps, *steps])


def in_bulk(candidate: Candidate, row: int) -> Candidate:
    """The candidate with all that it fetches in rows of so many elements, by the copy engine."""
    steps: list[Step] = []
    for step in candidate.sketch.steps:
        if isinstance(step, CooperativeFetch):
            steps += [step, BulkCopy(step.stage, step.operand, const(row))]
        elif not isinstance(step, SharedLayout):
            steps.append(step)
    return with_steps(candidate, steps)


def made_of(workload: Workload, *, bulk: bool) -> Iterator[Candidate]:
    """Candidates of scalar threads that fetch ahead, in two to four stages."""
    limits = CudaBackend().limits(TARGET)
    limits = evolve(limits, steps=limits.steps - {"warp_tensorize"})
    space = SketchSpace(workload, TARGET, limits)
    rows = [it // workload.inputs[0].element.bytes for it in SWIZZLED_ROW_BYTES]
    for number, candidate in enumerate(space.sample(150, np.random.default_rng(5))):
        if any(isinstance(it, CooperativeFetch) for it in candidate.sketch.steps):
            chosen = in_bulk(candidate, rows[number % 3]) if bulk else candidate
            yield ahead(chosen, 2 + number % 3)


def programs_of(
    workload: Workload, *, bulk: bool = False, most: int = 1
) -> Iterator[tuple[Candidate, Program]]:
    """Programs of every sketch, with few enough threads to try here."""
    seen: dict[str, int] = {}
    for candidate in made_of(workload, bulk=bulk):
        name = candidate.sketch.name
        if seen.get(name, 0) == most:
            continue
        try:
            printed = print_kernels(candidate)
        except UnsupportedWorkload as error:
            assert re.search("has no . stages|copy engine", str(error))
            continue
        total = sum(math.prod((*it.block, *it.grid)) for it in printed.kernels)
        if total <= _GRID_THREADS:
            seen[name] = seen.get(name, 0) + 1
            yield candidate, program_of(candidate, printed)


def on_tensor_cores(workload: Workload, target: Target) -> Iterator[Candidate]:
    """Candidates of each sketch that fetches ahead, one of each depth."""
    space = SketchSpace(workload, target, CudaBackend().limits(target))
    seen = set()
    for candidate in space.sample(90 * len(space.sketches()), np.random.default_rng(3)):
        stages = [it for name, it in candidate.config.items() if name.endswith(".stages")]
        key = (candidate.sketch.name, *stages)
        if max(stages, default=1) == 1 or key in seen:
            continue
        kernels = print_kernels(candidate, target).kernels
        if sum(math.prod((*it.grid, *it.block)) for it in kernels) <= _TENSOR_THREADS:
            seen.add(key)
            yield candidate


def check_on_tensor_cores(
    cases: Sequence[tuple[Workload, Target]], folder: Path, least: int
) -> None:
    made = [
        (program_of(candidate, print_kernels(candidate, target)), target)
        for workload, target in cases
        for candidate in on_tensor_cores(workload, target)
    ]
    assert len(made) >= least
    outputs = run_all([program for program, _ in made], folder)
    for (program, target), found in zip(made, outputs, strict=True):
        matrix_programs.check(program, found, target)


def check(workloads: tuple[Workload, ...], folder: Path, least: int, *, bulk: bool) -> None:
    made = [(it, *program) for it in workloads for program in programs_of(it, bulk=bulk, most=2)]
    assert len(made) >= least
    outputs = run_all([program for _, _, program in made], folder)
    for (workload, candidate, program), found in zip(made, outputs, strict=True):
        assert is_right(workload, program, found), candidate.describe()


def test_a_few_kernels_compute_the_reference(tmp_path: Path) -> None:
    check(FEW, tmp_path, least=4, bulk=False)


def test_a_few_kernels_with_bulk_copies_compute_the_reference(tmp_path: Path) -> None:
    check(IN_BULK[:1], tmp_path, least=2, bulk=True)


@pytest.mark.slow
def test_kernels_of_every_sketch_compute_the_reference(tmp_path: Path) -> None:
    check(MANY, tmp_path, least=16, bulk=False)


@pytest.mark.slow
def test_kernels_with_bulk_copies_compute_the_reference(tmp_path: Path) -> None:
    check(IN_BULK, tmp_path, least=6, bulk=True)


@pytest.mark.slow
def test_a_few_products_of_what_is_fetched_ahead_are_right(tmp_path: Path) -> None:
    check_on_tensor_cores(ON_TENSOR_CORES[:2], tmp_path, least=5)


@pytest.mark.long
@pytest.mark.parametrize("target", [WARPS, WARPGROUPS], ids=["warps", "warpgroups"])
def test_products_of_what_is_fetched_ahead_are_right(target: Target, tmp_path: Path) -> None:
    cases = [case for case in ON_TENSOR_CORES[2:] if case[1] is target]
    check_on_tensor_cores(cases, tmp_path, least=len(cases))


def refills(candidate: Candidate) -> bool:
    """Tell whether stages are filled again."""
    (depth,) = (it.depth for it in candidate.sketch.steps if isinstance(it, PipelineFetches))
    return candidate.config["C.k.0"] > (depth.value or 0)


def less(source: str, *, bulk: bool) -> Iterator[str]:
    """The source without one of its barriers, and with each wait too short."""
    found = [*_BARRIER.finditer(source)]
    # The one behind the making of the engine's barriers is not missed by threads in turns.
    for barrier in found[1:] if bulk else found:
        yield source[: barrier.start()] + source[barrier.end() :]
    for wait in _WAIT.finditer(source):
        longer = f"{wait.group(1)}{int(wait.group(2)) + 1}();"
        yield source[: wait.start()] + longer + source[wait.end() :]
    for wait in _BULK_WAIT.finditer(source):
        yield source[: wait.start()] + source[wait.end() :]


@pytest.mark.slow
@pytest.mark.parametrize("bulk", [False, True], ids=["threads", "engine"])
def test_every_wait_and_barrier_is_needed(bulk: bool, tmp_path: Path) -> None:
    workload = gemm(m=32, n=32, k=128, dtype="float16")
    programs = [
        evolve(program, source=source)
        for candidate, program in programs_of(workload, bulk=bulk, most=4)
        if refills(candidate)
        for source in less(program.source, bulk=bulk)
    ]
    assert len(programs) >= 8
    for program, found in zip(programs, run_each(programs, tmp_path), strict=True):
        assert isinstance(found, int) or not is_right(workload, program, found)


@pytest.mark.slow
def test_products_need_every_wait_fence_and_barrier(tmp_path: Path) -> None:
    """Products of warpgroups: threads, and the engine, copy factors into stages used again."""
    workload = gemm(m=128, n=16, k=128, dtype="float16")
    made = {
        it.sketch.name: it
        for it in on_tensor_cores(workload, WARPGROUPS)
        if "tensor-cores-" in it.sketch.name and it.config["C.k.0"] > it.config["C.stages"]
    }
    programs = []
    for name, candidate in made.items():
        program = program_of(candidate, print_kernels(candidate, WARPGROUPS))
        sources = [*less(program.source, bulk=name == "tensor-cores-bulk")]
        functions, kernel = program.source.split('extern "C"')
        for call in re.finditer(rf"^ *({SHARE}|{WAIT})\(\);$", kernel, re.MULTILINE):
            sources.append(f'{functions}extern "C"{kernel[: call.start()]}{kernel[call.end() :]}')
        programs += [evolve(program, source=source) for source in sources]
    assert len(made) == 2 and len(programs) == 7
    for program, found in zip(programs, run_each(programs, tmp_path), strict=True):
        assert matrix_programs.outcome_of(program, found, WARPGROUPS) != matrix_programs.RIGHT


def test_what_is_guarded_or_moved_in_vectors_is_copied_past_registers() -> None:
    sources = [program.source for it in FEW for _, program in programs_of(it, most=3)]
    kernels = [source[source.rindex('extern "C"') :] for source in sources]
    for text in ("autotune_copy_4", "autotune_copy_16", "_if("):
        assert any(text in kernel for kernel in kernels), text


def test_an_iteration_waits_once() -> None:
    for _, program in programs_of(FEW[0], most=2):
        kernel = program.source[program.source.rindex('extern "C"') :]
        assert kernel.count("__syncthreads()") == kernel.count("autotune_wait_copies_") == 1
        assert kernel.count("autotune_end_copies()") == 2


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize(
    ("bulk", "architecture"), [(False, "sm_80"), (False, "sm_90a"), (True, "sm_90a")]
)
def test_kernels_are_compiled(bulk: bool, architecture: str) -> None:
    workloads = IN_BULK if bulk else (*FEW, *MANY)
    for workload in workloads:
        candidate, _ = next(programs_of(workload, bulk=bulk))
        source = print_kernels(candidate).source
        cubin = find_cuda_compiler().compile(source, architecture, ())
        assert cubin.startswith(b"\x7fELF")


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize(("workload", "target"), ON_TENSOR_CORES[:2], ids=["warps", "warpgroups"])
def test_products_of_what_is_fetched_are_compiled(workload: Workload, target: Target) -> None:
    for candidate in on_tensor_cores(workload, target):
        source = print_kernels(candidate, target).source
        architecture = "sm_80" if target is WARPS else "sm_90a"
        cubin = find_cuda_compiler().compile(source, architecture, ())
        assert cubin.startswith(b"\x7fELF")


@pytest.mark.needs("nvrtc")
def test_launches_describe_what_the_engine_copies() -> None:
    workload = IN_BULK[0]
    candidate, program = next(programs_of(workload, bulk=True))
    request = BuildRequest(workload, None, candidate, TARGET, threads=1)
    built = CudaBackend().build(request)
    assert isinstance(built, CudaExecutable)
    (launch,) = built.program.launches
    assert launch.maps == program.maps[0]
    left, right = launch.maps
    assert (left.buffer, left.shape, right.buffer, right.shape) == ("A", (32, 64), "B", (64, 32))


def test_pipelines_that_cannot_be_are_refused() -> None:
    candidate = next(made_of(FEW[0], bulk=False))
    plain = with_steps(candidate, list(candidate.sketch.steps[:-1]))
    with pytest.raises(UnsupportedWorkload, match=r"'C\.k\.0', a loop of .* has no 9 stages"):
        print_kernels(ahead(plain, 9))
    with pytest.raises(UnsupportedWorkload, match=r"fills 'A\.fetch', which has one stage"):
        print_kernels(in_bulk(plain, 8))
    with pytest.raises(UnsupportedWorkload, match="does not fill .* it has no rows of 32, 64"):
        print_kernels(ahead(in_bulk(plain, 3), 2))
