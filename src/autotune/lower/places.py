"""Places of buffers: in the caller's arrays, in scratch memory, on the stack or in registers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.concrete import ConcreteStatement, Number
from autotune.lower.elementary import ELEMENTARY
from autotune.lower.linear import Digits, Linear
from autotune.nest import Buffer, LoopNest
from autotune.nest.loop_nest import Access

__all__ = ["Place", "PlaceKind", "address", "expanded_loops", "from_corner", "placed", "within"]

PlaceKind = Literal["argument", "scratch", "stack", "registers"]

MOST_REGISTERS = 64
"""Vectors, at most, of a buffer that is kept in registers."""

MOST_STACK_BYTES = 32768
"""Size of the largest buffer on the stack; larger ones are scratch memory of the caller."""

MOST_COPIES = 256
"""Copies of a statement, at most, that fixed registers make of it."""

_MOST_COPIES_AROUND_LOOPS = 8
_MOST_COPIES_UNASKED = 16
# An elementary function is a polynomial and the range reduction around it.
_STATEMENTS_OF_A_FUNCTION = 12


@frozen(eq=False)
class Place:
    """The place of a buffer, and how its elements lie there.

    Attributes:
        name: The buffer's name.
        dtype: Its element type.
        kind: What it is made of.
        shape: Allocated extents, in the order of ``order`` or of the layout.
        depth: Number of loops around its allocation.
        order: Indices, the one whose neighbours lie side by side last.
        block_dim: As :class:`~autotune.nest.Buffer`.
        group_dim: As :class:`~autotune.nest.Buffer`.
        lanes: Elements of one register.
        is_copy: Whether it holds a part of an operand, from the corner of a tile on.
    """

    name: str
    dtype: str
    kind: PlaceKind
    shape: tuple[int, ...]
    depth: int = 0
    order: tuple[int, ...] = ()
    block_dim: int | None = None
    group_dim: int | None = None
    lanes: int = 1
    is_copy: bool = False

    @property
    def elements(self) -> int:
        """The number of elements that it has room for."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size of its memory."""
        return self.elements * element_type(self.dtype).bytes

    @property
    def is_plain(self) -> bool:
        """Tell whether its extents follow its indices."""
        return self.block_dim is None and self.group_dim is None

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each index of a plain place."""
        found, stride = [0] * len(self.shape), 1
        for index in reversed(self.order):
            found[index] = stride
            stride *= self.shape[index]
        return tuple(found)


def address(place: Place, indices: Sequence[Linear], digits: Digits) -> Linear:
    """The place of an element, counted in elements from the beginning of its buffer."""
    if place.is_plain:
        result = Linear()
        for index, stride in zip(indices, place.strides, strict=True):
            result = result + index * stride
        return result
    found, groups = list(indices), []
    if place.group_dim is not None:
        size = place.shape[-1]
        groups = [digits.remainder(found[place.group_dim], size)]
        found[place.group_dim] = digits.quotient(found[place.group_dim], size)
    if place.block_dim is not None:
        block = place.shape[-1 - len(groups)]
        blocked = found.pop(place.block_dim)
        found = [digits.quotient(blocked, block), *found, digits.remainder(blocked, block)]
    result = Linear()
    for index, extent in zip([*found, *groups], place.shape, strict=True):
        result = result * extent + index
    return result


Touch = tuple[ConcreteStatement, Access]


def placed(
    nest: LoopNest,
    arguments: Mapping[str, tuple[str, tuple[int, ...]]],
    statements: Sequence[ConcreteStatement],
    number: Number,
    digits: Digits,
) -> dict[str, Place]:
    """The place of every buffer.

    Args:
        nest: The nest that allocates them.
        arguments: Element type and shape of each array of the caller.
        statements: All that the program runs.
        number: Values of expressions over parameters.
        digits: Those of the program.

    Raises:
        UnsupportedWorkload: a buffer has a layout of a GPU's shared memory.
    """
    touches: dict[str, list[Touch]] = {}
    for statement in statements:
        for access in statement.source.accesses:
            touches.setdefault(access.buffer, []).append((statement, access))
    found = {
        name: Place(name, dtype, "argument", shape, order=tuple(range(len(shape))))
        for name, (dtype, shape) in arguments.items()
    }
    for buffer in nest.buffers:
        place = _in_memory(buffer, number)
        touching = touches.get(buffer.name, [])
        filled = any(it.source.role == "pack" and access.write for it, access in touching)
        place = evolve(place, is_copy=filled and place.depth > 0)
        found[buffer.name] = _with_lanes_last(place, touching, digits)
    return found


def _in_memory(buffer: Buffer, number: Number) -> Place:
    if buffer.dims is not None or buffer.stages.value != 1:
        raise UnsupportedWorkload(f"buffer {buffer.name!r} lies as a GPU's shared memory")
    shape = tuple(number(extent) for extent in buffer.shape)
    place = Place(
        *(buffer.name, buffer.dtype, "stack", shape, buffer.depth),
        order=tuple(range(len(shape))),
        block_dim=buffer.block_dim,
        group_dim=buffer.group_dim,
    )
    inside = buffer.depth > 0 and place.bytes <= MOST_STACK_BYTES
    return place if inside else evolve(place, kind="scratch")


def _with_lanes_last(place: Place, touches: Sequence[Touch], digits: Digits) -> Place:
    """The place with the index of vectors last, in registers if all of its accesses can be."""
    if not place.is_plain:
        return place
    fixed, lanes, along = place.depth > 0, set(), set()
    for statement, access in touches:
        for index, form in enumerate(access.forms):
            try:
                linear = _inside(statement, form, place, digits)
            except UnsupportedWorkload:
                fixed = False
                continue
            fixed = fixed and not any(name in digits.derived for name in linear.digits)
            lane = statement.lane
            if lane is not None and linear.coefficient(lane):
                lanes.add(statement.loops[-1].extent)
                along.add((index, linear.coefficient(lane)))
    if len(along) == 1:
        ((index, step),) = along
        if step == 1:
            place = evolve(place, order=(*(i for i in place.order if i != index), index))
    if along and (len(along) > 1 or next(iter(along))[1] != 1):
        fixed = False
    width = lanes.pop() if len(lanes) == 1 else 1
    whole = not lanes and place.elements % width == 0
    if width > 1:
        whole = whole and place.shape[place.order[-1]] % width == 0
    if not fixed or not whole or place.elements // width > MOST_REGISTERS:
        return place
    if not all(_has_fixed_places(place, *touch, digits) for touch in touches):
        return place
    return evolve(place, kind="registers", lanes=width)


def within(statement: ConcreteStatement, index: Linear, place: Place, digits: Digits) -> Linear:
    """An index within a place's allocation; in a copy, from its corner on."""
    return from_corner(statement, statement.inside(index, place.depth, digits), place)


