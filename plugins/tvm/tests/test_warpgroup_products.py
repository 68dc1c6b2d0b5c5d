"""Sketches on the tensor cores of warpgroups through TVM: what ``wgmma`` is given and computes.

There is no device here: kernels run on the CPU, with the instructions that their source has.
"""

from __future__ import annotations

import math
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

pytest.importorskip("tvm")

from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.nvcc import find_nvcc, kernel_resources
from autotune_tvm.replay import schedule
from autotune_tvm.warpgroup_source import WarpgroupTile, function_name, function_source
from convolutions import convolution
from cuda_threads import Program, find_compiler, run_all
from tensor_core_products import check, source_of, turned_gemm
from thinning import thinned
from tvm_lowered import lowered_nest, numbers_of
from warpgroup_assembly import on_cpus
from workload_names import named

from autotune.backends import BuildRequest, CudaExecutable, InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    gemm,
    random_inputs,
)
from autotune.nest import derive_nest, nest_tape
from autotune.sketches import Candidate, CoreMatrices
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("h100")
ARCHITECTURE = "sm_90a"


WORKLOADS = (
    gemm(m=128, n=64, k=64, dtype="float16"),
    dense(m=64, n=48, k=96, dtype="bfloat16"),
    turned_gemm("float16"),
    batch_matmul(b=2, m=64, n=24, k=32, dtype="bfloat16"),
    gemm(m=64, n=32, k=64, dtype="int8"),
    gemm(m=50, n=44, k=52, dtype="float16"),
    conv2d(n=2, h=9, w=7, ci=3, co=16, stride=1, bias=1, relu=1, dtype="bfloat16"),
    conv2d(h=8, w=8, ci=16, co=24, pad=1, dtype="float16"),
    convolution(n=2, h=9, w=9, ci=16, co=64, pad=1, bias=1),
    convolution(h=8, w=8, ci=32, co=128, groups=2, pad=1),
    convolution(h=8, w=8, ci=64, co=64, groups=2, last=1, dtype="int8"),
)


def sampled(workload: Workload, count: int) -> list[Candidate]:
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(3))
    return [candidate for candidate in drawn if candidate.sketch.name == "tensor-cores-warpgroup"]


def programs_of(workload: Workload, count: int) -> Iterator[Program]:
    """Programs that differ in their tiles, with few enough threads for this machine."""
    inputs = random_inputs(workload, np.random.default_rng(7))
    seen: set[tuple[int, ...]] = set()
    for candidate in sampled(workload, 60):
        config = candidate.config
        tile = tuple(value for name, value in config.items() if name.endswith((".1", ".2", "pad")))
        if tile in seen:
            continue
        (kernel,) = lowered_nest(schedule(module_for(workload), candidate, workload).mod).kernels
        if kernel.blocks * kernel.threads <= 2000:
            seen.add(tile)
            launches = ((kernel.blocks, kernel.threads),)
            yield Program(on_cpus(source_of(candidate, TARGET)), launches, workload, inputs)
        if len(seen) == count:
            return


@pytest.mark.slow
@pytest.mark.skipif(find_compiler() is None, reason="there is no g++: no kernel is run")
def test_kernels_compute_the_reference(tmp_path: Path) -> None:
    programs = [it for workload in WORKLOADS for it in programs_of(workload, 2)]
    assert len(programs) == 2 * len(WORKLOADS)
    for program, found in zip(programs, run_all(programs, tmp_path), strict=True):
        check(program, found, TARGET)


@pytest.mark.skipif(find_compiler() is None, reason="there is no g++: no kernel is run")
def test_one_kernel_computes_the_reference(tmp_path: Path) -> None:
    (program,) = programs_of(gemm(m=64, n=16, k=32, dtype="float16"), 1)
    # Core matrices that are described elsewhere do not go unnoticed, nor a group not waited for.
    right_step = "b + (s * 256 >> 4)"
    assert right_step in program.source
    moved = evolve(program, source=program.source.replace(right_step, "b"))
    early = evolve(program, source=program.source.replace("warpgroup::wait(0);", ""))
    right, *wrong = run_all([program, moved, early], tmp_path)
    check(program, right, TARGET)
    for found in wrong:
        with pytest.raises(AssertionError):
            check(program, found, TARGET)


@pytest.mark.slow
@pytest.mark.skipif(find_compiler() is None, reason="there is no g++: no kernel is run")
def test_registers_that_are_not_fenced_end_the_program(tmp_path: Path) -> None:
    (program,) = programs_of(gemm(m=64, n=8, k=16, dtype="float16"), 1)
    unfenced = program.source.replace("warpgroup::self().proxy_fenced = true;", "")
    with pytest.raises(RuntimeError, match="ended with 10"):
        run_all([evolve(program, source=unfenced)], tmp_path)


