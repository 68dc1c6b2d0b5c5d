"""Kernels of matrix instructions compute the reference, and compile for devices that have them.

There is no device here: the threads of a block take turns on the CPU, and what the instructions do
is written from the figures of the PTX ISA.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from convolutions import convolution
from cuda_threads import run_all, run_each
from matrix_programs import RIGHT, check, outcome_of
from printed_kernels import program_of
from tensor_products import turned_gemm

from autotune.backends.cuda import CudaBackend
from autotune.backends.cuda_compilers import find_cuda_compiler
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Workload, batch_matmul, conv2d, dense, gemm
from autotune.lower.instructions.warpgroups import SHARE
from autotune.lower.kernels import print_kernels
from autotune.lower.linear import Linear
from autotune.lower.places import Place
from autotune.lower.tensor_cores import Fragments
from autotune.sketches import Candidate, WarpTensorize
from autotune.sketches.intrinsics import find_intrinsic, result_levels
from autotune.spaces import SketchSpace
from autotune.targets import Target, resolve

WARPS, WARPGROUPS = resolve("a100-tf32"), resolve("h100-tf32")
FEW = (
    (gemm(m=50, n=44, k=52, dtype="float16"), WARPS),
    (turned_gemm("int8"), WARPS),
    (gemm(m=64, n=32, k=64, dtype="float16"), WARPGROUPS),
)
OF_WARPS = (
    gemm(m=64, n=64, k=64, dtype="float16"),
    gemm(m=64, n=64, k=96, dtype="bfloat16"),
    gemm(m=20, n=21, k=40, dtype="int8"),
    gemm(m=40, n=24, k=50),
    gemm(m=16, n=8, k=32, dtype="float16"),
    gemm(m=20, n=32, k=1024, dtype="float16"),
    dense(m=33, n=24, k=20, dtype="bfloat16"),
    dense(m=32, n=24, k=40),
    batch_matmul(b=2, m=15, n=7, k=19, dtype="float16"),
    turned_gemm("float16"),
    conv2d(h=6, w=5, ci=64, co=32, pad=1, bias=1, dtype="float16"),
    conv2d(n=2, h=9, w=7, ci=3, co=8, stride=2, bias=1, relu=1, dtype="bfloat16"),
    conv2d(h=6, w=6, ci=8, co=16, pad=1, requantize=8, dtype="int8"),
    convolution(n=2, h=7, w=6, ci=8, co=24, pad=1, bias=1),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, stride=2, pad=1, bias=1),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, pad=1, bias=1, last=1),
    convolution(h=6, w=5, ci=32, co=32, groups=4, last=1, dtype="int8"),
    convolution(h=8, w=8, ci=16, co=16, kernel=1),
)
OF_WARPGROUPS = (
    gemm(m=128, n=64, k=64, dtype="float16"),
    gemm(m=50, n=44, k=512, dtype="bfloat16"),
    gemm(m=64, n=32, k=64, dtype="int8"),
    gemm(m=50, n=20, k=30),
    dense(m=64, n=24, k=48),
    batch_matmul(b=2, m=64, n=24, k=32, dtype="bfloat16"),
    turned_gemm("float16"),
    conv2d(n=2, h=9, w=7, ci=3, co=16, stride=1, bias=1, relu=1, dtype="bfloat16"),
    conv2d(h=8, w=8, ci=16, co=24, pad=1, dtype="float16"),
    convolution(h=8, w=8, ci=64, co=64, groups=2, last=1, dtype="int8"),
)
# More threads than these take too long here.
_THREADS = 4000
_BARRIER = re.compile(r"^\s*__syncthreads\(\);$", re.MULTILINE)
_BOUNDS = re.compile(r"__launch_bounds__\((\d+), (\d+)\)")


def sampled(workload: Workload, target: Target) -> Iterator[Candidate]:
    """Candidates on tensor cores, of that target's own instructions, with few threads."""
    space = SketchSpace(workload, target, CudaBackend().limits(target))
    end = "warpgroup" if target is WARPGROUPS else "tensor-cores"
    for candidate in space.sample(90 * len(space.sketches()), np.random.default_rng(3)):
        if candidate.sketch.name.endswith(end):
            kernels = print_kernels(candidate, target).kernels
            if sum(math.prod((*it.grid, *it.block)) for it in kernels) <= _THREADS:
                yield candidate


def candidates_of(workload: Workload, target: Target) -> list[Candidate]:
    """The first of :func:`sampled` of each sketch."""
    return [*{it.sketch.name: it for it in reversed([*sampled(workload, target)])}.values()]


def meets_others(candidate: Candidate, target: Target) -> bool:
    """Tell whether several warps fetch for one another, more than once, and none ahead."""
    (kernel,) = print_kernels(candidate, target).kernels
    config = candidate.config
    waits = config.get("C.stages", 1) == 1 and config["C.k.0"] > 1
    return math.prod(kernel.block) > 32 and waits


def check_all(cases: list[tuple[Workload, Target]], folder: Path, least: int) -> None:
    programs = [
        (program_of(candidate, print_kernels(candidate, target)), target)
        for workload, target in cases
        for candidate in candidates_of(workload, target)
    ]
    assert len(programs) >= least
    found = run_all([program for program, _ in programs], folder)
    for (program, target), outputs in zip(programs, found, strict=True):
        check(program, outputs, target)