def from_corner(statement: ConcreteStatement, linear: Linear, place: Place) -> Linear:
    """An index that moves within a place's allocation; in a copy, from its corner on."""
    if not place.is_copy:
        return linear
    extents = {loop.name: loop.extent for loop in statement.loops}
    falls = sum(
        factor * (extents[digit] - 1)
        for digit, factor in linear.terms
        if factor < 0 and digit in extents
    )
    return linear - (linear.constant + falls)


def _inside(statement: ConcreteStatement, form: object, place: Place, digits: Digits) -> Linear:
    index = digits.of_form(form, statement.axes)  # type: ignore[arg-type]
    return within(statement, index, place, digits)


def expanded_loops(
    statement: ConcreteStatement, access: Access, place: Place, digits: Digits
) -> dict[str, int]:
    """Loops, with their numbers, that an access to fixed registers takes expanded."""
    return {
        digit: statement.depth(digit, digits)
        for form in access.forms
        for digit in _inside(statement, form, place, digits).digits
        if digit != statement.lane
    }


def _has_fixed_places(
    place: Place, statement: ConcreteStatement, access: Access, digits: Digits
) -> bool:
    """Tell whether the loops that an access moves in can be expanded with a bearable result."""
    if statement.source.role == "pack" or _is_called_in_memory(statement, access):
        return False
    expanded = set(expanded_loops(statement, access, place, digits).values())
    functions = sum(statement.source.operations.get(name, 0) for name in ELEMENTARY)
    copies, unasked = 1 + _STATEMENTS_OF_A_FUNCTION * functions, 1
    combined = _combines(statement)
    loops = list(enumerate(statement.loops))
    for depth, loop in loops:
        if depth in expanded:
            if len(loop.axes) > 1 or loop.bound is not None:
                return False
            copies *= loop.extent
            if loop.kind != "unrolled" and combined:
                unasked *= loop.extent
    around = any(
        depth > min(expanded, default=len(loops))
        and depth not in expanded
        and loop.kind != "unrolled"
        and loop.name != statement.lane
        and loop.extent > 1
        for depth, loop in loops
    )
    most = _MOST_COPIES_AROUND_LOOPS if around else MOST_COPIES
    return copies <= most and unasked <= _MOST_COPIES_UNASKED


def _is_called_in_memory(statement: ConcreteStatement, access: Access) -> bool:
    """Tell whether an instruction takes it from memory: factors, and sums that have rows."""
    if statement.intrinsic is None:
        return False
    has_rows = len(statement.intrinsic.spatial_axes) > 1
    return has_rows or access.buffer != statement.write.buffer


def _combines(statement: ConcreteStatement) -> bool:
    """Tell whether it adds to what is there, as far as the nest's operations tell."""
    return statement.source.role == "compute" and any(
        not access.write and access.buffer == statement.write.buffer
        for access in statement.source.accesses
    )
