"""Kernels that are printed from nests compute the reference, and wait as often as they have to.

There is no device here: the threads of a block take turns on the CPU, and none sees what another
one has done before a barrier says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from cuda_threads import Program, run_all, run_each
from indexed_workloads import embedding_bag
from printed_kernels import is_right, program_of
from row_norms import layer_norm, scaled_rows
from split_reductions import SPLIT_ACROSS_BLOCKS, reduction

from autotune.backends.cuda import CudaBackend
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.lower.kernels import print_kernels
from autotune.sketches import Candidate, Sketch
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("a100")
FEW = (
    conv2d(h=13, w=11, ci=4, co=16, pad=1, stride=2, bias=1, relu=1),
    softmax(m=12, n=64),
    cumsum(m=7, n=12, axis=0),
)
MANY = (
    gemm(m=32, n=32, k=32),
    gemm(m=24, n=32, k=20, dtype="int8"),
    gemm(m=13, n=24, k=20, dtype="float64"),
    gemm(m=4, n=6, k=300),
    gemm(m=32, n=48, k=16, dtype="float16"),
    gemm(m=32, n=16, k=16, dtype="bfloat16"),
    batch_matmul(b=3, m=33, n=40, k=50),
    dense(m=3, n=5, k=256),
    dense(m=33, n=64, k=64, bias=0),
    conv2d(h=15, w=15, ci=8, co=16, kh=5, kw=3, dilation=2, stride=3),
    depthwise_conv2d(h=14, w=14, c=32, pad=1),
    softmax(m=6, n=31),
    softmax(m=12, n=256),
    scaled_rows(3, 4, 40),
    layer_norm(5, 48),
    elementwise(m=9, n=130),
    cumsum(m=40, n=9, exclusive=1),
    reduction((8, 96), (0, 1), last="sqrt"),
    embedding_bag(),
    attention(h=2, n=24, d=8),
    *SPLIT_ACROSS_BLOCKS,
)
# More threads than this are not worth their barriers here.
_BLOCK_THREADS, _GRID_THREADS = 256, 40_000
_BARRIER = re.compile(r"^\s*__syncthreads\(\);$", re.MULTILINE)


def untuned(workload: Workload) -> Candidate:
    """Loops over the axes as the workload has them."""
    return Candidate(Sketch("untuned", workload, (), (), ()), ())


def small_programs(workload: Workload) -> Iterator[tuple[Candidate, Program]]:
    """The untuned program, and one of every sketch that has few enough threads to try here."""
    space = SketchSpace(workload, TARGET, CudaBackend().limits(TARGET))
    seen: set[str] = set()
    sampled = space.sample(60, np.random.default_rng(5))
    for candidate in (untuned(workload), *sampled):
        if candidate.sketch.name in seen:
            continue
        printed = print_kernels(candidate)
        threads = [math.prod(it.block) for it in printed.kernels]
        blocks = [math.prod(it.grid) for it in printed.kernels]
        total = sum(a * b for a, b in zip(threads, blocks, strict=True))
        if 1 < max(threads) <= _BLOCK_THREADS and total <= _GRID_THREADS:
            seen.add(candidate.sketch.name)
            yield candidate, program_of(candidate, printed)


def check(workloads: tuple[Workload, ...], folder: Path, least: int) -> None:
    made = [(workload, *it) for workload in workloads for it in small_programs(workload)]
    assert len(made) >= least
    outputs = run_all([program for _, _, program in made], folder)
    for (workload, candidate, program), found in zip(made, outputs, strict=True):
        assert is_right(workload, program, found), candidate.describe()


def test_a_few_kernels_compute_the_reference(tmp_path: Path) -> None:
    check(FEW, tmp_path, least=6)


@pytest.mark.slow
def test_kernels_of_every_sketch_compute_the_reference(tmp_path: Path) -> None:
    check(MANY, tmp_path, least=60)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [gemm(m=16, n=32, k=32), softmax(m=12, n=64)])
def test_every_barrier_is_needed(workload: Workload, tmp_path: Path) -> None:
    """Without one, a thread reads what another has yet to write, or writes what it has to read."""
    programs = []
    for candidate, program in small_programs(workload):
        if candidate.sketch.name.endswith("-kept"):
            # Threads may read back what they wrote themselves.
            continue
        for found in _BARRIER.finditer(program.source):
            without = program.source[: found.start()] + program.source[found.end() :]
            programs.append(evolve(program, source=without))
    assert len(programs) >= 2
    for program, found_outputs in zip(programs, run_each(programs, tmp_path), strict=True):
        assert isinstance(found_outputs, int) or not is_right(workload, program, found_outputs)


def test_an_array_that_kernels_cannot_index_is_refused() -> None:
    with pytest.raises(UnsupportedWorkload, match="'X' has more elements than a kernel can index"):
        print_kernels(untuned(elementwise(m=1 << 16, n=1 << 15)))
