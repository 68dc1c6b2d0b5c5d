"""Quotients of rows by one number: as precise as said, special values as of a division."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from written import written

from autotune.backends import Executable
from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload
from autotune.targets import detect_cpu
from autotune.testing.programs import request_for, run_executable, sample_candidates

BACKEND, TARGET = NativeBackend(), detect_cpu()
ROWS, COLUMNS = 64, 64
EXTREMES = [0.0, -0.0, 1e-45, -1e-40, 1.2e-38, 3e38, -1e20, 1e-20, np.inf, -np.inf, np.nan, 1.0]


def rows_over_numbers(dtype: str) -> Workload:
    inputs = f"X[i, j]: {dtype}, S[i]: {dtype}"
    return written(inputs, f"Y[i, j]: {dtype} = X[i, j] / S[i]", i=ROWS, j=COLUMNS)


@cache
def compiled(dtype: str = "float32") -> tuple[Executable, str]:
    """A program in vectors, and its text."""
    candidate = sample_candidates(BACKEND, rows_over_numbers(dtype), TARGET)[0]
    request = request_for(candidate, TARGET)
    return BACKEND.build(request), BACKEND.show(request)


def quotients(x: Any, s: Any) -> Any:
    """Of the first rows, the others being ones."""
    inputs = {"X": np.ones((ROWS, COLUMNS), np.float32), "S": np.ones(ROWS, np.float32)}
    inputs["X"][: len(x)], inputs["S"][: len(s)] = x, s
    (found,) = run_executable(compiled()[0], rows_over_numbers("float32"), inputs)
    return found[: len(x)]


@given(seed=st.integers(0, 1 << 30))
def test_errors_over_all_exponents(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, s = (
        (rng.uniform(1, 2, shape) * 2.0 ** rng.integers(-126, 127, shape)).astype(np.float32)
        for shape in ((ROWS, COLUMNS), (ROWS,))
    )
    exact = x.astype(np.float64) / s[:, None]
    with np.errstate(over="ignore", under="ignore"):
        wanted = exact.astype(np.float32)
    found = quotients(x, s)
    unit = np.spacing(np.abs(wanted)).astype(np.float64)
    finite = np.isfinite(wanted) & np.isfinite(found)
    assert (np.abs(found - exact)[finite] <= 1.5 * unit[finite]).all()
    # Only what rounds to the largest number or beyond may be either.
    assert (np.abs(exact[~finite]) > 0.999 * np.finfo(np.float32).max).all()


def test_special_values_are_those_of_a_division() -> None:
    values = np.array(EXTREMES, np.float32)
    x, s = np.resize(values, (len(values), COLUMNS)), values
    with np.errstate(all="ignore"):
        wanted = x / s[:, None]
    found = quotients(x, s)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))
    kept = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(wanted)[kept])
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=2e-7, atol=2e-45)


def test_vectors_are_divided_in_double_precision_alone() -> None:
    divided = re.compile(r"fdiv <\d+ x")
    assert not divided.search(compiled()[1]) and "fdiv float" in compiled()[1]
    assert divided.search(compiled("float64")[1])
