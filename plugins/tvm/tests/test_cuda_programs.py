"""CUDA source of random candidates: it computes the reference, and nvcc compiles it.

There is no device here. The generated kernels run on the CPU, the threads of a block in turns,
under the address sanitizer; nvcc says what they take of a GPU.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.nvcc import kernel_resources
from cuda_threads import Array, Program, run_all
from indexed_workloads import embedding_bag
from kernel_programs import check_all, kernels_of, source_of
from matrix_programs import ONE_OR_MORE
from row_norms import scaled_rows
from split_reductions import SPLIT_ACROSS_BLOCKS, reduction
from thinning import thinned
from workload_names import named

from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    random_inputs,
    softmax,
)
from autotune.nest import derive_nest, nest_tape
from autotune.networks import graph as ops
from autotune.networks.graph import Graph
from autotune.networks.passes.fuse import fuse
from autotune.sketches import Candidate
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("a100")


SMALL = (
    gemm(m=32, n=32, k=32),
    gemm(m=24, n=32, k=20, dtype="int8"),
    gemm(m=13, n=24, k=20, dtype="float64"),
    gemm(m=4, n=6, k=300),
    batch_matmul(b=3, m=33, n=40, k=50),
    dense(m=3, n=5, k=256),
    dense(m=33, n=64, k=64, bias=0),
    conv2d(h=13, w=11, ci=4, co=16, pad=1, stride=2, bias=1, relu=1),
    conv2d(h=15, w=15, ci=8, co=16, kh=5, kw=3, dilation=2, stride=3),
    depthwise_conv2d(h=14, w=14, c=32, pad=1),
    softmax(m=6, n=31),
    softmax(m=12, n=256),
    scaled_rows(3, 4, 40),
    elementwise(m=9, n=130),
    cumsum(m=7, n=40, axis=0),
    cumsum(m=40, n=9, exclusive=1),
    reduction((8, 96), (0, 1), last="sqrt"),
    embedding_bag(),
)
LARGE = (
    gemm(m=512, n=512, k=512),
    conv2d(h=28, w=28, ci=64, co=128, pad=1, bias=1, relu=1),
    softmax(m=512, n=512),
)
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")

# More threads than this are not worth their barriers here.
_BLOCK_THREADS = 256
_GRID_THREADS = 40_000
# Shared buffers start at multiples of this many bytes, and reductions across threads need some of
# their own.
_ALIGNMENT = 64
_REDUCTION_BYTES = 192


def sampled(workload: Workload, count: int) -> Iterator[Candidate]:
    """Candidates of all sketches in turn."""
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    yield from space.sample(count * len(space.sketches()), np.random.default_rng(5))


@pytest.mark.parametrize("workload", thinned(SMALL + LARGE, 3), ids=named)
def test_every_sketch_becomes_cuda_source(workload: Workload) -> None:
    for candidate in sampled(workload, 1):
        source = source_of(candidate, TARGET)
        # What threads have for themselves is no argument, which they would share.
        assert "__restrict__ in_thread" not in source
        for kernel in kernels_of(candidate):
            bound = rf"__launch_bounds__\({kernel.threads}[,)]"
            assert kernel.threads == 1 or re.search(bound, source)


@pytest.mark.parametrize("most", ONE_OR_MORE)
def test_generated_kernels_compute_the_reference(most: int, tmp_path: Path) -> None:
    """Of each sketch two programs, or one for every workload."""
    tried: Counter[str] = Counter()
    programs = []
    for workload in (*SMALL, *SPLIT_ACROSS_BLOCKS):
        known = {name for name, count in tried.items() if most == 1 and count == 2}
        for name, program in small_programs(workload, without=known):
            tried[name] += 1
            programs.append(program)
    assert sum("_rf_ptr" in program.source for program in programs) >= 2 * most
    programs += laid_out_programs(gemm(m=32, n=24, k=48))
    if most > 1:
        programs += laid_out_programs(dense(m=24, n=32, k=64))
    assert len(programs) >= 20
    check_all(programs, tmp_path, TARGET)


def test_nan_passes_through_the_larger_and_the_smaller(tmp_path: Path) -> None:
    x = ops.input_value("x", (6, 32), "float32")
    rows = ops.reduce("max", ops.clamp(x, -1, 2), [1], keepdims=False)
    graph, _ = fuse(Graph((x,), {"y": rows}), TARGET)
    (workload,) = graph.workloads
    given = np.random.default_rng(0).standard_normal((6, 32)).astype(np.float32)
    given[[1, 4], [0, 31]] = np.nan
    _, program = next(small_programs(workload, {workload.inputs[0].name: given}))
    (found,) = run_all([program], tmp_path)
    wanted = np.clip(given, -1, 2).max(axis=1)
    assert list(np.isnan(wanted)) == [False, True, False, False, True, False]
    np.testing.assert_array_equal(found[workload.outputs[0]], wanted)
    kernels = program.source.partition('extern "C"')[2]
    assert "larger(" in kernels and not re.search(r"\bf?(max|min)f?\(", kernels)


def program_of(
    candidate: Candidate, launches: tuple[tuple[int, ...], ...], inputs: Mapping[str, Array]
) -> Program:
    workload = derive_nest(candidate.sketch).workload
    return Program(source_of(candidate, TARGET), launches, workload, inputs)


def small_programs(
    workload: Workload, inputs: Mapping[str, Array] | None = None, without: Iterable[str] = ()
) -> Iterator[tuple[str, Program]]:
    """A program of every other sketch with its name, of few enough threads for this machine."""
    inputs = inputs or random_inputs(workload, np.random.default_rng(7))
    seen = set(without)
    for candidate in sampled(workload, 40):
        if candidate.sketch.name in seen:
            continue
        kernels = kernels_of(candidate)
        launches = tuple(kernel.launch for kernel in kernels)
        total = sum(map(math.prod, launches))
        most = max(kernel.threads for kernel in kernels)
        if 1 < most <= _BLOCK_THREADS and total <= _GRID_THREADS:
            seen.add(candidate.sketch.name)
            yield candidate.sketch.name, program_of(candidate, launches, inputs)


def laid_out_programs(workload: Workload) -> Iterator[Program]:
    """Programs whose rows in shared memory are padded, and fetched in vectors of every width."""
    wanted = [(name, lanes) for name in ("shared", "shared-transposed") for lanes in (1, 2, 4)]
    inputs = random_inputs(workload, np.random.default_rng(11))
    for candidate in sampled(workload, 600):
        config = candidate.config
        pads = [value for name, value in config.items() if name.endswith(".pad")]
        lanes = max(value for name, value in config.items() if name.endswith(".lanes"))
        if (candidate.sketch.name, lanes) not in wanted or not all(pads):
            continue
        launches = tuple((kernel.blocks, kernel.threads) for kernel in kernels_of(candidate))
        if 32 < sum(blocks * threads for blocks, threads in launches) <= 2048:
            wanted.remove((candidate.sketch.name, lanes))
            yield program_of(candidate, launches, inputs)
        if not wanted:
            return
    raise AssertionError(f"no candidates of {wanted}")


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("workload", thinned(LARGE, 3, 2), ids=named)
def test_what_kernels_take_of_a_gpu(workload: Workload) -> None:
    for candidate, architecture in zip(sampled(workload, 1), cycle(ARCHITECTURES), strict=False):
        kernels = kernels_of(candidate)
        source = source_of(candidate, TARGET)
        tape = nest_tape(candidate.sketch)
        row = tape.tape.evaluate(np.array([candidate.values], dtype=np.int64))[0]
        shared = int(row[tape.tape.output_index["shared_bytes"]])
        buffers = sum(buffer.scope == "shared" for buffer in tape.nest.buffers)
        slack = buffers * (_ALIGNMENT - 1) + len(workload.stages) * _REDUCTION_BYTES
        found = kernel_resources(source, architecture)
        assert len(found) == len(kernels)
        assert 0 <= sum(kernel.shared_bytes for kernel in found) - shared <= slack
        for resources, kernel in zip(found, kernels, strict=True):
            assert resources.registers <= 255
            # The launch bounds hold the compiler to what a block can have.
            assert resources.registers * kernel.threads <= TARGET.registers_per_block
