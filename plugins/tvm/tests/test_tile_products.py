"""Products in the tile registers of AMX: TVM makes the calls that are printed of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from autotune_tvm.compiler import generate_code
from tile_machine import TileMachine
from tvm_programs import BACKEND, machine_code, need, samples
from tvm_tiles import emulated

from autotune.backends import NativeCallFailed
from autotune.ir.workloads import (
    Workload,
    gemm,
)
from autotune.sketches.intrinsics.tile_registers import REFUSED, REQUEST
from autotune.targets import preset
from autotune.testing.programs import check_executable, request_for

TARGET = preset("sapphirerapids").with_cores(1)

WORKLOADS = (
    gemm(m=64, n=64, k=128, dtype="u8s8s32"),
    gemm(m=32, n=40, k=192, dtype="int8"),
)

HALVES = gemm(m=32, n=40, k=96, dtype="bfloat16")


@pytest.mark.parametrize("workload", (*WORKLOADS, HALVES))
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
    [(WORKLOADS[0], "tdpbusd"), (WORKLOADS[1], "tdpbssd"), (HALVES, "tdpbf16ps")],
    ids=("unsigned", "signed", "bfloat16"),
)
def test_the_machine_code_has_the_instruction(workload: Workload, instruction: str) -> None:
    (candidate, *_) = samples(workload, TARGET)
    text = machine_code(candidate, TARGET)
    assert len(re.findall(rf"\b{instruction}\b", text)) >= 4
    assert "ldtilecfg" in text and "tilerelease" in text
