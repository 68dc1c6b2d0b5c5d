"""Packed constants: made once for equal ones, and again for others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, PackedConstants

Array = NDArray[Any]


def packed(constants: PackedConstants, constant: Array, position: int = 0) -> tuple[Array, int]:
    """The constant's columns in an array with one row more, and how often they were packed."""
    calls: list[int] = []

    def pack(made: list[Array]) -> None:
        calls.append(position)
        made[0][: len(constant.T)] = constant.T

    rows, columns = constant.shape
    arrays = [((columns + 1, rows), constant.dtype)]
    (found,) = constants.packed(position, constant, arrays, pack)
    return found, len(calls)


def test_equal_constants_are_packed_once() -> None:
    constants = PackedConstants()
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, made = packed(constants, weights)
    again, made_again = packed(constants, weights.copy())
    assert (made, made_again) == (1, 0) and again is first
    np.testing.assert_array_equal(first[:3], weights.T)
    # What nothing writes is zero, and the whole lies as programs want it.
    assert not first[3].any() and first.ctypes.data % ALIGNMENT == 0


def test_other_numbers_and_other_places_are_packed_again() -> None:
    constants = PackedConstants()
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    first, _ = packed(constants, weights)
    for other, position in ((weights + 1, 0), (weights, 1)):
        found, made = packed(constants, other, position)
        assert made == 1 and found is not first
        np.testing.assert_array_equal(found[:3], other.T)
    # What an earlier binding has is left as it is.
    np.testing.assert_array_equal(first[:3], weights.T)
