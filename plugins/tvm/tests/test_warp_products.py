"""Tensor-core sketches through TVM: they compute the reference, and nvcc writes the instructions.

There is no device here: the kernels run on the CPU, a warp's instructions lane by lane.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

pytest.importorskip("tvm")

from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.nvcc import find_nvcc, kernel_resources
from autotune_tvm.replay import schedule
from autotune_tvm.warp_source import WarpTile, function_name, function_source
from cuda_threads import Array, Program, find_compiler, run_all
from tvm_lowered import lowered_nest, numbers_of

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    batch_matmul,
    dense,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.ir.expressions import Binary, Cast, Load
from autotune.measure.validation import error_bound, relative_bound
from autotune.nest import derive_nest, nest_tape
from autotune.sketches import Candidate, WarpTensorize
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("a100")
ARCHITECTURES = ("sm_80", "sm_90a")


def turned_gemm(dtype: str) -> Workload:
    """A product whose left factor lies [k, m]."""
    axes = (Axis("i", 64), Axis("j", 32), Axis("k", 64, "reduce"))
    total = "int32" if dtype == "int8" else "float32"
    left, right = Load("A", (var("k"), var("i"))), Load("B", (var("j"), var("k")))
    body = Binary("mul", Cast(total, left), Cast(total, right))
    inputs = (Tensor("A", (64, 64), dtype), Tensor("B", (32, 64), dtype))
    stage = Stage(Tensor("C", (64, 32), total), axes, body, "add")
    return Workload("turned", inputs, (stage,), ("C",))


WORKLOADS = (
    gemm(m=64, n=64, k=64, dtype="float16"),
    gemm(m=64, n=64, k=96, dtype="bfloat16"),
    gemm(m=64, n=32, k=64, dtype="int8"),
    dense(m=64, n=48, k=64, dtype="float16"),
    batch_matmul(b=3, m=32, n=40, k=32, dtype="bfloat16"),
    turned_gemm("float16"),
    turned_gemm("int8"),
)


def named(workload: Workload) -> str:
    return f"{workload.name} {' '.join(map(str, workload.parameters.values()))}"


def sampled(workload: Workload, count: int, seed: int = 3) -> list[Candidate]:
    """Candidates of the sketch on tensor cores."""
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    drawn = space.sample(count * len(space.sketches()), np.random.default_rng(seed))
    return [candidate for candidate in drawn if candidate.sketch.name == "tensor-cores"]


def source_of(candidate: Candidate) -> str:
    workload = candidate.sketch.workload
    return TVMBackend().cuda_source(BuildRequest(workload, None, candidate, TARGET, threads=1))


def launches_of(candidate: Candidate) -> tuple[tuple[int, int], ...]:
    workload = candidate.sketch.workload
    lowered = lowered_nest(schedule(module_for(workload), candidate, workload).mod)
    return tuple((kernel.blocks, kernel.threads) for kernel in lowered.kernels)


def programs_of(workload: Workload, count: int) -> Iterator[Program]:
    """Programs that differ in the tiles of warps, with few enough threads for this machine."""
    inputs = random_inputs(workload, np.random.default_rng(7))
    seen: set[tuple[int, ...]] = set()
    for candidate in sampled(workload, 60):
        config = candidate.config
        tile = tuple(value for name, value in config.items() if name.endswith((".1", ".2")))
        launches = launches_of(candidate) if tile not in seen else ()
        if launches and sum(blocks * threads for blocks, threads in launches) <= 3000:
            seen.add(tile)
            yield Program(source_of(candidate), launches, workload, inputs)
        if len(seen) == count:
            return


@pytest.mark.slow
@pytest.mark.skipif(
    find_compiler() is None, reason="there is no g++: generated CUDA source is not run"
)
def test_kernels_compute_the_reference(tmp_path: Path) -> None:
    programs = [program for workload in WORKLOADS for program in programs_of(workload, 3)]
    assert len(programs) == 3 * len(WORKLOADS)
    assert any("_x2" in program.source for program in programs)
    for program, found in zip(programs, run_all(programs, tmp_path), strict=True):
        check(program, found)


def check(program: Program, found: dict[str, Array]) -> None:
    expected = reference_outputs(program.workload, dict(program.inputs))
    for name, array in expected.items():
        element = program.workload.tensors[name].element
        wanted, got = element.numbers(array), element.numbers(found[name])
        bound = error_bound(wanted, relative_bound(program.workload, name))
        assert np.all(np.abs(got.astype(np.float64) - wanted) <= bound), named(program.workload)
