"""Element types of tensors: those of the core, and by name those that plugins register.

Numbers of bfloat16 as bit patterns: the leading 16 bits of those of float32.

numpy has no such type. Bit patterns are files, shared memory and views of any library's arrays
without one more dependency, and converting them is exact arithmetic on integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import Attribute, field, frozen

from autotune.errors import PluginError, UnknownNameError
from autotune.imports import plugin_part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ELEMENT_TYPES", "ElementType", "bfloat16_bits", "bfloat16_numbers", "element_type"]

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


_STORAGE = {
    "bool": 1,
    **{f"{sign}int{8 * size}": size for sign in ("", "u") for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": size for size in (2, 4, 8)},
}
# Of floating-point numbers that numpy does not have: the leading bits of those of float32.
_LEADING_BITS = "uint16"


@frozen
class ElementType:
    """Type of the elements of tensors. A plugin registers one as kind ``dtype``.

    Attributes:
        name: What workloads, records and ``--dtype`` call it.
        eps: Of a floating-point type: from 1 to the next larger number, by which results are
            judged (:mod:`autotune.measure.validation`). 0 for integers, which are exact.
        storage: Name of the numpy type of its arrays: those that the reference evaluates, and
            those that programs are bound to. That of the same name by default. A floating-point
            type that numpy does not have is kept as ``uint16``, the leading 16 bits of float32.

    Raises:
        UnknownNameError: there is no such type of numpy, or it is not of the same kind.
    """

    name: str
    eps: float = 0.0
    storage: str = field(kw_only=True)

    @storage.default
    def _own(self) -> str:
        return self.name

    @storage.validator
    def _check(self, _: Attribute[Any], storage: str) -> None:
        fitting = [name for name in _STORAGE if name.startswith("float") == self.is_float]
        fitting += [_LEADING_BITS] if self.is_float else []
        if storage not in fitting:
            raise UnknownNameError(f"storage of dtype {self.name!r}", str(storage), fitting)

    @property
    def bytes(self) -> int:
        """Size of an element."""
        return _STORAGE[self.storage]

    @property
    def is_float(self) -> bool:
        """True if it is a floating-point type."""
        return self.eps > 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of its arrays."""
        import numpy as np

        return np.dtype(self.storage)

    @property
    def largest(self) -> float:
        """The largest finite number of a floating-point type."""
        import numpy as np

        if self._is_bits:
            return float(bfloat16_numbers(np.asarray(0x7F7F, np.uint16)))
        return float(np.finfo(self.dtype).max)

    def numbers(self, stored: NDArray[Any]) -> NDArray[Any]:
        """The numbers that an array as programs have it stands for, in a type to compute with."""
        return bfloat16_numbers(stored) if self._is_bits else stored

    def stored(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """An array as programs have it of numbers, rounded to nearest even where need be."""
        return bfloat16_bits(numbers) if self._is_bits else numbers.astype(self.dtype)

    @property
    def _is_bits(self) -> bool:
        return self.is_float and self.storage == _LEADING_BITS


ELEMENT_TYPES: Mapping[str, ElementType] = MappingProxyType(
    {
        **{name: ElementType(name) for name in _STORAGE if not name.startswith("float")},
        "bfloat16": ElementType("bfloat16", 2.0**-7, storage=_LEADING_BITS),
        "float16": ElementType("float16", 2.0**-10),
        "float32": ElementType("float32", 2.0**-23),
        "float64": ElementType("float64", 2.0**-52),
    }
)
"""Types of the core, which registers them like a plugin."""


def element_type(name: str) -> ElementType:
    """The element type of this name; plugins are asked where it is none of the core's.

    Raises:
        UnknownNameError: nobody registers it.
        PluginError: its plugin makes something else.
    """
    if name in ELEMENT_TYPES:
        return ELEMENT_TYPES[name]
    found: ElementType = plugin_part("dtype", name)
    if found.name != name:
        raise PluginError(f"dtype {name!r} calls itself {found.name!r}")
    return found
