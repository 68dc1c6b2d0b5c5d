"""Sketches on the tensor cores of warpgroups through TVM: what ``wgmma`` is given and computes.

There is no device here: kernels run on the CPU, with the instructions that their source has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.replay import schedule
from convolutions import convolution
from cuda_threads import Program, run_all
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
from matrix_programs import ONE_OR_MORE, RIGHT, WRONG, check
from tensor_products import turned_gemm
from thinning import thinned
from tvm_lowered import check_matrices
from warpgroup_assembly import on_cpus
from workload_names import named

from autotune.backends import CudaExecutable, InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    gemm,
)
from autotune.lower.instructions.warpgroups import WarpgroupTile, function_name, function_source
from autotune.sketches import Candidate, CoreMatrices
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import preset, resolve

TARGET = resolve("h100-tf32")

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
    dense(m=64, n=24, k=48),
    gemm(m=50, n=20, k=30),
    conv2d(h=8, w=8, ci=4, co=8, pad=1),
)
LONG = (
    gemm(m=64, n=32, k=512, dtype="float16"),
    gemm(m=50, n=44, k=512, dtype="bfloat16"),
    convolution(h=8, w=8, ci=64, co=32, pad=1, bias=1),
    dense(m=64, n=32, k=512),
    gemm(m=64, n=32, k=512, dtype="int8"),
)


def sampled(workload: Workload, count: int) -> list[Candidate]:
    """Candidates for warpgroups; of a long reduction, of the sketch that splits it."""
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    wanted = "split-tensor-cores-warpgroup" if workload in LONG else "tensor-cores-warpgroup"
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(3))
    return [candidate for candidate in drawn if candidate.sketch.name == wanted]


def depth_of(candidate: Candidate) -> int:
    """Iterations that have what they fetch in memory at once."""
    return next((it for name, it in candidate.config.items() if name.endswith(".stages")), 1)


def programs_of(
    workload: Workload, count: int, depths: tuple[int, ...] = (1, 2, 3, 4)
) -> Iterator[Program]:
    """Programs that differ in their tiles, with few enough threads for this machine."""
    drawn = [candidate for candidate in sampled(workload, 60) if depth_of(candidate) in depths]
    most = 5000 if workload in LONG else 2000
    yield from small_programs(drawn, TARGET, count, most, tile_of, rewritten=on_cpus)


def tile_of(candidate: Candidate) -> tuple[int, ...]:
    ends = (".1", ".2", "pad")
    return tuple(value for name, value in candidate.config.items() if name.endswith(ends))


def large_stages() -> Candidate:
    """Two stages of 40 KiB, for one block of 64 x 256 results."""
    workload = gemm(m=64, n=256, k=128, dtype="float16")
    tiles = {"i_0": 1, "i_1": 1, "i_2": 1, "j_0": 1, "j_1": 1, "j_2": 32, "k_0": 2, "k_1": 4}
    others = {"A_lanes": 8, "B_lanes": 8, "A_pad": 0, "B_pad": 0, "stages": 2, "unroll": 0}
    sketch = sketch_named(workload, TARGET, "tensor-cores-warpgroup")
    return configured(sketch, **tiles, **others)


@pytest.mark.parametrize("most", ONE_OR_MORE)
def test_kernels_compute_the_reference(most: int, tmp_path: Path) -> None:
    count = min(most, 2)
    programs = [it for workload in WORKLOADS for it in programs_of(workload, count)]
    assert len(programs) == count * len(WORKLOADS)
    ahead = [it for workload in WORKLOADS for it in programs_of(workload, 1, (2, 3, 4))]
    assert len(ahead) == 9
    parts = [it for workload in LONG for it in programs_of(workload, 1)]
    assert [len(it.launches) for it in parts] == [2] * len(LONG)
    large = program_of(large_stages(), TARGET, rewritten=on_cpus)
    assert large is not None and large.launches == ((1, 128, 1),)
    ahead.append(large)
    kernels = "".join(it.source.split('extern "C"', 1)[1] for it in ahead)
    called = set(re.findall(r"autotune_\w+", kernels))
    assert {"autotune_copy_16", "autotune_copy_4_if", "autotune_round_4_if"} <= called
    check_all([*programs, *ahead, *parts], tmp_path, TARGET)


def test_one_kernel_computes_the_reference(tmp_path: Path) -> None:
    drawn = programs_of(gemm(m=64, n=16, k=32, dtype="float16"), 4, (1,))
    program = next(it for it in drawn if "s < 2;" in it.source)
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


UNFENCED, UNSHARED, CHANGED, CUT_OFF = 10, 13, 14, 15
"""Exit codes of programs: see ``cuda_warpgroups.hpp``."""

_WAIT, _BARRIER = "autotune_wgmma_wait();", "__syncthreads();"
_SHARE, _END = "autotune_wgmma_share();", "autotune_wgmma_end<4>("
_STORED = ((_SHARE, "", UNFENCED), (f"{_SHARE} {_BARRIER}", _SHARE, WRONG))
_ENDED = f"{_END}(&(C_reindex_local_ptr[0])));"
_ROUNDED = (
    (f"{_ENDED} {_BARRIER}", _ENDED, WRONG),
    ("autotune_round_4((&(B_shared", "unrounded((&(B_shared", CUT_OFF),
)
_COPIED = (
    ("autotune_wait_copies_0();", "", WRONG),
    (_SHARE, "", UNFENCED),
    (f"{_SHARE} {_WAIT} {_BARRIER}", f"{_WAIT} {_BARRIER} {_SHARE}", UNSHARED),
    (f"{_SHARE} {_WAIT} {_BARRIER}", f"{_SHARE} {_WAIT}", WRONG),
    (_WAIT, "", CHANGED),
    (f"{_WAIT} {_BARRIER}", f"{_BARRIER} {_WAIT}", CHANGED),
    (_END, "static_cast<void>(", WRONG),
)


_UNROUNDED = "inline void unrounded(void* to, const void* from) { std::memcpy(to, from, 4); }"


@pytest.mark.slow
def test_every_wait_fence_and_barrier_is_needed(tmp_path: Path) -> None:
    halves, floats = gemm(m=64, n=8, k=64, dtype="float16"), gemm(m=64, n=8, k=32)
    programs, expected = list[Program](), list[int | str]()
    for workload, depth, changes in (
        (halves, 1, _STORED),
        (halves, 2, _COPIED),
        (floats, 1, _ROUNDED),
    ):
        drawn = programs_of(workload, 6, (depth,))
        program = next(it for it in drawn if "for (int ax7_0 = 0" in it.source)
        programs += [program, *with_changes(program, changes, _UNROUNDED)]
        expected += [RIGHT, *(outcome for *_, outcome in changes)]
    assert outcomes(programs, tmp_path, TARGET) == expected


@pytest.mark.parametrize("workload", thinned((*WORKLOADS, *LONG), 3), ids=named)
def test_loops_and_memory_are_those_of_the_lowered_program(workload: Workload) -> None:
    for candidate in sampled(workload, 2):
        check_matrices(candidate, TARGET)


def fetched_lanes(candidate: Candidate) -> int:
    return sum(value for name, value in candidate.config.items() if name.endswith(".lanes"))


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize(
    "workload", thinned((WORKLOADS[0], WORKLOADS[1], WORKLOADS[4], LONG[0]), 3), ids=named
)
def test_the_assembler_takes_them(workload: Workload, tmp_path: Path) -> None:
    """And does not serialise them (its warning C7510), as where registers are used in between."""
    waiting = [it for it in sampled(workload, 12) if depth_of(it) == 1]
    text = assembled(max(waiting, key=fetched_lanes), TARGET, tmp_path)
    assert "wgmma.mma_async.sync.aligned.m64n" in text and "st.shared.v4" in text


_STEP = re.compile(
    r"\b(cp\.async(?=\.c[ag])|cp\.async\.wait_group|fence\.proxy\.async|wgmma\.mma_async"
    r"|wgmma\.wait_group|bar\.sync|barrier\.sync|st\.shared)"
)


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_products_are_on_their_way_while_the_next_fetch_begins(tmp_path: Path) -> None:
    """Expect a barrier an iteration; nothing that is fetched goes through registers."""
    order = [
        name for name, _ in groupby(_STEP.findall(assembled(large_stages(), TARGET, tmp_path)))
    ]
    barrier = order[0]
    assert barrier.endswith("sync")
    arrived = ["cp.async.wait_group", "fence.proxy.async", "wgmma.wait_group", barrier]
    first, last = [*arrived, "wgmma.mma_async", "cp.async"], [*arrived, "wgmma.mma_async"]
    assert order == [barrier, "cp.async", *first, *last, "wgmma.wait_group"]


def test_stages_beyond_48_kib_are_asked_for_at_the_launch() -> None:
    candidate = large_stages()
    (launch,) = TVMBackend().lower(request_of(candidate, TARGET)).program.launches
    assert launch.shared_bytes == 2 * (64 + 256) * 64 * 2
    alone = Candidate.from_config(candidate.sketch, candidate.config | {"C.stages": 1})
    (launch,) = TVMBackend().lower(request_of(alone, TARGET)).program.launches
    assert launch.shared_bytes == 0


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


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_programs_are_built_for_the_preset() -> None:
    """The preset is of sm_90, whose own code has no such instructions."""
    candidate = sampled(WORKLOADS[0], 1)[0]
    backend = TVMBackend()
    built = backend.compile(backend.lower(request_of(candidate, TARGET)))
    assert isinstance(built, CudaExecutable)
    assert built.program.cubin.startswith(b"\x7fELF")


def test_other_architectures_are_refused() -> None:
    candidate = sampled(WORKLOADS[0], 1)[0]
    message = "'wgmma-m64n8k16' is an instruction from sm_90 to sm_90; target 'a100' is sm_80$"
    with pytest.raises(InvalidSchedule, match=message):
        source_of(candidate, preset("a100"))


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
    other = with_steps(candidate, CoreMatrices, operand="A", **change)
    with pytest.raises((InvalidSchedule, InvalidValueError), match=message):
        schedule(module_for(WORKLOADS[0]), other, WORKLOADS[0])
