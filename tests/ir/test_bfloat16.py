from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UnknownNameError
from autotune.ir.element_types import ElementType, bfloat16_bits, bfloat16_numbers, element_type

EVERY = np.arange(1 << 16, dtype=np.uint16)
LARGEST = 0x7F7F


def number(bits: int) -> float:
    """By the definition: the leading half of a float32."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)


def nearest(value: float) -> int:
    """The bits of the nearest number, by exact comparison with its two neighbours."""
    sign = 0x8000 if math.copysign(1.0, value) < 0 else 0
    exact = abs(Fraction(value))
    low, high = 0, LARGEST + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if Fraction(number(middle)) <= exact else (low, middle)
    # What would come after the largest, were there no infinity.
    above = Fraction(2) ** 128 if low == LARGEST else Fraction(number(low + 1))
    below = exact - Fraction(number(low))
    if below > above - exact or (below == above - exact and low % 2):
        low += 1
    return sign | low


def test_every_pattern_is_its_number_and_back() -> None:
    numbers = bfloat16_numbers(EVERY)
    assert numbers.dtype == np.float32
    assert numbers.view(np.uint32).tolist() == [bits << 16 for bits in range(1 << 16)]
    for wide in (numbers, numbers[~np.isnan(numbers)].astype(np.float64)):
        bits = bfloat16_bits(wide)
        kept = ~np.isnan(wide)
        np.testing.assert_array_equal(bits[kept], EVERY[~np.isnan(numbers)])
    nan = np.isnan(numbers)
    again = bfloat16_bits(numbers)
    np.testing.assert_array_equal(again[nan], EVERY[nan] | 0x40)
    assert np.isnan(bfloat16_numbers(again[nan])).all()


def test_between_any_two_the_nearer_is_taken_and_the_even_one_from_halfway() -> None:
    below = np.arange(LARGEST + 1, dtype=np.uint32)
    for sign in (0, 1 << 31):
        for offset, up in ((1, False), (0x7FFF, False), (0x8000, None), (0x8001, True)):
            bits = ((below << 16) | offset | sign).astype(np.uint32)
            expected = below + (below & 1 if up is None else int(up)) + (sign >> 16)
            np.testing.assert_array_equal(bfloat16_bits(bits.view(np.float32)), expected)


@given(st.floats(width=64, allow_nan=False, allow_infinity=False))
def test_double_precision_is_rounded_once(value: float) -> None:
    assert bfloat16_bits(np.asarray(value)) == nearest(value)


@pytest.mark.parametrize("value", [1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 2.0**-134, 2.0**-150])
def test_no_tie_is_made_by_the_way_of_float32(value: float) -> None:
    assert bfloat16_bits(np.asarray(value)) == nearest(value)


@given(st.integers(0, (1 << 32) - 1))
def test_any_float32(bits: int) -> None:
    single = np.asarray(bits, np.uint32).view(np.float32)
    rounded = int(bfloat16_bits(single))
    if np.isnan(single):
        assert np.isnan(bfloat16_numbers(np.asarray(rounded, np.uint16))) and rounded & 0x40
    elif np.isinf(single):
        assert rounded == bits >> 16
    else:
        assert rounded == nearest(float(single))


def test_the_element_type_is_kept_as_bits() -> None:
    kind = element_type("bfloat16")
    assert (kind.bytes, kind.eps, kind.is_float) == (2, 2.0**-7, True)
    assert kind.dtype == np.uint16
    assert kind.numbers(kind.stored(np.asarray([[1.0, -2.5]]))).tolist() == [[1.0, -2.5]]
    half = element_type("float16")
    assert half.numbers(np.float16(1.5)) == 1.5
    assert half.stored(np.asarray([1 / 3])).dtype == np.float16
    with pytest.raises(UnknownNameError, match="storage of dtype 'odd'.*uint16"):
        ElementType("odd", 2.0**-4, storage="uint8")
