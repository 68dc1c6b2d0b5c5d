"""Kernels whose factors the device's copy engine fetches: descriptors, requests, waits, results.

There is no device here: kernels run on the CPU, with the instructions that their source has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.cuda_code import cuda_source
from autotune_tvm.nvcc import kernel_resources
from autotune_tvm.scheduled import scheduled_module
from cuda_threads import Program
from fake_cuda import FakeCuda
from kernel_programs import (
    assembled,
    check_all,
    configured,
    outcomes,
    program_of,
    request_of,
    sketch_named,
    small_programs,
    source_of,
    with_changes,
    with_steps,
)
from matrix_programs import ONE_OR_MORE, RIGHT, WRONG
from tensor_products import rows_product, turned_gemm
from thinning import thinned
from tvm_lowered import check_matrices
from warpgroup_assembly import on_cpus
from workload_names import named

from autotune.backends import (
    CudaProgram,
    InvalidSchedule,
    KernelLaunch,
    TensorMap,
    find_cuda_compiler,
)
from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.workloads import Workload, batch_matmul, dense, gemm
from autotune.lower.instructions.warpgroups import WarpgroupTile
from autotune.runtime.device import shared_device
from autotune.runtime.loaded import LoadedKernels
from autotune.sketches import BulkCopy, Candidate, CandidateBatch, PipelineFetches
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import CudaError, most_shared_memory, resolve

TARGET = resolve("h100")
LABEL, PARTS = "tensor-cores-bulk", "split-tensor-cores-bulk"
WORKLOADS = (
    gemm(m=128, n=64, k=64, dtype="float16"),
    dense(m=64, n=48, k=96, dtype="bfloat16"),
    turned_gemm("float16"),
    batch_matmul(b=2, m=64, n=32, k=32, dtype="bfloat16"),
    gemm(m=50, n=48, k=56, dtype="float16"),
    rows_product("int8", 64, 32, 128),
    rows_product("int8", 70, 40, 144),
)
LONG = gemm(m=64, n=32, k=512, dtype="float16")
# What programs end with: see ``cuda_fibers.hpp``, ``cuda_warpgroups.hpp`` and ``cuda_bulk.hpp``.
STUCK, UNFENCED, CHANGED, NOT_MADE, MISCOUNTED, MISPLACED = 9, 10, 14, 16, 17, 18


def sampled(workload: Workload, count: int, label: str = LABEL) -> list[Candidate]:
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    sketch = sketch_named(workload, TARGET, label)
    rows = space.feasible_set(sketch).uniform(count, 3).tolist()
    return [Candidate(sketch, tuple(row)) for row in rows]


def programs_of(workload: Workload, count: int, label: str = LABEL) -> Iterator[Program]:
    """Programs of few threads."""
    drawn, most = sampled(workload, 60, label), 2000 if workload != LONG else 5000
    yield from small_programs(drawn, TARGET, count, most, id, rewritten=on_cpus)


def tiled(workload: Workload, stages: int, **tiles: int) -> Candidate:
    """The candidate with these tiles."""
    sketch = sketch_named(workload, TARGET, LABEL)
    return configured(sketch, **tiles, stages=stages, unroll=0)


def two_planes(stages: int = 3) -> Candidate:
    """Two warpgroups, fetches of 128 terms: each factor has two panels of 64."""
    tiles = {"i_0": 1, "i_1": 2, "i_2": 1, "j_0": 1, "j_1": 1, "j_2": 16, "k_0": 4, "k_1": 8}
    return tiled(gemm(m=128, n=128, k=512, dtype="float16"), stages, **tiles)


@pytest.mark.parametrize("most", ONE_OR_MORE)
def test_kernels_compute_the_reference(most: int, tmp_path: Path) -> None:
    count = min(most, 2)
    programs = [it for workload in WORKLOADS for it in programs_of(workload, count)]
    programs += [*programs_of(LONG, count), *programs_of(LONG, count, PARTS)]
    assert len(programs) == count * (len(WORKLOADS) + 2)
    check_all(programs, tmp_path, TARGET)


def test_every_wait_and_barrier_is_needed(tmp_path: Path) -> None:
    """Of a kernel of two warpgroups whose stages are filled again."""
    tiles = {"i_0": 1, "i_1": 2, "i_2": 1, "j_0": 1, "j_1": 1, "j_2": 2, "k_0": 4, "k_1": 1}
    candidate = tiled(gemm(m=128, n=16, k=64, dtype="float16"), 2, **tiles)
    program = program_of(candidate, TARGET, rewritten=on_cpus)
    assert program is not None
    changes: list[tuple[str, str, int | str]] = [
        ("autotune_bulk_begin(2, 2);", "", NOT_MADE),
        ("autotune_bulk_begin(2, 2); __syncthreads();", "autotune_bulk_begin(2, 2);", RIGHT),
        ("autotune_bulk_begin(2, 2);", "autotune_bulk_begin(2, 1);", MISCOUNTED),
        ("autotune_bulk_expect(0, 4096);", "autotune_bulk_expect(0, 2048);", MISCOUNTED),
        ("autotune_bulk_wait((ax7_0 & 1), (ax7_0 >> 1));", "", UNFENCED),
        ("(ax7_0 & 1), (ax7_0 >> 1)", "(ax7_0 & 1), 0", WRONG),
        # A thread that is a round ahead completes a phase that others still wait for.
        ("autotune_wgmma_wait(); __syncthreads();", "autotune_wgmma_wait();", STUCK),
        ("autotune_wgmma_wait(); __syncthreads();", "__syncthreads();", CHANGED),
        ("buf_dyn_shmem_ptr)[512]", "buf_dyn_shmem_ptr)[576]", MISPLACED),
    ]
    programs = [program, *with_changes(program, changes)]
    assert outcomes(programs, tmp_path, TARGET) == [RIGHT, *(outcome for *_, outcome in changes)]


@pytest.mark.parametrize("workload", thinned((*WORKLOADS, LONG), 3), ids=named)
def test_loops_and_memory_are_those_of_the_lowered_program(workload: Workload) -> None:
    for candidate in sampled(workload, 2):
        check_matrices(candidate, TARGET, in_boxes=True)


def test_launches_say_what_the_engine_is_told_of_tensors() -> None:
    """A box has at most 256 rows, of as many bytes as are swizzled together."""
    (launch,) = TVMBackend().lower(request_of(two_planes(), TARGET)).program.launches
    assert launch.arguments == ("A", "B", "O")
    left = TensorMap("A", "float16", (128, 512), (128, 64))
    assert launch.maps == (left, TensorMap("B", "float16", (512, 128), (128, 64)))
    assert launch.shared_bytes == 3 * (128 * 128 + 128 * 128) * 2

    wide = {"i_0": 1, "i_1": 4, "i_2": 2, "j_0": 4, "j_1": 1, "j_2": 4, "k_0": 8, "k_1": 1}
    candidate = tiled(rows_product("int8", 512, 128, 256), 2, **wide)
    lowered = TVMBackend().lower(request_of(candidate, TARGET)).program
    (launch,) = lowered.launches
    assert [it.box for it in launch.maps] == [(256, 32), (32, 32)]
    uneven = {"i_0": 1, "i_1": 1, "i_2": 1, "j_0": 1, "j_1": 3, "j_2": 11, "k_0": 4, "k_1": 1}
    candidate = tiled(rows_product("float16", 64, 264, 64), 2, **uneven)
    (launch,) = TVMBackend().lower(request_of(candidate, TARGET)).program.launches
    assert [it.box for it in launch.maps] == [(64, 16), (88, 16)]
    kernel = cuda_source(lowered, TARGET).rpartition('extern "C"')[2]
    assert kernel.count("autotune_bulk_copy_2(") == 2 * 3
    assert "const __grid_constant__ CUtensorMap A_map" in kernel


_STEP = re.compile(
    r"\b(cp\.async\.bulk|mbarrier\.init|mbarrier\.try_wait|mbarrier\.arrive|fence\.proxy\.async"
    r"|wgmma\.mma_async|wgmma\.wait_group|bar\.sync|barrier\.sync|cp\.async\.c[ag]|st\.shared)"
)


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_threads_wait_for_bytes_and_fence_nothing(tmp_path: Path) -> None:
    """Expect a barrier an iteration; products go on while the next boxes are asked for."""
    text = assembled(two_planes(), TARGET, tmp_path)
    order = [name for name, _ in groupby(_STEP.findall(text))]
    barrier = order[2]
    assert barrier in ("bar.sync", "barrier.sync")
    asked = ["mbarrier.arrive", "cp.async.bulk", "mbarrier.arrive", "cp.async.bulk"]
    waited = ["mbarrier.try_wait", "wgmma.wait_group", barrier, "wgmma.mma_async"]
    assert order[:3] == ["mbarrier.init", "fence.proxy.async", barrier]
    loop = order[order.index("mbarrier.try_wait") :]
    assert loop[: len(waited) + len(asked)] == [*waited, *asked]
    assert loop.count("wgmma.wait_group") == loop.count(barrier) + 1
    assert not {"fence.proxy.async", "st.shared", "cp.async.ca", "cp.async.cg"} & set(loop)


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("workload", thinned((*WORKLOADS, LONG), 4, 9), ids=named)
def test_the_assembler_takes_them(workload: Workload, tmp_path: Path) -> None:
    text = assembled(sampled(workload, 1)[0], TARGET, tmp_path)
    assert "cp.async.bulk.tensor." in text and "wgmma.mma_async.sync.aligned.m64n" in text


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_the_largest_tile_leaves_room_for_barriers() -> None:
    """Barriers are static, and as far in front of the tile as that has to be aligned."""
    most = most_shared_memory(TARGET)
    tiles = {"i_0": 10, "i_1": 3, "i_2": 1, "j_0": 10, "j_1": 1, "j_2": 32, "k_0": 8, "k_1": 4}
    candidate = tiled(gemm(m=1920, n=2560, k=512, dtype="float16"), 4, **tiles)
    space = SketchSpace(candidate.sketch.workload, TARGET, TVMBackend().limits(TARGET))
    assert space.contains(CandidateBatch.of([candidate]))
    (launch,) = TVMBackend().lower(request_of(candidate, TARGET)).program.launches
    assert launch.shared_bytes == most - 3 * 1024
    (resources,) = kernel_resources(source_of(candidate, TARGET), "sm_90a")
    assert resources.shared_bytes == 1024
    assert resources.spill_stores == 0


def test_one_stage_and_rows_that_are_not_swizzled_are_refused() -> None:
    candidate = two_planes()
    changes: dict[type, dict[str, object]] = {
        PipelineFetches: {"depth": const(1)},
        BulkCopy: {"row": const(8)},
    }
    messages = ("bulk copies are made ahead, in 2 stages or more", "does not lie in rows of 32,")
    for (kind, change), message in zip(changes.items(), messages, strict=True):
        with pytest.raises(InvalidSchedule, match=message):
            scheduled_module(request_of(with_steps(candidate, kind, **change), TARGET))
    call = find_intrinsic("wgmma-m64n8k16")
    with pytest.raises(InvalidValueError, match="rows of 48 bytes; allowed: 16, 32, 64, 128"):
        WarpgroupTile(call, 1, 8, 1, True, True, (48, 128))


_READS = """
struct __attribute__((aligned(64))) CUtensorMap { unsigned long long words[16]; };
extern "C" __global__ void main_kernel(
    float* __restrict__ C_ptr, const __grid_constant__ CUtensorMap A_map) {
  if (threadIdx.x == 0)
    for (int at = 0; at < 16; ++at) ((unsigned long long*)C_ptr)[at] = A_map.words[at];
}
"""


def test_a_kernel_gets_the_descriptor_that_the_driver_made(cuda: FakeCuda) -> None:
    """Of a tensor where its array lies, with pitches in bytes, the innermost extent first."""
    cubin = find_cuda_compiler().compile(_READS, "sm_90a", ())
    known = TensorMap("A", "bfloat16", (3, 50, 56), (1, 40, 32))
    launch = KernelLaunch("main_kernel", (1, 1, 1), (32, 1, 1), 0, ("C",), (known,))
    device = shared_device(TARGET)
    with device.current() as driver:
        array = driver.allocate(3 * 50 * 56 * 2)
        result = driver.allocate(128)
        loaded = LoadedKernels.load(driver, CudaProgram(cubin, (launch,)), {"A", "C"})
        loaded.launch(loaded.parameters({"A": array, "C": result}), device.stream)
        driver.synchronize(device.stream)
        words = np.zeros(16, np.uint64)
        driver.download(words, result)
        with pytest.raises(CudaError, match="cuTensorMapEncodeTiled"):
            loaded.parameters({"A": array + 8, "C": result})
        with pytest.raises(InvalidValueError, match="'main_kernel' takes 'A'; known"):
            LoadedKernels.load(driver, CudaProgram(cubin, (launch,)), {"C"})
        loaded.unload()
    extents = [56 << 16 | 32, 50 << 16 | 40, 3 << 16 | 1]
    assert words.tolist()[:10] == [array, 9 * 16 + 2, *extents, 0, 0, 0, 112, 5600]
