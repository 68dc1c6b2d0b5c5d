"""An instruction on small tensors, described as data.

Fragments: which lane of a warp holds which elements of an operand, in which register.

A warp's matrix instruction reads its operands from registers. The layouts here are those of
``mma.sync.aligned.m16n8kK.row.col`` (PTX ISA, "Matrix Fragments for mma"), written as data: what
loads, stores and tests do follows from them. The sums of ``wgmma.mma_async`` are held by the 128
lanes of a warpgroup, four warps in a row.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from attrs import Attribute, field, frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Axis
from autotune.targets import Target
from autotune.targets.target import compute_capability

__all__ = [
    "WARPGROUP_LANES",
    "WARP_LANES",
    "Digit",
    "Fragment",
    "Intrinsic",
    "IntrinsicOperand",
    "accumulator_fragment",
    "factor_fragments",
    "result_levels",
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


# Of the columns of an instruction of a warpgroup (PTX ISA, "Matrix Shape" of `wgmma`).
_MOST_EIGHTS = 32


@frozen
class IntrinsicOperand:
    """A tensor that an instruction reads or updates.

    Attributes:
        name: What the declaration calls it.
        dtype: Element type.
        layout: How its elements follow each other in memory, outermost first: pairs of an axis
            and how many values of it one dimension holds. An axis may be there twice: its outer
            part counts groups of as many values as its inner part has.
        scope: The memory that it must be in: ``"global"`` is the machine's ordinary memory, any
            other name is a memory of its own, with a capacity.
        row_stride: Whether rows of the outermost dimension may be apart in memory. Otherwise all
            elements lie together.
        fragment: Which lane of a warp, or of a warpgroup, holds which of its elements; None for
            an instruction of one thread, for what is read from memory, or where the hardware does
            not say.
    """

    name: str
    dtype: str = field()
    layout: tuple[tuple[str, int], ...]
    scope: str = "global"
    row_stride: bool = False
    fragment: Fragment | None = None

    @dtype.validator
    def _check_dtype(self, attribute: Attribute[Any], value: str) -> None:
        element_type(value)

    @property
    def elements(self) -> int:
        """Elements that one call reads or updates."""
        return math.prod(extent for _, extent in self.layout)

    @property
    def bytes(self) -> int:
        """Bytes that one call reads or updates."""
        return self.elements * element_type(self.dtype).bytes

    def strides(self, axis: str) -> tuple[tuple[int, int], ...]:
        """For every part of ``axis``, outermost first, its extent and its stride in elements."""
        found = []
        for position, (name, extent) in enumerate(self.layout):
            if name == axis:
                inside = math.prod(size for _, size in self.layout[position + 1 :])
                found.append((extent, inside))
        return tuple(found)


def _frozen_map(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))


@frozen
class Intrinsic:
    """``result[...] += left[...] * right[...]`` over small extents, as one instruction.

    Attributes:
        name: What steps call it.
        description: One line for people.
        axes: Extents of one call. Loops of a stage that become calls have these extents.
        left: The first factor.
        right: The second factor, whose elements differ along the last spatial axis.
        result: What is updated.
        kind: Kind of target that has it.
        features: Features that the target must have.
        architecture: CUDA: the first compute capability that has it, such as 80; 0: all have.
        last_architecture: CUDA: the last one that has it; 0: none is.
        implementations: By the name of a backend, the import string ``"module:attribute"`` of
            what that backend makes its calls of.
        capacities: Bytes of each scope except ``"global"``; a scope that is missing is bounded
            by nothing but the tiles that fit it.
        corrected: Whether sums are too large by what depends on the right factor alone, which
            backends take off once for all terms: loops over these are then run to their ends.

    Raises:
        InvalidValueError: axes and layouts contradict each other.
    """

    name: str
    description: str
    axes: tuple[Axis, ...]
    left: IntrinsicOperand
    right: IntrinsicOperand
    result: IntrinsicOperand
    kind: str = "cpu"
    features: tuple[str, ...] = ()
    architecture: int = 0
    last_architecture: int = 0
    implementations: Mapping[str, str] = field(factory=dict, converter=_frozen_map, hash=False)
    capacities: Mapping[str, int] = field(factory=dict, converter=_frozen_map, hash=False)
    corrected: bool = False

    def __attrs_post_init__(self) -> None:
        extents = {axis.name: axis.extent for axis in self.axes}
        reduced = {axis.name for axis in self.reduce_axes}
        for operand in self.operands:
            held: dict[str, int] = {}
            for axis, extent in operand.layout:
                held[axis] = held.get(axis, 1) * extent
            for axis, extent in held.items():
                if extents.get(axis) != extent:
                    raise InvalidValueError(
                        f"intrinsic {self.name!r}: operand {operand.name!r} holds {extent} values "
                        f"of axis {axis!r}, which has {extents.get(axis, 'no')}; axes: "
                        + ", ".join(f"{name} {size}" for name, size in extents.items())
                    )
            self._check_fragment(operand)
        if reduced & {axis for axis, _ in self.result.layout}:
            raise InvalidValueError(f"intrinsic {self.name!r}: the result has a reduce axis")

    def _check_fragment(self, operand: IntrinsicOperand) -> None:
        if operand.fragment is None:
            return
        held, used = operand.fragment.extents, dict(operand.layout)
        if held != used:
            raise InvalidValueError(
                f"intrinsic {self.name!r}: the fragment of operand {operand.name!r} is of "
                f"{held}, the operand of {used}"
            )

    @property
    def operands(self) -> tuple[IntrinsicOperand, ...]:
        """The factors and the result."""
        return (self.left, self.right, self.result)

    @property
    def spatial_axes(self) -> tuple[Axis, ...]:
        """Axes of the result."""
        return tuple(axis for axis in self.axes if axis.kind == "spatial")

    @property
    def reduce_axes(self) -> tuple[Axis, ...]:
        """Axes that are summed over."""
        return tuple(axis for axis in self.axes if axis.kind == "reduce")

    @property
    def lanes(self) -> int:
        """Threads that execute it together: 32 of a warp, 128 of a warpgroup; else 1."""
        return 1 if self.result.fragment is None else self.result.fragment.lane_count

    def takes_columns(self, eights: int) -> bool:
        """Return whether an instruction of a warpgroup has as many columns: 8 to 256, in eights.

        With sums of whole numbers, those above 32 are in sixteens.
        """
        whole = not element_type(self.result.dtype).is_float
        return 1 <= eights <= _MOST_EIGHTS and not (whole and eights > 4 and eights % 2)

    @property
    def is_of_warpgroup(self) -> bool:
        """True if four warps execute it together."""
        return self.lanes == WARPGROUP_LANES

    @property
    def rounds_when_fetched(self) -> bool:
        """True if its factors are to be rounded where they are copied for it: it cuts bits off."""
        return self.is_of_warpgroup and self.left.dtype == "float32"

    def supported_by(self, target: Target) -> bool:
        """Return whether ``target`` has the instruction."""
        if target.kind != self.kind or not set(self.features) <= set(target.features):
            return False
        return self.belongs_to(target.processor)

    def belongs_to(self, processor: str) -> bool:
        """Return whether the instruction set of a processor has it; CPUs' are told by features."""
        capability = compute_capability(processor)
        return self.architecture <= capability <= (self.last_architecture or capability)

    def implementation(self, backend: str) -> Any:
        """Return the implementation that ``backend`` makes calls of.

        Raises:
            InvalidValueError: there is none, or it cannot be imported.
        """
        if backend not in self.implementations:
            known = ", ".join(self.implementations) or "no backend"
            raise InvalidValueError(
                f"intrinsic {self.name!r} is implemented for {known}, not for {backend!r}"
            )
        path = self.implementations[backend]
        module, _, attribute = path.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise InvalidValueError(
                f"implementation of {self.name!r}: {path!r} cannot be imported: {error}"
            ) from error


def result_levels(intrinsic: Intrinsic, axis: str) -> tuple[Digit, ...]:
    """The digits of a spatial axis in the fragment of the result, the largest stride first.

    Some are of lanes, the others of the elements of one lane.

    Raises:
        InvalidValueError: the declaration does not say which lane holds which result.
    """
    fragment = intrinsic.result.fragment
    if fragment is None:
        raise InvalidValueError(f"intrinsic {intrinsic.name!r} declares no fragment of its result")
    own = [digit for digit in (*fragment.lanes, *fragment.slots) if digit.axis == axis]
    return tuple(sorted(own, key=lambda digit: -digit.stride))
