"""Fetches ahead of time through TVM: asynchronous copies, their barriers, and what they compute.

There is no device here: the kernels run on the CPU, where a copy is made when it is waited for and
its place holds garbage until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.nvcc import kernel_resources
from autotune_tvm.replay import schedule
from autotune_tvm.scheduled import scheduled_module
from cuda_threads import Program, run_all
from kernel_programs import (
    check_all,
    configured,
    program_of,
    ptx_of,
    request_of,
    sketch_named,
    small_programs,
    source_of,
    with_steps,
)
from matrix_programs import check
from tvm_lowered import lowered_nest, numbers_of
from workload_names import named

from autotune.backends import BuildFailed, InvalidSchedule
from autotune.ir.expressions import const
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    gemm,
)
from autotune.nest import derive_nest
from autotune.sketches import Candidate, CooperativeFetch, PipelineFetches, SharedLayout
from autotune.spaces import SketchSpace
from autotune.targets import resolve

TARGET = resolve("a100-tf32")
# The default shapes, odd extents, windows with margins, batches, parts of a reduction, TF32.
WORKLOADS = (
    gemm(m=32, n=32, k=96, dtype="float16"),
    gemm(m=20, n=20, k=52, dtype="bfloat16"),
    conv2d(h=5, w=4, ci=16, co=16, pad=1, bias=1, relu=1, dtype="float16"),
    batch_matmul(b=2, m=16, n=24, k=64, dtype="float16"),
    gemm(m=20, n=32, k=1024, dtype="float16"),
    dense(m=32, n=24, k=40),
)


def sampled(workload: Workload, depths: tuple[int, ...] = (2, 3, 4)) -> Iterator[Candidate]:
    """Candidates whose fetches run ahead."""
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    for candidate in space.sample(400, np.random.default_rng(5)):
        stages = [it for name, it in candidate.config.items() if name.endswith(".stages")]
        if stages and stages[0] in depths:
            yield candidate


def depth_of(candidate: Candidate) -> int:
    return next(value for name, value in candidate.config.items() if name.endswith(".stages"))


def programs_of(workload: Workload, count: int) -> Iterator[Program]:
    """Programs of different depths, with few enough threads for this machine."""
    yield from small_programs(sampled(workload), TARGET, count, 3000, depth_of)


def large_stages() -> Candidate:
    """Three stages of 18 KiB, for one block of 64 x 64 results."""
    workload = gemm(m=64, n=64, k=256, dtype="float16")
    tiles = {"i_0": 1, "i_1": 2, "i_2": 2, "j_0": 1, "j_1": 2, "j_2": 4, "k_0": 4, "k_1": 4}
    others = {"A_lanes": 8, "B_lanes": 4, "A_pad": 8, "B_pad": 8, "stages": 3, "unroll": 0}
    return configured(sketch_named(workload, TARGET, "tensor-cores"), **tiles, **others)


@pytest.mark.slow
def test_kernels_compute_the_reference(tmp_path: Path) -> None:
    programs = [it for workload in WORKLOADS[:2] for it in programs_of(workload, 2)]
    programs += [it for workload in WORKLOADS[2:] for it in programs_of(workload, 1)]
    assert len(programs) == len(WORKLOADS) + 2
    large = program_of(large_stages(), TARGET)
    assert large is not None and large.launches == ((1, 128, 1),)
    programs.append(large)
    assert {"_if(", "autotune_copy_16"} <= {
        text for text in ("_if(", "autotune_copy_16") for it in programs if text in it.source
    }
    check_all(programs, tmp_path, TARGET)


def test_a_kernel_that_waits_too_little_is_wrong(tmp_path: Path) -> None:
    (program,) = programs_of(gemm(m=16, n=16, k=96, dtype="float16"), 1)
    _, kernel = program.source.split('extern "C"', 1)
    wait = next(n for n in range(3) if f"autotune_wait_copies_{n}();" in kernel)
    hasty = kernel.replace(
        f"autotune_wait_copies_{wait}();", f"autotune_wait_copies_{wait + 1}();"
    )
    other = evolve(program, source=program.source.replace(kernel, hasty))
    right, wrong = run_all([program, other], tmp_path)
    check(program, right, TARGET)
    with pytest.raises(AssertionError):
        check(program, wrong, TARGET)


@pytest.mark.parametrize("workload", WORKLOADS[:3], ids=named)
def test_memory_and_barriers_of_the_lowered_program(workload: Workload) -> None:
    """Each fetched part is there once a stage, and threads wait once in an iteration."""
    for drawn, _ in zip(sampled(workload), range(3), strict=False):
        whole = {name: 0 for name in drawn.config if name.endswith(".unroll")}
        candidate = Candidate.from_config(drawn.sketch, drawn.config | whole)
        found = lowered_nest(scheduled_module(request_of(candidate, TARGET)))
        allocated = [
            (buffer.scope, numbers_of(buffer.extents, candidate))
            for buffer in derive_nest(candidate.sketch).buffers
            if buffer.scope == "shared"
        ]
        there = list(zip(found.scopes, found.allocations, strict=True))
        assert Counter(allocated) == Counter(pair for pair in there if pair[0] == "shared")
        assert all(extents[0] == depth_of(candidate) for _, extents in allocated)
        source = source_of(candidate, TARGET)
        _, kernel = source.split('extern "C"', 1)
        # One ahead of the loop, one in it.
        assert kernel.count("__syncthreads()") == 2
        assert kernel.count("autotune_wait_copies_") == 1
        assert kernel.count("autotune_end_copies()") == 2


def test_rows_beyond_the_last_element_are_not_allocated() -> None:
    """Threads without an element of their own do not make it larger: 16 and 24 rows of 8."""
    workload = WORKLOADS[5]
    sketch = next(sampled(workload)).sketch
    tiles = {"i_0": 2, "i_1": 1, "i_2": 1, "j_0": 1, "j_1": 3, "j_2": 1, "k_0": 5, "k_1": 1}
    others = {"X_lanes": 1, "W_lanes": 1, "X_pad": 4, "W_pad": 4, "stages": 3, "unroll": 0}
    candidate = configured(sketch, **tiles, **others)
    found = lowered_nest(scheduled_module(request_of(candidate, TARGET)))
    there = zip(found.scopes, found.allocations, strict=True)
    assert {shape for scope, shape in there if scope == "shared"} == {(3, 16, 12), (3, 24, 12)}


def test_more_than_48_kib_are_asked_for_at_the_launch() -> None:
    candidate = large_stages()
    lowered = TVMBackend().lower(request_of(candidate, TARGET))
    (launch,) = lowered.program.launches
    (kernel,) = lowered_nest(scheduled_module(request_of(candidate, TARGET))).kernels
    assert launch.shared_bytes == kernel.shared_bytes == 3 * 2 * (64 * 72 * 2)
    small = Candidate.from_config(candidate.sketch, candidate.config | {"C.stages": 2})
    (launch,) = TVMBackend().lower(request_of(small, TARGET)).program.launches
    assert launch.shared_bytes == 0


@pytest.mark.slow
@pytest.mark.needs("nvcc")
def test_copies_are_asynchronous(tmp_path: Path) -> None:
    candidate = next(sampled(WORKLOADS[0], (3,)))
    source = source_of(candidate, TARGET)
    (kernel,) = kernel_resources(source, "sm_90a")
    assert kernel.stack_bytes == kernel.spill_loads == 0
    text = ptx_of(source, "sm_80", tmp_path)
    assert "cp.async.c" in text and "cp.async.commit_group" in text
    assert "cp.async.wait_group 1" in text
    # Nothing goes through registers.
    assert "st.shared" not in text


def refused(candidate: Candidate, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        schedule(module_for(candidate.sketch.workload), candidate, candidate.sketch.workload)


def test_pipelines_that_cannot_be_are_refused() -> None:
    candidate = next(sampled(WORKLOADS[0]))
    for depth in (0, 99):
        made = with_steps(candidate, PipelineFetches, depth=const(depth))
        refused(made, f"iterations has no {depth} stages")
    scalar = with_steps(candidate, CooperativeFetch, lanes=const(1))
    refused(scalar, "vectors of 2 bytes of A are not copied asynchronously; those of 4, 8, 16")
    turned = with_steps(candidate, SharedLayout, dims=(1, 0))
    with pytest.raises(BuildFailed, match=r"no asynchronous copy: .*A_shared"):
        source_of(turned, TARGET)
