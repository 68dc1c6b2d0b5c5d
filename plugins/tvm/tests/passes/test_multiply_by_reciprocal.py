"""Quotients by one number: as precise as said, special values as of a division."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import tvm
from autotune_tvm.compiler import generate_code, lower_module
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te

from autotune.targets import Target, detect_cpu

LANES = 16
EXTREMES = [0.0, -0.0, 1e-45, -1e-40, 1.2e-38, 3e38, -1e20, 1e-20, np.inf, -np.inf, np.nan, 1.0]


@lru_cache
def compiled(rows: int, dtype: str = "float32") -> tuple[Any, str]:
    """Rows over one number each, and the assembly."""
    x, s = te.placeholder((rows, LANES), dtype, "X"), te.placeholder((rows,), dtype, "S")
    y = te.compute((rows, LANES), lambda i, j: x[i, j] / s[i], "Y")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([x, s, y]).with_attr("global_symbol", "main")
    )
    _, inner = schedule.get_loops(schedule.get_sblock("Y"))
    schedule.vectorize(inner)
    target = Target(kind="cpu", name="host", processor=detect_cpu().processor).with_cores(1)
    built, _ = generate_code(lower_module(schedule.mod, target, 1), target, 1)
    return built, str(built.inspect_source("s"))


def quotients(x: Any, s: Any) -> Any:
    built, _ = compiled(len(s), str(x.dtype))
    out = tvm.runtime.tensor(np.empty_like(x))
    built["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(s), out)
    return out.numpy()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_errors_over_all_exponents(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, s = (
        (rng.uniform(1, 2, shape) * 2.0 ** rng.integers(-126, 127, shape)).astype(np.float32)
        for shape in ((64, LANES), (64,))
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
    x, s = np.resize(values, (len(values), LANES)), values
    with np.errstate(all="ignore"):
        wanted = x / s[:, None]
    found = quotients(x, s)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))
    kept = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[kept], np.signbit(wanted)[kept])
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=2e-7, atol=2e-45)


def test_no_vector_is_divided() -> None:
    assert "vdivps" not in compiled(4)[1]


def test_double_precision_is_divided() -> None:
    x, s = np.full((2, LANES), 1.0), np.array([3.0, 7.0])
    np.testing.assert_array_equal(quotients(x, s), x / s[:, None])
