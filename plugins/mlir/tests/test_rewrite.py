"""Functions of single precision: errors over all arguments, special values, vectors."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from autotune_mlir import compiler
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.rewrite import FUNCTIONS
from numpy.typing import NDArray
from single_precision import ARGUMENTS, SPECIAL, check_errors
from written import written

from autotune.backends import BuildRequest
from autotune.lower.elementary import MAX_ERRORS
from autotune.targets import Target
from autotune.testing.programs import run_executable


def text_of(function: str, n: int, lanes: int = 0) -> str:
    """A program that computes ``function`` of ``n`` values, one by one or in vectors."""
    kind = f"vector<{lanes}xf32>" if lanes else "f32"
    if lanes:
        body = f"""
    %c0 = arith.constant 0 : index
    %n = arith.constant {n} : index
    %step = arith.constant {lanes} : index
    %zero = arith.constant 0.0 : f32
    scf.for %i = %c0 to %n step %step {{
      %x = vector.transfer_read %in[%i], %zero {{in_bounds = [true]}} : memref<{n}xf32>, {kind}
      %y = math.{function} %x : {kind}
      vector.transfer_write %y, %out[%i] {{in_bounds = [true]}} : {kind}, memref<{n}xf32>
    }}"""
    else:
        body = f"""
    linalg.map {{ math.{function} }} ins(%in : memref<{n}xf32>) outs(%out : memref<{n}xf32>)"""
    return f"func.func @kernel(%in: memref<{n}xf32>, %out: memref<{n}xf32>) {{{body}\n return }}"


def applied(
    function: str,
    values: NDArray[np.float32],
    lanes: int = 0,
) -> NDArray[np.float32]:
    """``function`` of every value, one by one or in vectors."""
    text = text_of(function, len(values), lanes)
    lowered = compiler.lower(text, threads=1)
    assert f"{function}f" not in str(lowered.module)
    generated = compiler.generate(lowered)
    values = np.ascontiguousarray(values)
    results = np.empty_like(values)
    pointers = (ctypes.c_void_p * 2)(values.ctypes.data, results.ctypes.data)
    entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(generated.address())
    assert entry(ctypes.addressof(pointers)) == 0
    return results


@pytest.mark.parametrize("function", FUNCTIONS.values())
def test_errors_over_all_arguments(function: str) -> None:
    check_errors(function, ARGUMENTS, applied(function, ARGUMENTS))


@pytest.mark.parametrize("function", FUNCTIONS.values())
@pytest.mark.parametrize("lanes", [4, 16])
def test_vectors_compute_what_scalars_compute(function: str, lanes: int) -> None:
    values = np.resize(np.concatenate([SPECIAL, ARGUMENTS[::997]]), 64 * 16)
    expected = applied(function, values)
    np.testing.assert_allclose(applied(function, values, lanes), expected, rtol=1e-6)


def test_the_documentation_says_the_errors() -> None:
    page = Path(__file__).parents[3] / "docs" / "mlir.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    names = ", ".join(f"`{name}`" for name in FUNCTIONS.values())
    errors = ", ".join(f"{error:g}" for error in map(MAX_ERRORS.__getitem__, FUNCTIONS.values()))
    said = (" and ".join(listed.rsplit(", ", 1)) for listed in (names, errors))
    assert all(listed in text for listed in said)


def test_double_precision_stays_a_call() -> None:
    text = (
        "func.func @kernel(%in: memref<8xf64>, %out: memref<8xf64>) {"
        "linalg.map { math.exp } ins(%in : memref<8xf64>) outs(%out : memref<8xf64>) return }"
    )
    assert "exp" in str(compiler.lower(text, threads=1).module)


def test_sigmoid_is_right_over_all_arguments(backend: MLIRBackend, target: Target) -> None:
    """MLIR has none: it is made of an exponential, which overflows where the result does not."""
    workload = written("X[i]", "Y[i] = sigmoid(X[i])", i=ARGUMENTS.size)
    executable = backend.build(BuildRequest(workload, None, None, target, 1))
    (results,) = run_executable(executable, workload, {"X": ARGUMENTS})
    check_errors("sigmoid", ARGUMENTS, results)
