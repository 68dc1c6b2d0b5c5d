"""int8 and bfloat16 contractions in the tile registers of AMX, run where there are none, too."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.code_generation import generate
from autotune_mlir.compiler import Lowered
from autotune_mlir.executable import MLIRExecutable, PackedOperand
from mlir_tiles import emulated, lowered, tile_instructions
from needs import skip_here
from thinning import thinned
from tile_machine import TileMachine, has_tiles

from autotune.backends import NativeCallFailed
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload, batch_matmul, conv1d, conv2d, gemm, random_inputs
from autotune.sketches import Candidate, Tensorize, prepacked_operands
from autotune.sketches.intrinsics import INTRINSICS, Intrinsic
from autotune.sketches.intrinsics.tile_registers import REFUSED, REQUEST
from autotune.targets import detect_cpu, preset
from autotune.targets.processors import missing_features
from autotune.testing.programs import check_candidate, check_executable, sample_candidates

BACKEND = MLIRBackend()
TARGET = preset("sapphirerapids").with_cores(1)
TILES = [it for it in INTRINSICS.values() if it.name.startswith("amx-")]

WORKLOADS = (
    conv2d(h=13, w=13, ci=64, co=72, pad=1, stride=2, requantize=8, dtype="u8s8s32"),
    gemm(m=64, n=64, k=128, dtype="u8s8s32"),
    gemm(m=32, n=40, k=192, dtype="int8"),
    gemm(m=125, n=32, k=64, requantize=9, dtype="u8s8s32"),
    conv2d(h=14, w=14, ci=64, co=32, pad=1, bias=1, relu=1, dtype="u8s8s32"),
    conv2d(h=3, w=28, ci=128, co=40, kh=1, kw=1, dtype="int8"),
    batch_matmul(b=2, m=32, n=32, k=64, dtype="u8s8s32"),
    conv2d(h=4, w=83, ci=64, co=32, kh=2, kw=1, stride=3, dtype="int8"),
    conv1d(w=32, ci=64, co=24, dilation=2, dtype="u8s8s32"),
)
HALVES = (
    gemm(m=64, n=64, k=128, dtype="bfloat16"),
    gemm(m=32, n=40, k=96, dtype="bfloat16"),
    conv2d(h=13, w=13, ci=32, co=40, pad=1, stride=2, bias=1, relu=1, dtype="bfloat16"),
)


def samples(workload: Workload, each: int = 1) -> list[Candidate]:
    """Random candidates that use tile registers: ``each`` times as many as there are sketches."""
    found = sample_candidates(BACKEND, workload, TARGET, each)
    assert all(call_of(candidate).startswith("amx-") for candidate in found)
    return found


def call_of(candidate: Candidate) -> str:
    (call,) = (step for step in candidate.sketch.steps if isinstance(step, Tensorize))
    return call.intrinsic


def check(candidate: Candidate, threads: int = 1, packed: Sequence[int] = ()) -> TileMachine:
    """Run a candidate in emulation, the largest numbers among its inputs, and compare results."""
    workload, machine = candidate.sketch.workload, TileMachine()
    program = lowered(candidate, threads, packed=packed)
    packers = [
        PackedOperand(it.position, it.shape, generate(it.program)) for it in program.packers
    ]
    inputs = random_inputs(workload, np.random.default_rng(1))
    for tensor in workload.inputs:
        if not element_type(tensor.dtype).is_float:
            limits = np.iinfo(tensor.dtype)
            inputs[tensor.name].flat[:6] = [limits.max] * 3 + [limits.min] * 3
    made = MLIRExecutable(emulated(program, machine), workload, packers)
    check_executable(made, workload, inputs, about=str(candidate.config))
    assert machine.faults == []
    return machine


@pytest.mark.parametrize("workload", thinned((*WORKLOADS, *HALVES), 4))
def test_results_are_those_of_the_workload(workload: Workload) -> None:
    for candidate in samples(workload):
        machine = check(candidate)
        assert any(name.startswith("tdp") for name in machine.counts)


@pytest.mark.parametrize("intrinsic", thinned(TILES, 5), ids=lambda it: it.name)
def test_every_declared_call(intrinsic: Intrinsic) -> None:
    rows, depth = intrinsic.spatial_axes[0].extent, intrinsic.reduce_axes[0].extent
    dtype = {"uint8": "u8s8s32"}.get(intrinsic.left.dtype, intrinsic.left.dtype)
    several = 3 if depth * element_type(intrinsic.left.dtype).bytes < 256 else 2
    workload = gemm(m=3 * rows if rows == 16 else rows, n=36, k=several * depth, dtype=dtype)
    candidate = samples(workload)[0]
    assert call_of(candidate) == intrinsic.name
    check(candidate)


@pytest.mark.needs("openmp")
def test_threads_configure_registers_of_their_own() -> None:
    target = TARGET.with_cores(2)
    for candidate in sample_candidates(BACKEND, gemm(m=64, n=96, k=64, dtype="int8"), target, 1):
        machine = check(candidate, threads=2)
        assert machine.counts["ldtilecfg"] == machine.counts["tilerelease"] > 1


def test_constants_are_packed_ahead() -> None:
    """Of a program without loops around its only call, too."""
    for workload in (
        gemm(m=32, n=32, k=64, dtype="u8s8s32"),
        gemm(m=64, n=40, k=128, dtype="bfloat16"),
    ):
        found = samples(workload.with_constants("B"), 4)
        ahead = [candidate for candidate in found if prepacked_operands(candidate)]
        assert ahead
        check(ahead[0], packed=[1])


def one_tile(workload: Workload, *, is_one: bool) -> Candidate:
    """A candidate whose reduce loops add to the sums of one call, or of several."""
    for candidate in samples(workload, 20):
        config = candidate.config
        around = config["C.k.0"] > 2 and config["C.k.1"] == 1
        if around and is_one == (config["C.i.2"] * config["C.j.2"] == 1):
            return candidate
    raise AssertionError("there is none")


def test_sums_stay_in_registers_over_the_reduce_loops() -> None:
    candidate = one_tile(gemm(m=64, n=64, k=256 * 6, dtype="int8"), is_one=True)
    counts = check(candidate).counts
    config = candidate.config
    calls = 2 * config["C.j.extent"] // 32
    # Each program is called twice; sums are cleared and stored once for each tile.
    assert counts["tilezero"] == counts["tilestored64"] == 2 * 4 * calls
    assert counts["ldtilecfg"] == counts["tilerelease"] == 2
    assert counts["tdpbssd"] == 2 * calls * 6 * 4 * 4


def test_sums_that_registers_cannot_hold_are_in_memory() -> None:
    candidate = one_tile(gemm(m=64, n=64, k=256 * 6, dtype="int8"), is_one=False)
    counts = check(candidate).counts
    moves = 2 * 4 * (2 * candidate.config["C.j.extent"] // 32) * candidate.config["C.k.0"]
    assert counts["tilestored64"] == moves and counts["tilezero"] == 0
    assert counts["ldtilecfg"] == 2


@pytest.mark.parametrize(
    ("dtype", "product"), [("u8s8s32", "tdpbusd"), ("int8", "tdpbssd"), ("bfloat16", "tdpbf16ps")]
)
def test_machine_code_moves_no_tile_between_products(dtype: str, product: str) -> None:
    candidate = one_tile(gemm(m=64, n=64, k=128 * 6, dtype=dtype), is_one=True)
    names = tile_instructions(lowered(candidate))
    assert set(names) >= {product} and names[0] == "ldtilecfg" and names[-1] == "tilerelease"
    assert names.count("ldtilecfg") == names.count("tilerelease") == 1
    first = names.index(product)
    last = len(names) - 1 - names[::-1].index(product)
    stores = [at for at, name in enumerate(names) if name == "tilestored"]
    # LLVM may write out loops over tiles, each with the four stores of its own.
    clears = names[:last].count("tilezero")
    assert stores[-1] > last and len(stores) == clears
    assert "tilestored" not in names[first : names.index("tilestored")]
    assert names.count("tileloadd") == 3 * names.count(product) // 4 + names.count(product) // 4


def refused_or_given(*, grants: bool) -> tuple[TileMachine, MLIRExecutable, Workload]:
    workload = gemm(m=32, n=32, k=64, dtype="u8s8s32")
    machine = TileMachine(grants=grants)
    program: Lowered = lowered(samples(workload)[0])
    return machine, MLIRExecutable(emulated(program, machine), workload), workload


def test_linux_is_asked_once_before_the_first_use() -> None:
    machine, made, workload = refused_or_given(grants=True)
    assert machine.asked == []
    for _ in range(2):
        check_executable(made, workload)
    assert machine.asked == [REQUEST] and machine.faults == []


def test_one_error_says_that_the_registers_are_refused() -> None:
    machine, made, workload = refused_or_given(grants=False)
    with pytest.raises(NativeCallFailed, match=re.escape(f"returned 1: {REFUSED}")):
        check_executable(made, workload)
    assert issubclass(NativeCallFailed, RuntimeError)
    assert machine.asked[0] == REQUEST and not machine.counts


@pytest.mark.parametrize("workload", (*WORKLOADS[:3], HALVES[1]))
def test_results_on_a_processor_with_tile_registers(workload: Workload) -> None:
    if missing_features(TARGET.features, detect_cpu().features) or not has_tiles():
        skip_here(f"it cannot run programs for {TARGET.name}")
    for candidate in samples(workload):
        check_candidate(BACKEND, candidate, TARGET)
