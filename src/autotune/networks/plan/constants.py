"""Constants of a network, equal ones once."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.networks.plan.plan import Constant

__all__ = ["Constants"]

Array = NDArray[Any]

# What arrays that may be equal are told apart by, before all of them is compared.
_LOOKED_AT = 1024


@define(eq=False)
class Constants:
    """Constants, by number in the order in which they were asked for.

    Attributes:
        found: What there is.
    """

    found: list[Constant] = field(factory=list)
    _by_identity: dict[int, int] = field(factory=dict)
    _by_look: dict[tuple[int, bytes], list[int]] = field(factory=dict)

    def number(self, array: Array) -> int:
        """Number of a constant of these bytes."""
        known = self._by_identity.get(id(array))
        if known is None:
            known = self._by_identity[id(array)] = self._equal(array)
        return known

    def made(self, size: int) -> int:
        """Number of a constant of so many bytes that a program makes."""
        self.found.append(Constant(None, size))
        return len(self.found) - 1

    def _equal(self, array: Array) -> int:
        look = array.nbytes, array.flat[:_LOOKED_AT].tobytes()
        alike = self._by_look.setdefault(look, [])
        for number in alike:
            other = self.found[number].array
            assert other is not None
            if array.size * array.itemsize <= len(look[1]) or _same_bytes(array, other):
                return number
        self.found.append(Constant(array, array.nbytes))
        alike.append(len(self.found) - 1)
        return alike[-1]


def _same_bytes(first: Array, second: Array) -> bool:
    return bool(np.array_equal(_bytes_of(first), _bytes_of(second)))


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
