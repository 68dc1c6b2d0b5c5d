"""int8 and bfloat16 matmul in the tile registers of AMX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.compiler import generate_code
from thinning import thinned
from tile_machine import TileMachine
from tvm_programs import BACKEND, check_exact, machine_code, need, samples
from tvm_tiles import emulated

from autotune.backends import NativeCallFailed
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    gemm,
    random_inputs,
    reference_outputs,
)
from autotune.sketches import Candidate, Tensorize
from autotune.sketches.intrinsics.tile_registers import REFUSED, REQUEST
from autotune.targets import preset
from autotune.testing.nest_interpreter import run_candidate
from autotune.testing.programs import check_candidate, check_executable, request_for

TARGET = preset("sapphirerapids").with_cores(1)

WORKLOADS = (
    gemm(m=64, n=64, k=128, dtype="u8s8s32"),
    gemm(m=32, n=40, k=192, dtype="int8"),
    gemm(m=125, n=32, k=64, requantize=9, dtype="u8s8s32"),
    conv2d(h=14, w=14, ci=64, co=32, pad=1, bias=1, relu=1, dtype="u8s8s32"),
    conv2d(h=3, w=28, ci=128, co=40, kh=1, kw=1, dtype="int8"),
    batch_matmul(b=2, m=32, n=32, k=64, dtype="u8s8s32"),
    conv2d(h=13, w=13, ci=64, co=72, pad=1, stride=2, requantize=8, dtype="u8s8s32"),
    conv2d(h=4, w=83, ci=64, co=32, kh=2, kw=1, stride=3, dtype="int8"),
)

HALVES = (
    gemm(m=64, n=64, k=128, dtype="bfloat16"),
    gemm(m=32, n=40, k=96, dtype="bfloat16"),
    conv2d(h=13, w=13, ci=32, co=40, pad=1, stride=2, bias=1, relu=1, dtype="bfloat16"),
)


def call_of(candidate: Candidate) -> Tensorize:
    (call,) = (step for step in candidate.sketch.steps if isinstance(step, Tensorize))
    return call


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (gemm(m=64, n=64, k=512, dtype="u8s8s32"), "amx-32x32x256"),
        (gemm(m=64, n=64, k=384, dtype="int8"), "amx-32x32x128-signed"),
        (gemm(m=64, n=21, k=192, dtype="u8s8s32"), "amx-32x32x64"),
        (gemm(m=125, n=64, k=64, dtype="u8s8s32"), "amx-32x32x64"),
        (gemm(m=56, n=64, k=64, dtype="int8"), "amx-28x32x64-signed"),
        (conv2d(h=28, w=28, ci=128, co=32, pad=1, dtype="u8s8s32"), "amx-28x32x128"),
        (conv2d(h=14, w=14, ci=256, co=32, kh=1, kw=1, dtype="u8s8s32"), "amx-14x32x256"),
        (conv2d(h=28, w=28, ci=64, co=32, pad=1, stride=2, dtype="u8s8s32"), "amx-14x32x64"),
        (conv2d(h=7, w=7, ci=64, co=32, pad=1, dtype="int8"), "amx-7x32x64-signed"),
        (gemm(m=48, n=64, k=64, dtype="u8s8s32"), "amx-16x32x64"),
        (gemm(m=64, n=64, k=256, dtype="bfloat16"), "amx-32x32x128-bf16"),
        (gemm(m=28, n=21, k=96, dtype="bfloat16"), "amx-28x32x32-bf16"),
        (gemm(m=40, n=64, k=64, dtype="u8s8s32"), "vnni-16x4"),
        (gemm(m=40, n=64, k=64, dtype="bfloat16"), "bf16-16x2"),
        (gemm(m=64, n=64, k=96, dtype="int8"), "vnni-16x4-signed"),
    ],
    ids=str,
)
def test_the_longest_call_that_fits(workload: Workload, name: str) -> None:
    assert {call_of(candidate).intrinsic for candidate in samples(workload, TARGET)} == {name}


def test_the_nest_computes_exact_integers() -> None:
    workload = WORKLOADS[1]
    inputs = random_inputs(workload, np.random.default_rng(1))
    expected = reference_outputs(workload, inputs)["C"]
    (candidate, *_) = samples(workload, TARGET)
    np.testing.assert_array_equal(run_candidate(candidate, inputs)["C"], expected)


@pytest.mark.parametrize("workload", thinned((*WORKLOADS, *HALVES), 4))
def test_results_in_emulation(workload: Workload) -> None:
    """On processors without these registers, too."""
    for candidate in samples(workload, TARGET):
        machine = TileMachine()
        check_executable(emulated(candidate, TARGET, machine), workload)
        assert machine.faults == [] and machine.asked == [REQUEST]
        assert machine.counts["ldtilecfg"] == machine.counts["tilerelease"] > 0


def test_a_program_that_is_refused_the_registers_fails_before_it_uses_them() -> None:
    workload, machine = WORKLOADS[0], TileMachine(grants=False)
    made = emulated(samples(workload, TARGET)[0], TARGET, machine)
    with pytest.raises(NativeCallFailed, match=re.escape(REFUSED)):
        check_executable(made, workload)
    assert machine.asked and not machine.counts


@pytest.mark.parametrize("workload", WORKLOADS)
def test_exact_for_all_bytes(workload: Workload) -> None:
    need(TARGET)
    check_exact(samples(workload, TARGET), TARGET)


@pytest.mark.parametrize("workload", HALVES)
def test_halves_are_summed_in_floats(workload: Workload) -> None:
    need(TARGET)
    for candidate in samples(workload, TARGET):
        check_candidate(BACKEND, candidate, TARGET)


_CALL = """
import sys

