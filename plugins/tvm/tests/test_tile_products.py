"""Products in the tile registers of AMX: TVM makes the calls that are printed of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tvm
from autotune_tvm.backend import argument_names_of
from autotune_tvm.compiler import generate_code, lower_module, without_checks
from autotune_tvm.executable import TVMExecutable
from autotune_tvm.linked_text import linked, with_functions
from autotune_tvm.printed import printed_functions
from tile_machine import INTRINSICS, TileMachine
from tvm import tirx
from tvm_ffi import structural_map
from tvm_programs import BACKEND, machine_code, need, samples

from autotune.backends import NativeCallFailed
from autotune.ir.workloads import (
    Workload,
    gemm,
)
from autotune.sketches import Candidate
from autotune.sketches.intrinsics.tile_registers import REFUSED, REQUEST
from autotune.targets import Target, detect_cpu, preset
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
    """Call a program in a process that knows nothing else of it."""
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


_PREFIX = "emulated_"
_TYPES = {"c_ubyte": "i8", "c_long": "i64", "c_void_p": "ptr"}
_SYSCALL = "@syscall("


def emulated(
    candidate: Candidate, target: Target, machine: TileMachine, threads: int = 1
) -> TVMExecutable:
    """A candidate that calls ``machine`` in place of instructions on tile registers.
    Args:
        candidate: What is scheduled for ``target``.
        target: One with tile registers.
        machine: Has to be kept as long as the program.
        threads: On how many threads the program runs.
    """
    request = request_for(candidate, target, threads)
    module, packed = printed_functions(request).module()
    here = detect_cpu().with_cores(threads)
    lowered = with_functions(
        without_checks(lower_module(module, here, threads)),
        lambda function: function.with_body(_emulated(function.body, machine)),
    )
    module, digest = generate_code(lowered, here, threads)
    workload = candidate.sketch.workload
    return TVMExecutable(module, workload, argument_names_of(request), threads, digest, packed)


def _emulated(body: Any, machine: TileMachine) -> Any:
    addresses = machine.addresses
    called: set[str] = set()

    def changed(node: Any) -> Any:
        name = _intrinsic(node).removeprefix("llvm.x86.")
        if name not in INTRINSICS:
            return node
        called.add(name)
        arguments = list(node.value.args)[1:]
        return tirx.Evaluate(tirx.call_extern("int32", f"{_PREFIX}{name}", *arguments))

    def granted(node: Any) -> Any:
        if not isinstance(node.value, tvm.ir.StringImm) or _SYSCALL not in node.value.value:
            return node
        text = node.value.value.replace("declare i64 @syscall(i64, ...)\n", "")
        place = f"inttoptr (i64 {addresses['syscall']} to ptr)("
        asking = tvm.ir.StringImm(text.replace(_SYSCALL, place))
        return tirx.AttrStmt(node.node, node.attr_key, asking, node.body)

    found = body
    for kind, change in (
        (tirx.Evaluate, changed),
        (tirx.AttrStmt, granted),
    ):
        found = structural_map(found, (kind, change))
    definitions = [_definition(name, addresses[name]) for name in sorted(called)]
    return linked(found, definitions)


def _intrinsic(node: Any) -> str:
    """Name of the LLVM intrinsic that a statement calls; empty where it calls something else."""
    call, operator = node.value, tvm.ir.Op.get("tirx.call_llvm_intrin")
    if not isinstance(call, tvm.ir.Call) or not call.op.same_as(operator):
        return ""
    return str(tvm.target.codegen.llvm_get_intrinsic_name(int(call.args[0].value)))


def _definition(name: str, address: int) -> str:
    """A function of LLVM that calls the one at an address."""
    kinds = [_TYPES[kind.__name__] for kind in INTRINSICS[name]]
    given = ", ".join(f"{kind} %a{at}" for at, kind in enumerate(kinds))
    called = f"call void inttoptr (i64 {address} to ptr)({given})"
    return f"define linkonce_odr i32 @{_PREFIX}{name}({given}) {{\n  {called}\n  ret i32 0\n}}"
