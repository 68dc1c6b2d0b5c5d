from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.networks import NetworkTensor
from autotune.networks.running import compare_outputs
from autotune.targets import Target, resolve

WANTED = np.linspace(-1, 1, 101, dtype=np.float32)


def compared(
    found: object, wanted: object = WANTED, dtype: str = "float32", target: Target | None = None
) -> tuple[bool, str]:
    tensor = NetworkTensor("logits", np.shape(wanted), dtype)  # type: ignore[arg-type]
    (difference,) = compare_outputs([tensor], [wanted], [found], target)
    return difference.ok, str(difference)


def test_rounding_is_right_and_another_number_is_not() -> None:
    assert compared(WANTED * np.float32(1 + 1e-5))[0]
    wrong = WANTED.copy()
    wrong[7] += np.float32(0.01)
    right, text = compared(wrong)
    assert not right and "'logits': error 0.01," in text and "1 elements" in text


@pytest.mark.parametrize(("dtype", "right"), [("float64", False), ("float32", True)])
def test_the_bound_is_of_the_type(dtype: str, right: bool) -> None:
    wanted = WANTED.astype(dtype)
    assert compared((wanted * (1 + 1e-5)).astype(dtype), wanted, dtype)[0] == right


def test_floats_are_held_to_tf32_where_the_target_allows_it() -> None:
    rounded = WANTED * np.float32(1 + 2.0**-8)
    assert not compared(rounded)[0] and not compared(rounded, target=resolve("h100"))[0]
    assert compared(rounded, target=resolve("h100-tf32"))[0]
    assert not compared(WANTED * np.float32(1.2), target=resolve("h100-tf32"))[0]
    precise = WANTED.astype(np.float64)
    assert not compared(precise * (1 + 2.0**-8), precise, "float64", resolve("h100-tf32"))[0]


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-12, 3)), min_size=1, max_size=8))
@example([(0, -1.0), (0, 0.0)])
def test_what_is_reported_is_the_element_that_is_worst_beside_its_bound(
    drawn: list[tuple[int, float]],
) -> None:
    """As much where all are right as where one is wrong."""
    wanted = np.array([float(value) for value, _ in drawn])
    found = wanted + 10.0 ** np.array([exponent for _, exponent in drawn])
    scale = np.sqrt(np.mean(wanted * wanted))
    bounds = 2 * np.sqrt(2.0**-52) * (np.abs(wanted) + scale)
    shares = np.abs(found - wanted) / np.maximum(bounds, 1e-300)
    tensor = NetworkTensor("logits", wanted.shape, "float64")
    (difference,) = compare_outputs([tensor], [wanted], [found])
    assert difference.ok == bool((shares <= 1).all())
    reported = difference.error / max(difference.allowed, 1e-300)
    assert reported == pytest.approx(shares.max())


def test_integers_are_exact() -> None:
    wanted = np.arange(5)
    assert compared(wanted.copy(), wanted, "int64")[0]
    assert not compared(wanted + (wanted == 3), wanted, "int64")[0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_right_where_the_model_has_the_same(value: float) -> None:
    spoilt = WANTED.copy()
    spoilt[3] = value
    assert not compared(spoilt)[0] and not compared(WANTED, spoilt)[0]
    assert compared(spoilt, spoilt)[0]


def test_other_shapes_types_and_counts_are_named() -> None:
    assert "is float32[2], and the model's float32[101]" in compared(WANTED[:2])[1]
    assert "is float64[101]" in compared(WANTED.astype(np.float64))[1]
    tensor = NetworkTensor("logits", (101,), "float32")
    (difference,) = compare_outputs([tensor], [WANTED, WANTED], [WANTED])
    assert not difference.ok and "one of 2 of the model" in str(difference)


def test_integers_that_no_task_has_are_exact() -> None:
    wanted = np.arange(4, dtype=np.int16)
    assert compared(wanted, wanted, "int16")[0]
    assert not compared(wanted + np.int16(1), wanted, "int16")[0]