import numpy as np
import tvm

module = tvm.runtime.load_module(sys.argv[1])
shapes = ((64, 128), "uint8"), ((128, 64), "int8"), ((64, 64), "int32")
arguments = [tvm.runtime.tensor(np.ones(shape, dtype)) for shape, dtype in shapes]
module["main"](*arguments)
assert (arguments[2].numpy() == 128).all()
"""


def called(library: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What became of a process that calls a program, and knows nothing else of it."""
    command = [sys.executable, "-c", _CALL, str(library)]
    environment = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with calls, as TVM exports it."""
    need(TARGET)
    (candidate, *_) = samples(gemm(m=64, n=64, k=128, dtype="u8s8s32"), TARGET)
    lowered = BACKEND.lower(request_for(candidate, TARGET)).program.module
    path = tmp_path_factory.mktemp("exported") / "program.so"
    generate_code(lowered, TARGET, 1, runs_here=False)[0].export_library(str(path))
    return path


def test_a_process_that_only_loads_a_program_may_use_the_registers(library: Path) -> None:
    """Linux kills it (SIGILL) unless it asks, and whatever loads a program does not know that."""
    done = called(library)
    assert done.returncode == 0, done.stderr


def test_one_error_says_that_the_registers_are_refused(library: Path, tmp_path: Path) -> None:
    source = tmp_path / "refusing.c"
    source.write_text("long syscall(long number, ...) { return -1; }")
    refusing = tmp_path / "refusing.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(refusing), str(source)], check=True)
    done = called(library, LD_PRELOAD=str(refusing))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: Linux does not give this process the tile registers")


@pytest.mark.parametrize(
    ("workload", "instruction"),
    [(WORKLOADS[0], "tdpbusd"), (WORKLOADS[1], "tdpbssd"), (HALVES[0], "tdpbf16ps")],
    ids=("unsigned", "signed", "bfloat16"),
)
def test_the_machine_code_has_the_instruction(workload: Workload, instruction: str) -> None:
    (candidate, *_) = samples(workload, TARGET)
    text = machine_code(candidate, TARGET)
    assert len(re.findall(rf"\b{instruction}\b", text)) >= 4
    assert "ldtilecfg" in text and "tilerelease" in text