@pytest.mark.slow
def test_a_few_kernels_compute_the_reference(tmp_path: Path) -> None:
    check_all([*FEW], tmp_path, 3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("workloads", "target"),
    [
        (OF_WARPS[:9], WARPS),
        (OF_WARPS[9:], WARPS),
        (OF_WARPGROUPS[:5], WARPGROUPS),
        (OF_WARPGROUPS[5:], WARPGROUPS),
    ],
    ids=["warps", "warps-windows", "warpgroups", "warpgroups-windows"],
)
def test_kernels_of_every_sketch_compute_the_reference(
    workloads: tuple[Workload, ...], target: Target, tmp_path: Path
) -> None:
    check_all([(it, target) for it in workloads], tmp_path, len(workloads))


@pytest.mark.slow
def test_barriers_and_fences_are_needed(tmp_path: Path) -> None:
    programs = []
    for workload, target in FEW[1:]:
        candidate = next(it for it in sampled(workload, target) if meets_others(it, target))
        program = program_of(candidate, print_kernels(candidate, target))
        needed = [*_BARRIER.finditer(program.source)]
        if target is WARPS:
            # Warps take turns here: none is an iteration ahead, as the first barrier prevents.
            needed = needed[1:]
        needed += re.finditer(rf"^ *{SHARE}\(\);$", program.source, re.MULTILINE)
        for found in needed:
            without = program.source[: found.start()] + program.source[found.end() :]
            programs.append((evolve(program, source=without), target))
    assert len(programs) >= 4
    outcomes = run_each([program for program, _ in programs], tmp_path)
    for (program, target), outcome in zip(programs, outcomes, strict=True):
        assert outcome_of(program, outcome, target) != RIGHT


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize(("workload", "target"), FEW, ids=["halves", "bytes", "warpgroup"])
def test_kernels_compile_for_devices_that_have_the_instructions(
    workload: Workload, target: Target
) -> None:
    candidate, *_ = candidates_of(workload, target)
    source = print_kernels(candidate, target).source
    assert ("wgmma.mma_async" in source) == (target is WARPGROUPS)
    assert ("mma.sync" in source) == (target is WARPS)
    for architecture in ("sm_90a",) if target is WARPGROUPS else ("sm_80", "sm_90a"):
        cubin = find_cuda_compiler().compile(source, architecture, ())
        assert cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "bounds"),
    [
        pytest.param((2, 4), (4, 4), 32, (256, 2), id="registers"),
        pytest.param((4, 1), (8, 1), 16, (1024, 1), id="one-block"),
    ],
)
def test_a_kernel_says_how_many_blocks_it_leaves_registers_for(
    rows: tuple[int, int], columns: tuple[int, int], terms: int, bounds: tuple[int, int]
) -> None:
    workload = gemm(m=4096, n=4096, k=4096, dtype="float16")
    space = SketchSpace(workload, WARPS, CudaBackend().limits(WARPS))
    sketch = next(it for it in space.sketches() if it.name == "tensor-cores")
    levels = {
        "C.i": (4096 // 16 // math.prod(rows), *rows),
        "C.j": (4096 // 8 // math.prod(columns), *columns),
        "C.k": (4096 // terms, terms // 16),
    }
    tiles = {f"{axis}.{n}": it for axis, own in levels.items() for n, it in enumerate(own)}
    others = {"C.A.lanes": 8, "C.B.lanes": 8, "C.A.pad": 8, "C.B.pad": 8, "C.unroll": 512}
    config = {param.name: 1 for param in sketch.params} | tiles | others
    source = print_kernels(Candidate.from_config(sketch, config), WARPS).source
    assert [tuple(map(int, it)) for it in _BOUNDS.findall(source)] == [bounds]


def test_loops_that_are_no_tile_of_the_instruction_are_refused() -> None:
    candidate, *_ = candidates_of(gemm(m=64, n=64, k=64, dtype="float16"), WARPS)
    steps = tuple(
        evolve(step, intrinsic="mma-m16n8k32-int8") if isinstance(step, WarpTensorize) else step
        for step in candidate.sketch.steps
    )
    other = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    with pytest.raises(UnsupportedWorkload, match=r"have extents \[2, 2, 16\], a call has"):
        print_kernels(other, WARPS)


def test_results_of_a_thread_lie_fragment_after_fragment() -> None:
    call = find_intrinsic("mma-m16n8k16")
    rows, columns = (
        next(it for it in result_levels(call, axis) if (it.extent, it.stride) == own)
        for axis, own in (("i", (2, 8)), ("j", (2, 1)))
    )
    fragments = Fragments(((1, 16, rows), (0, 8, columns)))
    found = fragments.numbered([Linear((("g", 8), ("p", 1))), Linear((("f", 16), ("h", 8)))])
    assert found == [Linear((("g", 2), ("p", 1))), Linear((("f", 2), ("h", 1)))]
    assert fragments.laid_out(Place("sums", "float32", "stack", (6, 4))).strides == (1, 6)
    with pytest.raises(UnsupportedWorkload, match="results 4 apart are in other threads"):
        fragments.numbered([Linear(), Linear((("f", 4),))])
