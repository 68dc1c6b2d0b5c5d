"""Kernels on tensor cores say how many blocks a multiprocessor is to hold, so that ptxas takes the
registers that these leave."""

from __future__ import annotations

import re

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.nvcc import kernel_resources
from kernel_programs import configured, sketch_named, source_of

from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, gemm
from autotune.lower.instructions.warps import WarpTile, registers
from autotune.models.pruning.psa_symbols import corrected_symbols
from autotune.nest import derive_nest
from autotune.sketches import Candidate
from autotune.sketches.intrinsics import find_intrinsic
from autotune.spaces import SketchSpace
from autotune.targets import preset

TARGET = preset("a100")
LARGE = gemm(m=4096, n=4096, k=4096, dtype="float16")
SMALL = gemm(m=256, n=512, k=4096, dtype="float16")
BOUNDS = re.compile(r"__launch_bounds__\((\d+)(?:, (\d+))?\) main_kernel\w*\([^)]*\) \{")


def levels(axis: str, factors: tuple[int, ...]) -> dict[str, int]:
    return {f"{axis}_{level}": factor for level, factor in enumerate(factors)}


def candidate_of(
    workload: Workload, rows: tuple[int, int], columns: tuple[int, int], terms: int, stages: int
) -> Candidate:
    """Warps and fragments of a block along rows and columns; terms and stages of a fetch."""
    m, n, k = (axis.extent for axis in workload.stage("C").axes)
    of_call = 32 if workload.inputs[0].dtype == "int8" else 16
    config = {
        **levels("i", (m // rows[0] // rows[1] // 16, *rows)),
        **levels("j", (n // columns[0] // columns[1] // 8, *columns)),
        **levels("k", (k // terms, terms // of_call)),
        **dict.fromkeys(("A_lanes", "B_lanes"), 128 // of_call),
        **dict.fromkeys(("A_pad", "B_pad"), of_call // 2),
        "unroll": 512,
    }
    if of_call == 16:
        config["stages"] = stages
    return configured(sketch_named(workload, TARGET, "tensor-cores"), **config)


def bounds_of(source: str) -> list[tuple[str, ...]]:
    return [match.groups("") for match in BOUNDS.finditer(source)]


@pytest.mark.parametrize(
    ("candidate", "threads", "blocks"),
    [
        pytest.param(candidate_of(LARGE, (2, 4), (4, 4), 32, 1), 256, 2, id="registers"),
        pytest.param(candidate_of(LARGE, (2, 2), (4, 4), 64, 4), 256, 1, id="shared-memory"),
        pytest.param(candidate_of(LARGE, (4, 1), (8, 1), 16, 1), 1024, 1, id="one-block"),
        pytest.param(candidate_of(SMALL, (1, 1), (2, 4), 32, 1), 64, 2, id="blocks-of-the-grid"),
    ],
)
def test_what_limits_the_blocks_of_a_multiprocessor(
    candidate: Candidate, threads: int, blocks: int
) -> None:
    source = source_of(candidate, TARGET)
    assert bounds_of(source) == [(str(threads), str(blocks))]


def test_registers_are_those_of_the_draft_model() -> None:
    workload = gemm(m=4096, n=4096, k=4096, dtype="int8")
    candidate = candidate_of(workload, (2, 4), (4, 4), 32, 1)
    (symbols,) = corrected_symbols(
        derive_nest(candidate.sketch), TARGET, ["registers of a thread"]
    )
    tile = WarpTile(find_intrinsic("mma-m16n8k32-int8"), 4, 4, True, True)
    assert registers(tile) == evaluate(symbols[0], candidate.config) == 112


def test_kernels_without_matrix_instructions_say_nothing() -> None:
    """Nor does the second kernel of a divided reduction."""
    workload = gemm(m=32, n=32, k=4096, dtype="float16")
    space = SketchSpace(workload, TARGET, TVMBackend().limits(TARGET))
    by_name = {it.sketch.name: it for it in space.sample(40, np.random.default_rng(1))}
    assert [bool(blocks) for _, blocks in bounds_of(source_of(by_name["shared"], TARGET))] == [
        False
    ]
    divided = bounds_of(source_of(by_name["split-tensor-cores"], TARGET))
    assert [bool(blocks) for _, blocks in divided] == [True, False]


@pytest.mark.slow
@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("architecture", ["sm_90a", pytest.param("sm_80", marks=pytest.mark.long)])
def test_what_the_blocks_leave_is_taken(architecture: str) -> None:
    source = source_of(candidate_of(LARGE, (2, 4), (4, 4), 32, 3), TARGET)
    assert bounds_of(source) == [("256", "2")]
    (kernel,) = kernel_resources(source, architecture)
    (alone,) = kernel_resources(source.replace("(256, 2)", "(256)"), architecture)
    # The fragments of a step are 24 registers.
    assert alone.registers + 16 <= kernel.registers <= 65536 // (2 * 256)
    assert kernel.stack_bytes == kernel.spill_loads == 0
