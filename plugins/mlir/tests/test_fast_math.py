"""Functions of single precision: errors over all arguments, special values, vectors."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_mlir import compiler
from autotune_mlir.fast_math import MAX_ERRORS
from numpy.typing import NDArray

# Every 4099th number of single precision: a prime, so that all exponents and signs occur.
ARGUMENTS: NDArray[np.float32] = np.arange(0, 1 << 32, 4099, dtype=np.uint32).view(np.float32)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4e38, -3.4e38]
    + [88.72283, 88.72284, -87.33, -103.97, -103.98, -104.1, 1.17549435e-38, 1.1754942e-38],
    np.float32,
)


def applied(function: str, values: NDArray[np.float32], lanes: int = 0) -> NDArray[np.float32]:
    """``function`` of every value, one by one or in vectors."""
    n = len(values)
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
    text = f"func.func @kernel(%in: memref<{n}xf32>, %out: memref<{n}xf32>) {{{body}\n return }}"
    lowered = compiler.lower(text, None, threads=1)
    assert f"{function}f" not in str(lowered.module)
    generated = compiler.generate(lowered)
    values = np.ascontiguousarray(values)
    results = np.empty_like(values)
    pointers = (ctypes.c_void_p * 2)(values.ctypes.data, results.ctypes.data)
    entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(generated.address)
    assert entry(ctypes.addressof(pointers)) == 0
    return results


def exact(function: str, values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The function in double precision."""
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        if function == "erf":
            return np.array([math.erf(value) for value in wide])
        result: Any = getattr(np, function)(wide)
        return np.asarray(result)


@pytest.mark.parametrize("function", MAX_ERRORS)
def test_errors_over_all_arguments(function: str) -> None:
    values = np.concatenate([ARGUMENTS, SPECIAL, np.linspace(-20, 20, 4001, dtype=np.float32)])
    results, expected = applied(function, values), exact(function, values)
    with np.errstate(over="ignore"):
        single = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(results), np.isnan(single))
    np.testing.assert_array_equal(np.isinf(results), np.isinf(single))
    finite = np.isfinite(single)
    step = np.spacing(np.abs(single[finite])).astype(np.float64)
    errors = np.abs(results[finite] - expected[finite]) / step
    assert errors.max() <= MAX_ERRORS[function], values[finite][errors.argmax()]


@pytest.mark.parametrize("function", MAX_ERRORS)
@pytest.mark.parametrize("lanes", [4, 16])
def test_vectors_compute_what_scalars_compute(function: str, lanes: int) -> None:
    values = np.resize(np.concatenate([SPECIAL, ARGUMENTS[::997]]), 64 * 16)
    expected = applied(function, values)
    np.testing.assert_allclose(applied(function, values, lanes), expected, rtol=1e-6)


def test_the_documentation_says_the_errors() -> None:
    page = Path(__file__).parents[3] / "docs" / "mlir.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    names = ", ".join(f"`{name}`" for name in MAX_ERRORS)
    errors = ", ".join(f"{error:g}" for error in MAX_ERRORS.values())
    said = (" and ".join(listed.rsplit(", ", 1)) for listed in (names, errors))
    assert all(listed in text for listed in said)


def test_double_precision_stays_a_call() -> None:
    text = (
        "func.func @kernel(%in: memref<8xf64>, %out: memref<8xf64>) {"
        "linalg.map { math.exp } ins(%in : memref<8xf64>) outs(%out : memref<8xf64>) return }"
    )
    assert "exp" in str(compiler.lower(text, None, threads=1).module)
