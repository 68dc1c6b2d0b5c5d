"""Numbers of bfloat16 as bit patterns: the leading 16 bits of those of float32.

numpy has no such type. Bit patterns are files, shared memory and views of any library's arrays
without one more dependency, and converting them is exact arithmetic on integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["bfloat16_bits", "bfloat16_numbers"]

_QUIET = 0x0040
_SIGN = 0x80000000
_INFINITY = 0x7F800000


def bfloat16_numbers(bits: NDArray[Any]) -> NDArray[Any]:
    """The numbers (float32) of bit patterns (uint16), exactly; any shape."""
    import numpy as np

    return np.asarray((np.asarray(bits).astype(np.uint32) << 16).view(np.float32))


def bfloat16_bits(numbers: NDArray[Any]) -> NDArray[Any]:
    """Bit patterns (uint16) of the nearest numbers, the even one from halfway; any shape.

    What is too large becomes infinite, denormals stay, and every NaN stays a quiet NaN. Numbers
    of double precision are rounded once: first towards zero to float32, with the last bit set
    where that lost something (rounding to odd), by which nothing becomes a tie that was none.
    """
    import numpy as np

    given = np.asarray(numbers)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = given.astype(np.float32)
        away = np.abs(single) > np.abs(given)
        inexact = (single != given) & ~np.isnan(given)
    bits = single.view(np.uint32)
    bits = np.where(inexact, (bits - away.astype(np.uint32)) | np.uint32(1), bits)
    upper = bits >> 16
    rounded = (bits + np.uint32(0x7FFF) + (upper & 1)) >> 16
    is_nan = (bits & np.uint32(~_SIGN & 0xFFFFFFFF)) > _INFINITY
    return np.asarray(np.where(is_nan, upper | _QUIET, rounded).astype(np.uint16))
