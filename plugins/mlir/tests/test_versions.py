"""Versions of the compiler, and how much LLVM optimises."""

from __future__ import annotations

import pytest
from autotune_mlir import bindings, compiler
from autotune_mlir.compiler import OPT_LEVEL_VARIABLE, generate, lower
from autotune_mlir.emit import payload
from mlir_schedules import executable_of

from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm
from autotune.testing.programs import check_executable

SMALL = gemm(m=16, n=32, k=8)
PROGRAM = payload(SMALL)


def test_the_optimisation_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OPT_LEVEL_VARIABLE, raising=False)
    assert compiler.opt_level() == 3
    version = compiler.compiler_version()
    assert version == bindings.bindings_version()
    lowered = lower(PROGRAM, threads=1)
    fast = generate(lowered)
    monkeypatch.setenv(OPT_LEVEL_VARIABLE, "0")
    assert compiler.compiler_version() == f"{version} -O0"
    screened = executable_of(lower(PROGRAM, threads=1), SMALL)
    assert screened.digest != fast.digest
    check_executable(screened, SMALL)
    for wrong in ("4", "-1", "fast", ""):
        monkeypatch.setenv(OPT_LEVEL_VARIABLE, wrong)
        with pytest.raises(InvalidValueError, match="from 0 to 3"):
            compiler.compiler_version()


def test_llvm_says_its_release() -> None:
    assert compiler.llvm_version()[0].isdigit()
