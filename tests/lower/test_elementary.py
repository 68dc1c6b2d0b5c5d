"""Elementary functions as arithmetic: errors over all arguments, special values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from single_precision import ARGUMENTS, SPECIAL, check_errors, exact

from autotune.lower.elementary import ELEMENTARY, MAX_ERRORS, Arithmetic

_FLOATS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_COMPARISONS = {"lt": np.less, "gt": np.greater, "eq": np.equal}
_BITS = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "shl": np.left_shift,
    "shr": np.right_shift,
}


def single(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else np.float32(value)


def whole(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else np.int32(value)


class Numpy(Arithmetic):
    """Every operation rounds."""

    def floats(self, operation: Any, left: Any, right: Any) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(_FLOATS[operation](single(left), single(right)), np.float32)

    def integers(self, operation: Any, left: Any, right: Any) -> Any:
        return _BITS[operation](whole(left), whole(right))

    def where(self, comparison: Any, left: Any, right: Any, yes: Any, no: Any) -> Any:
        holds = _COMPARISONS[comparison](single(left), single(right))
        return np.where(holds, single(yes), single(no))

    def bits(self, value: Any) -> Any:
        return value.view(np.int32)

    def of_bits(self, value: Any) -> Any:
        return value.view(np.float32)

    def converted(self, value: Any) -> Any:
        return value.astype(np.float32)


class Scaling(Numpy):
    """Products with powers of two are operations, too."""

    scales = True

    def scaled(self, value: Any, power: Any) -> Any:
        with np.errstate(all="ignore"):
            return (value * np.exp2(power.astype(np.float64))).astype(np.float32)


KINDS = {"plain": Numpy(), "scaling": Scaling()}


def applied(function: str, values: Any, kind: str = "plain") -> Any:
    return ELEMENTARY[function](KINDS[kind], values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ELEMENTARY)
def test_errors_over_all_arguments(function: str, kind: str) -> None:
    check_errors(function, ARGUMENTS, applied(function, ARGUMENTS, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ELEMENTARY)
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_errors_of_any_arguments(function: str, kind: str, values: list[float]) -> None:
    array = np.array(values, np.float32)
    check_errors(function, array, applied(function, array, kind))


_PRECISE = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "tanh": mpmath.tanh,
    "erf": mpmath.erf,
    "sigmoid": lambda value: 1 / (1 + mpmath.exp(-value)),
}


@pytest.mark.parametrize("function", ELEMENTARY)
def test_the_double_precision_of_these_tests_is_exact_for_single(function: str) -> None:
    """At every exponent: what errors are measured against is off by no part of them."""
    rng = np.random.default_rng(0)
    mantissas = rng.integers(0, 1 << 23, (255, 2), dtype=np.uint32)
    exponents = np.arange(255, dtype=np.uint32)[:, None] << 23
    positive = (exponents | mantissas).view(np.float32).reshape(-1)
    values = positive if function == "log" else np.concatenate([positive, -positive])
    found = exact(function, values)
    with mpmath.workprec(200), np.errstate(over="ignore"):
        for value, double in zip(values.tolist(), found.tolist(), strict=True):
            precise = _PRECISE[function](mpmath.mpf(value))
            single = np.float32(precise)
            step = float(np.spacing(np.abs(single))) if np.isfinite(single) else math.inf
            assert single == np.float32(double) or abs(precise - double) < 1e-6 * step, value


@pytest.mark.parametrize("kind", KINDS)
def test_special_values(kind: str) -> None:
    inf, nan = math.inf, math.nan
    at = np.array([0.0, -0.0, inf, -inf, nan], np.float32)
    expected = {
        "exp": [1.0, 1.0, inf, 0.0, nan],
        "log": [-inf, -inf, inf, nan, nan],
        "sigmoid": [0.5, 0.5, 1.0, 0.0, nan],
        "tanh": [0.0, -0.0, 1.0, -1.0, nan],
        "erf": [0.0, -0.0, 1.0, -1.0, nan],
    }
    assert list(expected) == list(ELEMENTARY) == list(MAX_ERRORS)
    for function, values in expected.items():
        results = applied(function, at, kind)
        np.testing.assert_array_equal(results, np.array(values, np.float32))
        signed = ~np.isnan(results)
        np.testing.assert_array_equal(
            np.signbit(results[signed]), np.signbit(np.array(values, np.float32)[signed])
        )


@pytest.mark.parametrize("kind", KINDS)
def test_small_results_are_not_flushed(kind: str) -> None:
    tiny = np.array([-87.5, -95.0, -103.0], np.float32)
    for function in ("exp", "sigmoid"):
        results = applied(function, tiny, kind)
        assert (results > 0).all() and (results < np.finfo(np.float32).tiny).all()
    denormal = np.array([1e-45, -1e-40], np.float32)
    np.testing.assert_array_equal(applied("tanh", denormal), denormal)


@pytest.mark.parametrize("function", ["sigmoid", "tanh", "erf"])
def test_bounded_functions_stay_within_their_bounds(function: str) -> None:
    results = applied(function, np.concatenate([ARGUMENTS, SPECIAL]))
    assert np.nanmax(results) == 1.0
    assert np.nanmin(results) == (0.0 if function == "sigmoid" else -1.0)


def test_masked_elements_of_a_softmax_are_zero() -> None:
    """Masks of minus infinity leave nothing."""
    row = np.array([0.5, -math.inf, -2.0, -math.inf], np.float32)
    powers = applied("exp", row - row.max())
    assert (powers[[1, 3]] == 0).all()
    np.testing.assert_allclose((powers / powers.sum()).sum(), 1.0, rtol=1e-6)


def test_the_documentation_says_the_errors() -> None:
    page = Path(__file__).parents[2] / "docs" / "steps.md"
    text = " ".join(page.read_text(encoding="utf-8").split())
    names = ", ".join(f"`{name}`" for name in MAX_ERRORS)
    errors = ", ".join(f"{error:g}" for error in MAX_ERRORS.values())
    said = (" and ".join(listed.rsplit(", ", 1)) for listed in (names, errors))
    assert all(listed in text for listed in said)
