"""Tensor-core sketches through TVM: they compute the reference, and nvcc writes the instructions.

There is no device here: the kernels run on the CPU, a warp's instructions lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.nvcc import kernel_resources
from autotune_tvm.replay import schedule
from convolutions import convolution
from cuda_threads import Program, run_all
from kernel_programs import check_all, program_of, ptx_of, small_programs, source_of, with_steps
from matrix_programs import ONE_OR_MORE, check
from tensor_products import turned_gemm
from thinning import thinned
from tvm_lowered import check_matrices
from workload_names import named

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    gemm,
)
from autotune.lower.instructions.warps import WarpTile, function_name, function_source
from autotune.sketches import Candidate, WarpTensorize
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import preset, resolve

TARGET, ROUNDING = preset("a100"), resolve("a100-tf32")
ARCHITECTURES = ("sm_80", "sm_90a")


WORKLOADS = (
    gemm(m=64, n=64, k=64, dtype="float16"),
    gemm(m=64, n=64, k=96, dtype="bfloat16"),
    gemm(m=64, n=32, k=64, dtype="int8"),
    dense(m=64, n=48, k=64, dtype="float16"),
    batch_matmul(b=3, m=32, n=40, k=32, dtype="bfloat16"),
    turned_gemm("float16"),
    turned_gemm("int8"),
    gemm(m=16, n=8, k=32, dtype="float16"),
)
UNEVEN = (
    gemm(m=50, n=44, k=52, dtype="float16"),
    gemm(m=20, n=21, k=40, dtype="int8"),
    dense(m=33, n=24, k=20, dtype="bfloat16"),
    batch_matmul(b=2, m=15, n=7, k=19, dtype="float16"),
)
FLOATS = (gemm(m=40, n=24, k=50), dense(m=32, n=24, k=40))
LONG = (
    gemm(m=20, n=32, k=1024, dtype="float16"),
    conv2d(h=6, w=5, ci=64, co=32, pad=1, bias=1, dtype="float16"),
    convolution(n=2, h=6, w=6, ci=64, co=16, pad=1, dtype="bfloat16"),
)
CONVOLUTIONS = (
    conv2d(h=7, w=6, ci=16, co=24, pad=1, dtype="float16"),
    conv2d(n=2, h=9, w=7, ci=3, co=8, stride=2, bias=1, relu=1, dtype="bfloat16"),
    conv2d(h=5, w=5, ci=16, co=16, kh=1, kw=1, dtype="float16"),
    conv2d(h=6, w=6, ci=8, co=16, pad=1, requantize=8, dtype="int8"),
)
OTHER_CONVOLUTIONS = (
    convolution(n=2, h=7, w=6, ci=8, co=24, pad=1, bias=1),
    convolution(h=6, w=6, ci=16, co=16, pad=1, dtype="int8"),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, stride=2, pad=1, bias=1),
    convolution(n=2, h=5, w=6, ci=16, co=24, groups=2, pad=1, bias=1, last=1),
    convolution(h=6, w=5, ci=32, co=32, groups=4, last=1, dtype="int8"),
    convolution(h=8, w=8, ci=16, co=16, kernel=1),
)


def sampled(workload: Workload, count: int) -> list[Candidate]:
    """Candidates of the sketch on tensor cores; of a long reduction, of the one that splits it."""
    target = ROUNDING if workload in FLOATS else TARGET
    wanted = "split-tensor-cores" if workload in LONG else "tensor-cores"
    space = SketchSpace(workload, target, TVMBackend().limits(target))
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(3))
    return [candidate for candidate in drawn if candidate.sketch.name == wanted]


def programs_of(workload: Workload, count: int) -> Iterator[Program]:
    """Programs that differ in the tiles of warps, with few enough threads for this machine."""
    yield from small_programs(sampled(workload, 60), TARGET, count, 3000, tile_of)


def tile_of(candidate: Candidate) -> tuple[int, ...]:
    return tuple(it for name, it in candidate.config.items() if name.endswith((".1", ".2")))


@pytest.mark.parametrize("most", ONE_OR_MORE)
def test_kernels_compute_the_reference(most: int, tmp_path: Path) -> None:
    counts = dict.fromkeys(WORKLOADS[:-1], 3) | dict.fromkeys((*UNEVEN, *CONVOLUTIONS, *FLOATS), 2)
    counts |= dict.fromkeys((*OTHER_CONVOLUTIONS, WORKLOADS[-1], *LONG), 1)
    wanted = {workload: min(most, count) for workload, count in counts.items()}
    programs = [it for workload, count in wanted.items() for it in programs_of(workload, count)]
    assert len(programs) == sum(wanted.values())
    assert any("_x2" in program.source for program in programs)
    check_all(programs, tmp_path, ROUNDING)


@pytest.mark.parametrize(
    "workload",
    thinned((*WORKLOADS[:4], *LONG, *UNEVEN, *CONVOLUTIONS, *OTHER_CONVOLUTIONS, *FLOATS), 2),
    ids=named,
)
def test_loops_and_memory_are_those_of_the_lowered_program(workload: Workload) -> None:
    """Stages of fetches are no matter of the schedule: see ``test_fetch_pipelines.py``."""
    for drawn in sampled(workload, 2):
        alone = {name: 1 for name in drawn.config if name.endswith(".stages")}
        check_matrices(Candidate.from_config(drawn.sketch, drawn.config | alone), TARGET)


def test_kernels_that_load_elsewhere_or_in_vectors(tmp_path: Path) -> None:
    """A fragment that is loaded from elsewhere does not go unnoticed.

    Weights of windows are fetched in vectors, also where a fetch has a multiple of three terms.
    """
    (program,) = programs_of(gemm(m=16, n=16, k=64, dtype="int8"), 1)
    moved = evolve(program, source=program.source.replace("row + (matrix & 1) * 8", "row"))
    assert moved.source != program.source
    windows = weights_in_vectors()
    right, wrong, found = run_all([program, moved, windows], tmp_path)
    check(program, right, ROUNDING)
    check(windows, found, ROUNDING)
    with pytest.raises(AssertionError):
        check(program, wrong, ROUNDING)


def weights_in_vectors() -> Program:
    """A convolution that fetches nine weights in three parts."""
    workload = convolution(h=6, w=6, ci=32, co=16, pad=1)
    candidate = next(
        it
        for it in sampled(workload, 90)
        if math.gcd(16 * it.config["Y.terms.1"], 9) == 3 and it.config["Y.Y_weights.lanes"] == 8
    )
    program = program_of(candidate, TARGET)
    assert program is not None
    assert "*(uint4*)(W_ptr" in program.source and "make_uint4(W_ptr" not in program.source
    return program


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize(
    "workload",
    thinned(
        (
            WORKLOADS[0],
            WORKLOADS[2],
            UNEVEN[0],
            CONVOLUTIONS[1],
            FLOATS[0],
            *OTHER_CONVOLUTIONS[2:4],
        ),
        4,
        9,
    ),
    ids=named,
)
def test_kernels_use_tensor_cores(workload: Workload, tmp_path: Path) -> None:
    candidate = sampled(workload, 1)[0]
    source = source_of(candidate, TARGET)
    (kernel,) = kernel_resources(source, ARCHITECTURES[1])
    assert kernel.stack_bytes == kernel.spill_loads == 0
    text = ptx_of(source, ARCHITECTURES[0], tmp_path)
    instructions = {
        "float16": "m16n8k16.row.col.f32.f16.f16.f32",
        "bfloat16": "m16n8k16.row.col.f32.bf16.bf16.f32",
        "int8": "m16n8k32.row.col.s32.s8.s8.s32",
        "float32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    }
    assert f"mma.sync.aligned.{instructions[workload.inputs[0].dtype]}" in text
    assert "ldmatrix.sync.aligned.m8n8" in text


def test_one_function_serves_every_call_of_a_tile() -> None:
    """Instructions that several tiles share are defined once in a file."""
    call = find_intrinsic("mma-m16n8k16")
    tiles = [WarpTile(call, down, 2, True, False) for down in (1, 2)]
    assert len({function_name(tile) for tile in tiles}) == 2
    text = "".join(function_source(tile) for tile in tiles)
    assert text.count("#ifndef AUTOTUNE_MMA_M16N8K16\n") == 2
    assert "_trans" in text and function_name(tiles[0]).endswith("1x2_kr")


def test_declarations_without_fragments_or_names_in_ptx_are_refused() -> None:
    wmma = find_intrinsic("wmma-16x16x16")
    with pytest.raises(InvalidValueError, match="declares no fragment of operand 'data'"):
        function_source(WarpTile(wmma, 1, 1, True, True))
    call = find_intrinsic("mma-m16n8k16")
    wide = evolve(call, result=evolve(call.result, dtype="float64"))
    with pytest.raises(InvalidValueError, match="matrix instructions of float64 are not written"):
        function_source(WarpTile(wide, 1, 1, True, True))
    for name in ("mma-m16n8k32-int8", "mma-m16n8k8-tf32"):
        # Matrices of two-byte elements alone are transposed as they are loaded.
        with pytest.raises(InvalidValueError, match="must lie along the reduction"):
            WarpTile(find_intrinsic(name), 1, 1, True, False)


def test_a_step_that_is_no_tile_of_warps_is_invalid() -> None:
    candidate = sampled(WORKLOADS[0], 1)[0]
    other = with_steps(candidate, WarpTensorize, intrinsic="mma-m16n8k32-int8")
    with pytest.raises(InvalidSchedule, match=r"have extents \[2, 2, 16\], a call has"):
        schedule(module_for(WORKLOADS[0]), other, WORKLOADS[0])


def test_imported_programs_with_64_bit_indices() -> None:
    """Relax makes such programs: what is scheduled has 64-bit indices, what is built has none."""
    from tvm import te, tirx

    m, n, k = (tirx.IntImm("int64", extent) for extent in (64, 32, 64))
    left, right = te.placeholder((m, k), "float16", "A"), te.placeholder((n, k), "float16", "W")
    reduced = te.reduce_axis((0, k), "k")

    def product(i: Any, j: Any) -> Any:
        factors = left[i, reduced].astype("float32"), right[j, reduced].astype("float32")
        return te.sum(factors[0] * factors[1], axis=reduced)

    sums = te.compute((m, n), product, "C")
    halves = te.compute((m, n), lambda i, j: sums[i, j].astype("float16"), "D")
    backend = TVMBackend()
    imported = backend.import_program(te.create_prim_func([left, right, halves]))
    drawn = next(it for it in sampled(imported.workload, 9) if it.config["C.k.0"] > 1)
    for stages in (1, 2):
        candidate = Candidate.from_config(drawn.sketch, drawn.config | {"C.stages": stages})
        request = BuildRequest(imported.workload, imported.program, candidate, TARGET, threads=1)
        source = backend.cuda_source(request)
        _, kernel = source.split('extern "C"', 1)
        assert "autotune_mma_m16n8k16" in kernel
        assert ("autotune_copy_" in kernel) == (stages > 1)
        assert "int64" not in kernel


@pytest.mark.parametrize("last", [False, True])
def test_imported_convolutions_in_groups(last: bool) -> None:
    """TVM's own, whose data are read at the quotient of a channel."""
    from tvm import te, topi

    images, kernels = ((2, 8, 8, 32), (3, 3, 16, 48)) if last else ((2, 32, 8, 8), (48, 16, 3, 3))
    data = te.placeholder(images, "float16", "X")
    weights = te.placeholder(kernels, "float16", "W")
    compute = topi.nn.group_conv2d_nhwc if last else topi.nn.group_conv2d_nchw
    made = compute(data, weights, 1, 1, 1, 2, "float32")
    backend = TVMBackend()
    imported = backend.import_program(te.create_prim_func([data, weights, made]))
    (candidate, *_) = sampled(imported.workload, 4)
    request = BuildRequest(imported.workload, imported.program, candidate, TARGET, threads=1)
    assert "autotune_mma_m16n8k16" in backend.cuda_source(request)
