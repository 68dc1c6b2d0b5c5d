"""Fragments: which lane of a warp holds which elements of an operand, in which register.

A warp's matrix instruction reads its operands from registers. The layouts here are those of
``mma.sync.aligned.m16n8kK.row.col`` (PTX ISA, "Matrix Fragments for mma"), written as data: what
loads, stores and tests do follows from them. The sums of ``wgmma.mma_async`` are held by the 128
lanes of a warpgroup, four warps in a row.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NoReturn

from attrs import Attribute, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type

__all__ = [
    "WARPGROUP_LANES",
    "WARP_LANES",
    "Digit",
    "Fragment",
    "accumulator_fragment",
    "factor_fragments",
    "warpgroup_accumulator_fragment",
]

WARP_LANES = 32
"""Lanes of a warp that executes one instruction together."""
WARPGROUP_LANES = 128
"""Lanes of four warps that execute one instruction together."""

_REGISTER_BYTES = 4
# An 8x8 matrix of 32-bit words is held by 8 groups of 4 lanes.
_GROUPS, _GROUP_LANES = 8, 4


@frozen
class Digit:
    """Digit of a mixed-radix number: each step moves ``stride`` elements along ``axis``."""

    extent: int
    axis: str
    stride: int


def _digits(values: Any) -> tuple[Digit, ...]:
    return tuple(value if isinstance(value, Digit) else Digit(*value) for value in values)


@frozen
class Fragment:
    """The share of an operand that each lane of a warp, or of a warpgroup, holds.

    Attributes:
        lanes: The digits of the lane's number, most significant first.
        slots: The digits of the number of an element within a lane. Elements that share a 32-bit
            register follow each other.

    Raises:
        InvalidValueError: the lanes are not those of a warp or of a warpgroup, or two places
            hold one element.
    """

    lanes: tuple[Digit, ...] = field(converter=_digits)
    slots: tuple[Digit, ...] = field(converter=_digits)

    @lanes.validator
    def _check_lanes(self, attribute: Attribute[Any], value: tuple[Digit, ...]) -> None:
        count = math.prod(digit.extent for digit in value)
        if count not in (WARP_LANES, WARPGROUP_LANES):
            raise InvalidValueError(
                f"a fragment is of {count} lanes; a warp has {WARP_LANES}, a warpgroup "
                f"{WARPGROUP_LANES}"
            )

    def __attrs_post_init__(self) -> None:
        if not self._holds_all_once():
            self._refuse()

    def _holds_all_once(self) -> bool:
        """Tell if no two places hold one element; asked whenever a process starts, hence fast."""
        values: dict[str, set[int]] = {}
        for digit in (*self.lanes, *self.slots):
            steps = [value * digit.stride for value in range(digit.extent)]
            before = values.get(digit.axis, {0})
            values[digit.axis] = {start + step for start in before for step in steps}
        return {axis: len(found) for axis, found in values.items()} == self.extents

    def _refuse(self) -> NoReturn:
        places = [
            tuple(sorted(self.position(lane, slot).items()))
            for lane, slot in itertools.product(range(self.lane_count), range(self.elements))
        ]
        twice = next(place for place in places if places.count(place) > 1)
        raise InvalidValueError(f"a fragment holds element {dict(twice)} in two places")

    @property
    def lane_count(self) -> int:
        """Lanes that hold the operand together."""
        return math.prod(digit.extent for digit in self.lanes)

    @property
    def elements(self) -> int:
        """Elements that one lane holds."""
        return math.prod(digit.extent for digit in self.slots)

    @property
    def extents(self) -> dict[str, int]:
        """Values of each axis that the lanes hold together."""
        found: dict[str, int] = {}
        for digit in (*self.lanes, *self.slots):
            found[digit.axis] = found.get(digit.axis, 1) * digit.extent
        return found

    def registers(self, dtype: str) -> int:
        """32-bit registers of a lane for elements of ``dtype``."""
        return -(-self.elements * element_type(dtype).bytes // _REGISTER_BYTES)

    def position(self, lane: int, slot: int) -> dict[str, int]:
        """The index along each axis of the element in one place."""
        found = dict.fromkeys((digit.axis for digit in (*self.lanes, *self.slots)), 0)
        for number, digits in ((lane, self.lanes), (slot, self.slots)):
            for digit in reversed(digits):
                number, value = divmod(number, digit.extent)
                found[digit.axis] += value * digit.stride
        return found

    def row_starts(self, dtype: str) -> tuple[dict[str, int], ...]:
        """Beginnings of rows whose addresses lanes give to ``ldmatrix``, in the order of lanes.

        ``ldmatrix`` fills register ``m`` of all lanes from an 8x8 matrix of 32-bit words: its row
        ``g``, of 16 bytes, goes to the lanes of group ``g``. Lane ``8 m + g`` gives its address.
        So the row begins with the element that the first lane of the group holds first in that
        register. Rows must follow the axis along which elements share a register.
        """
        packed = max(1, _REGISTER_BYTES // element_type(dtype).bytes)
        return tuple(
            self.position(group * _GROUP_LANES, register * packed)
            for register in range(self.registers(dtype))
            for group in range(_GROUPS)
        )


def factor_fragments(depth: int, dtype: str) -> tuple[Fragment, Fragment]:
    """Fragments of the factors of ``m16n8kDEPTH``: 16 rows, and 8 columns, of elements ``dtype``.

    Raises:
        InvalidValueError: no such instruction has so many products.
    """
    packed = max(1, _REGISTER_BYTES // element_type(dtype).bytes)
    word = _GROUP_LANES * packed
    allowed = (word, 2 * word)
    if depth not in allowed:
        nearest = min(allowed, key=lambda known: abs(known - depth))
        raise InvalidValueError(
            f"no matrix instruction adds {depth} products of {dtype}; allowed: "
            f"{', '.join(map(str, allowed))}; nearest: {nearest}"
        )
    within, halves = (_GROUP_LANES, "k", packed), (depth // word, "k", word)
    left = Fragment(((_GROUPS, "i", 1), within), (halves, (2, "i", _GROUPS), (packed, "k", 1)))
    right = Fragment(((_GROUPS, "j", 1), within), (halves, (packed, "k", 1)))
    return left, right


def accumulator_fragment() -> Fragment:
    """The fragment of the 16x8 sums of 32 bits of every ``m16n8kK``."""
    lanes = ((_GROUPS, "i", 1), (_GROUP_LANES, "j", 2))
    return Fragment(lanes, ((2, "i", _GROUPS), (2, "j", 1)))


def warpgroup_accumulator_fragment() -> Fragment:
    """The fragment of 64x8 sums of 32 bits: every eight columns of ``wgmma``'s ``m64nNkK``.

    Each warp has 16 rows, as those of :func:`accumulator_fragment`.
    """
    warp = accumulator_fragment()
    warps = Digit(WARPGROUP_LANES // WARP_LANES, "i", warp.extents["i"])
    return Fragment((warps, *warp.lanes), warp.slots)