@pytest.mark.parametrize("workload", thinned(WORKLOADS, 3), ids=named)
def test_loops_and_memory_are_those_of_the_lowered_program(workload: Workload) -> None:
    for candidate in sampled(workload, 4):
        lowered = lowered_nest(schedule(module_for(workload), candidate, workload).mod)
        nest = derive_nest(candidate.sketch)
        stores = [
            numbers_of((loop.extent for loop in statement.loops), candidate)
            for statement in nest.statements
            if not statement.intrinsic
        ]
        assert Counter(stores) == Counter(lowered.stores)
        allocated = [
            (buffer.scope, extents if buffer.scope == "shared" else math.prod(extents))
            for buffer in nest.buffers
            for extents in [numbers_of(buffer.shape, candidate)]
        ]
        found = [
            (scope, extents if scope == "shared" else math.prod(extents))
            for scope, extents in zip(lowered.scopes, lowered.allocations, strict=True)
        ]
        assert Counter(allocated) == Counter(found)
        tape = nest_tape(candidate.sketch)
        row = tape.tape.evaluate(np.array([candidate.values], dtype=np.int64))[0]
        value = {name: int(row[column]) for name, column in tape.tape.output_index.items()}
        for name in ("shared_bytes", "local_bytes"):
            assert value[name] == sum(getattr(kernel, name) for kernel in lowered.kernels)


def fetched_lanes(candidate: Candidate) -> int:
    return sum(value for name, value in candidate.config.items() if name.endswith(".lanes"))


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc: nothing is assembled")
@pytest.mark.parametrize(
    "workload", thinned((WORKLOADS[0], WORKLOADS[1], WORKLOADS[4]), 3), ids=named
)
def test_the_assembler_takes_them(workload: Workload, tmp_path: Path) -> None:
    """And does not serialise them (its warning C7510), as where registers are used in between."""
    widest = max(sampled(workload, 4), key=fetched_lanes)
    source = source_of(widest, TARGET)
    (kernel,) = kernel_resources(source, ARCHITECTURE)
    assert kernel.stack_bytes == kernel.spill_loads == 0
    code, assembly = tmp_path / "kernel.cu", tmp_path / "kernel.ptx"
    code.write_text(source)
    command = ["nvcc", "-ptx", f"-arch={ARCHITECTURE}", "-w", "-o", str(assembly), str(code)]
    subprocess.run(command, check=True, capture_output=True)
    text = assembly.read_text()
    assert "wgmma.mma_async.sync.aligned.m64n" in text
    assert "st.shared.v4" in text and ".local" not in text
    cubin = tmp_path / "kernel.cubin"
    command = ["nvcc", "-cubin", f"-arch={ARCHITECTURE}", "-o", str(cubin), str(assembly)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "GMMA" not in (done.stderr + done.stdout).upper()


def test_instructions_that_there_are_not_are_refused() -> None:
    call = find_intrinsic("wgmma-m64n8k16")
    with pytest.raises(InvalidValueError, match="no instruction has 264 columns"):
        WarpgroupTile(call, 1, 33, 1, True, True)
    bytes_of = find_intrinsic("wgmma-m64n8k32-int8")
    with pytest.raises(InvalidValueError, match="no instruction has 40 columns"):
        WarpgroupTile(bytes_of, 1, 5, 1, True, True)
    with pytest.raises(InvalidValueError, match="s8 must lie along the reduction"):
        WarpgroupTile(bytes_of, 1, 8, 1, True, False)
    with pytest.raises(InvalidValueError, match="'mma-m16n8k16' is no wgmma of float16,"):
        WarpgroupTile(find_intrinsic("mma-m16n8k16"), 1, 8, 1, True, True)


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc: nothing is built")
def test_programs_are_built_for_the_preset() -> None:
    """It is of sm_90, whose own code has no such instructions."""
    candidate = sampled(WORKLOADS[0], 1)[0]
    request = BuildRequest(WORKLOADS[0], None, candidate, TARGET, threads=1)
    backend = TVMBackend()
    built = backend.compile(backend.lower(request))
    assert isinstance(built, CudaExecutable)
    assert built.program.cubin.startswith(b"\x7fELF")


def test_other_architectures_are_refused() -> None:
    candidate = sampled(WORKLOADS[0], 1)[0]
    request = BuildRequest(WORKLOADS[0], None, candidate, preset("a100"), threads=1)
    message = "'wgmma-m64n8k16' is an instruction from sm_90 to sm_90; target 'a100' is sm_80$"
    with pytest.raises(InvalidSchedule, match=message):
        TVMBackend().cuda_source(request)


def test_one_instruction_serves_every_tile_of_its_columns() -> None:
    call = find_intrinsic("wgmma-m64n8k16-bf16")
    tiles = [WarpgroupTile(call, down, 16, 2, True, False) for down in (1, 2)]
    assert len({function_name(tile) for tile in tiles}) == 2
    texts = [function_source(tile) for tile in tiles]
    for text in texts:
        assert text.count("#ifndef AUTOTUNE_WGMMA_M64N128K16_BF16_01\n") == 1
        assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 4}, "'A.fetch' does not lie in rows of 16 bytes"),
        ({"dim": 2}, "2 is none of the dimensions of a matrix"),
        ({"pad": const(-1)}, "planes cannot be padded by -1 rows"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_layouts_that_no_warpgroup_reads_are_invalid(
    change: dict[str, object], message: str
) -> None:
    candidate = sampled(WORKLOADS[0], 1)[0]
    steps = tuple(
        evolve(step, **change) if isinstance(step, CoreMatrices) and step.operand == "A" else step
        for step in candidate.sketch.steps
    )
    other = evolve(candidate, sketch=evolve(candidate.sketch, steps=steps))
    with pytest.raises((InvalidSchedule, InvalidValueError), match=message):
        schedule(module_for(WORKLOADS[0]), other, WORKLOADS[0])
