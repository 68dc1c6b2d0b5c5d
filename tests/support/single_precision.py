"""Functions of single precision against double precision, over all arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lower.elementary import MAX_ERRORS

Singles = NDArray[np.float32]

SPECIAL: Singles = np.array(
    [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 3.4e38, -3.4e38]
    + [88.72283, 88.72284, -87.33, -103.97, -103.98, -104.1, 1.17549435e-38, 1.1754942e-38],
    np.float32,
)
"""Arguments where functions overflow, vanish, or are given no number."""

# Every 4099th number of single precision: a prime, so that all exponents and signs occur.
ARGUMENTS: Singles = np.concatenate(
    [
        np.arange(0, 1 << 32, 4099, dtype=np.uint32).view(np.float32),
        np.linspace(-20, 20, 40001, dtype=np.float32),
        np.linspace(-110, 100, 40001, dtype=np.float32),
        SPECIAL,
    ]
)
"""Numbers of all exponents, more of them where functions change, and the special ones."""


def exact(function: str, values: Singles) -> NDArray[np.float64]:
    """The function in double precision, whose own errors do not count here."""
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        if function == "erf":
            return np.array([math.erf(value) for value in wide])
        if function == "sigmoid":
            decay = np.exp(-np.abs(wide))
            return np.asarray(np.where(wide < 0, decay, 1.0) / (1.0 + decay))
        result: Any = getattr(np, function)(wide)
        return np.asarray(result)


def check_errors(function: str, values: Singles, results: Singles) -> None:
    """Results are as close as is stated, and infinite or no number where they have to be."""
    expected = exact(function, values)
    with np.errstate(over="ignore"):
        single = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(results), np.isnan(single))
    np.testing.assert_array_equal(np.isposinf(results), np.isposinf(single))
    np.testing.assert_array_equal(np.isneginf(results), np.isneginf(single))
    zero = single == 0
    np.testing.assert_array_equal(np.signbit(results[zero]), np.signbit(single[zero]))
    finite = np.isfinite(single)
    if not finite.any():
        return
    step = np.spacing(np.abs(single[finite])).astype(np.float64)
    errors = np.abs(results[finite] - expected[finite]) / step
    assert errors.max() <= MAX_ERRORS[function], values[finite][errors.argmax()]
