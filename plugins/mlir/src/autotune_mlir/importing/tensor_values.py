"""Tensor values of a function in the words of its workload, joined and taken apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from autotune.ir.expressions import (
    Binary,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    const,
    index_bounds,
    maximum,
    minimum,
    simplify_index,
)
from autotune.ir.workloads import Tensor
from autotune_mlir.importing.scalar_import import Unsupported, defining

__all__ = [
    "JOINS",
    "Part",
    "PartAt",
    "TensorValue",
    "Uniform",
    "Unwritten",
    "View",
    "combined",
    "concatenated",
    "covers",
    "inserted",
    "is_inserted_into",
    "joined",
    "kept_dimensions",
    "sliced",
    "split_index",
]

_ON_INDICES: Mapping[str, Callable[[IntExpr, IntExpr | int], IntExpr]] = {
    "add": IntExpr.__add__,
    "sub": IntExpr.__sub__,
    "mul": IntExpr.__mul__,
    "max": maximum,
    "min": minimum,
}
_NEUTRAL = {"add": 0, "sub": 0, "mul": 1}


def combined(op: str, left: ScalarExpr, right: ScalarExpr | int) -> ScalarExpr:
    """Two indices combined, as an index expression where both are.

    Args:
        op: ``add``, ``sub``, ``mul``, ``max`` or ``min``.
        left: An index.
        right: An index, or a number.
    """
    if isinstance(right, int):
        if right == _NEUTRAL.get(op):
            return left
        right = IndexValue(const(right))
    if isinstance(left, IndexValue) and isinstance(right, IndexValue):
        return IndexValue(_ON_INDICES[op](left.index, right.index))
    return Binary(op, left, right)


@frozen
class View:
    """A part of a tensor of the workload, or all of it.

    Attributes:
        tensor: The tensor.
        shape: Extents of the value.
        offsets: Where it begins, in each dimension of the tensor.
        strides: Distances of its elements, in each dimension of the tensor.
        dimensions: The value's dimension by which each dimension of the tensor is read; None
            where it is read at one place.
    """

    tensor: Tensor
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    strides: tuple[int, ...]
    dimensions: tuple[int | None, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> View:
        """All of a tensor."""
        rank = len(tensor.shape)
        return cls(tensor, tensor.shape, (0,) * rank, (1,) * rank, tuple(range(rank)))

    @property
    def is_whole(self) -> bool:
        """True if it is the tensor itself."""
        return self == View.of(self.tensor)

    def element(
        self, indices: Sequence[ScalarExpr], extents: Mapping[str, int] | None = None
    ) -> ScalarExpr:
        """The element of the value at indices.

        Args:
            indices: An index for each dimension.
            extents: Extents of the axes of the indices; None for a read that is guarded, and may
                be outside.

        Raises:
            Unsupported: it is outside.
        """
        inside = list(indices)
        for position, index in enumerate(indices):
            if isinstance(index, IndexValue) and extents is not None:
                inside[position] = self._checked(index.index, position, extents)
        places: list[ScalarExpr] = []
        for begin, stride, own in zip(self.offsets, self.strides, self.dimensions, strict=True):
            if own is None:
                places.append(IndexValue(const(begin)))
            else:
                places.append(combined("add", combined("mul", inside[own], stride), begin))
        known = [place.index for place in places if isinstance(place, IndexValue)]
        if len(known) == len(places):
            return Load(self.tensor.name, tuple(known))
        return Gather(self.tensor.name, tuple(places))

    def _checked(self, index: IntExpr, position: int, extents: Mapping[str, int]) -> IndexValue:
        place, extent = simplify_index(index, extents), self.shape[position]
        low, high = index_bounds(place, extents)
        if low < 0 or high >= extent:
            raise Unsupported(
                f"index {position} of its read of {self.tensor.name!r} runs from {low} to {high}, "
                f"of {extent} elements"
            )
        return IndexValue(place)

    def part(
        self,
        offsets: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int],
        shape: Sequence[int],
    ) -> View:
        """A slice of the value.

        Args:
            offsets: Where it begins.
            sizes: Its extents.
            strides: Distances of its elements.
            shape: Its extents but for those of 1 that are left out.

        Raises:
            Unsupported: it is not inside.
        """
        for first, size, step, extent in zip(offsets, sizes, strides, self.shape, strict=True):
            last = first + (size - 1) * step
            if min(first, last) < 0 or max(first, last) >= extent:
                raise Unsupported(f"it reads from {first} to {last}, of {extent} elements")
        kept = kept_dimensions(sizes, shape)
        begins, steps, dimensions = list(self.offsets), list(self.strides), list(self.dimensions)
        for place, own in enumerate(self.dimensions):
            if own is not None:
                begins[place] += offsets[own] * steps[place]
                steps[place] *= strides[own]
                dimensions[place] = kept.index(own) if own in kept else None
        return View(self.tensor, tuple(shape), tuple(begins), tuple(steps), tuple(dimensions))

    def with_units(self, shape: Sequence[int]) -> View:
        """The value with other dimensions of extent 1."""
        longer = [place for place, extent in enumerate(shape) if extent != 1]
        old = [place for place, extent in enumerate(self.shape) if extent != 1]
        place_of = dict(zip(old, longer, strict=True))
        dimensions = [None if it is None else place_of.get(it) for it in self.dimensions]
        return evolve(self, shape=tuple(shape), dimensions=tuple(dimensions))


@frozen
class Uniform:
    """A tensor that holds one number everywhere."""

    number: Constant

    def element(
        self, indices: Sequence[ScalarExpr], extents: Mapping[str, int] | None = None
    ) -> ScalarExpr:
        """The number, wherever it is read."""
        del indices, extents
        return self.number


@frozen
class Unwritten:
    """A tensor that nothing was written to."""

    def element(
        self, indices: Sequence[ScalarExpr], extents: Mapping[str, int] | None = None
    ) -> ScalarExpr:
        """Raises Unsupported: there is nothing to read."""
        raise Unsupported("it reads a tensor that was never written (tensor.empty)")


TensorValue = View | Uniform | Unwritten


def kept_dimensions(sizes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of a slice that a tensor still has which leaves some of extent 1 out.

    Args:
        sizes: Extents of the slice.
        shape: Extents of the tensor.
    """
    kept: list[int] = []
    for dimension, size in enumerate(sizes):
        if len(kept) < len(shape) and size == shape[len(kept)]:
            kept.append(dimension)
    return tuple(kept)


def split_index(index: IntExpr, extents: Sequence[int]) -> list[IntExpr]:
    """The indices of several dimensions, outermost first, of which one index counts all places."""
    found: list[IntExpr] = []
    for number, extent in enumerate(extents):
        inner = math.prod(extents[number + 1 :])
        outermost = all(it == 1 for it in extents[:number])
        place = index // inner
        found.append(const(0) if extent == 1 else place if outermost else place % extent)
    return found


JOINS = ("tensor.concat", "tensor.insert_slice")
"""Operations that put a tensor together of others."""

# How MLIR writes that a number is not known before the program runs.
_DYNAMIC = -(1 << 63)

Read = Callable[[Any, Sequence[ScalarExpr]], ScalarExpr]


@frozen(eq=False)
class Part:
    """A tensor within another one.

    Attributes:
        value: The tensor.
        offsets: Where it begins: numbers, or values of the function.
        sizes: Its extents.
        strides: Distances of its elements.
        kept: The dimension that each of its own dimensions is; others are of extent 1.
    """

    value: Any
    offsets: tuple[Any, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def is_static(self) -> bool:
        """True if numbers say where it begins."""
        return all(isinstance(offset, int) for offset in self.offsets)

    def spans(self, dimension: int) -> int:
        """Number of places from the first element to the last one."""
        return (self.sizes[dimension] - 1) * self.strides[dimension] + 1

    def is_dense(self, dimension: int) -> bool:
        """Return whether it leaves out no place from its first element to its last one."""
        return self.sizes[dimension] == 1 or self.strides[dimension] == 1


def concatenated(operation: Any) -> list[Part]:
    """The parts that a ``tensor.concat`` puts side by side."""
    along = int(operation.attributes["dim"].value)
    rank = len(operation.results[0].type.shape)
    parts, begin = [], 0
    for value in operation.operands:
        shape = tuple(int(extent) for extent in value.type.shape)
        offsets = tuple(begin if dimension == along else 0 for dimension in range(rank))
        parts.append(Part(value, offsets, shape, (1,) * rank, tuple(range(rank))))
        begin += shape[along]
    return parts


def is_inserted_into(operation: Any) -> bool:
    """Tell if the only use of an insertion's result is that something else is inserted there."""
    uses = [(use.owner.operation, use.operand_number) for use in operation.results[0].uses]
    return [(user.name, number) for user, number in uses] == [("tensor.insert_slice", 1)]


def inserted(operation: Any) -> tuple[Any, list[Part]]:
    """The tensor that is inserted into first, and what is inserted, in order.

    Args:
        operation: The last of the insertions.
    """
    parts: list[Part] = []
    while True:
        parts.insert(0, _insertion(operation))
        base = operation.operands[1]
        producer = defining(base)
        if producer is None or producer.name != "tensor.insert_slice":
            return base, parts
        if not is_inserted_into(producer):
            return base, parts
        operation = producer


def _insertion(operation: Any) -> Part:
    offsets, sizes, strides = _places_of(operation, 2)
    if any(stride < 1 for stride in strides):
        raise Unsupported(
            f"it inserts with strides {list(strides)}; only positive ones are supported"
        )
    value = operation.operands[0]
    part = Part(value, offsets, sizes, strides, kept_dimensions(sizes, value.type.shape))
    for dimension, extent in enumerate(operation.results[0].type.shape):
        first = offsets[dimension]
        if isinstance(first, int) and (first < 0 or first + part.spans(dimension) > extent):
            last = first + part.spans(dimension) - 1
            raise Unsupported(f"it writes from {first} to {last}, of {extent} elements")
    return part


def sliced(operation: Any) -> Part:
    """The part that a ``tensor.extract_slice`` takes."""
    offsets, sizes, strides = _places_of(operation, 1)
    kept = kept_dimensions(sizes, operation.results[0].type.shape)
    return Part(operation.operands[0], offsets, sizes, strides, kept)


def _places_of(
    operation: Any, tensors: int
) -> tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...]]:
    """Offsets, which may be values, sizes and strides of a slice.

    Args:
        operation: That takes or writes a slice.
        tensors: How many of its operands are tensors.

    Raises:
        Unsupported: sizes or strides are values.
    """
    offsets, sizes, strides = (
        tuple(int(number) for number in operation.attributes[f"static_{name}"])
        for name in ("offsets", "sizes", "strides")
    )
    computed = list(operation.operands)[tensors:]
    if list(operation.attributes["operandSegmentSizes"])[tensors + 1 :] != [0, 0]:
        raise Unsupported("its sizes or strides are dynamic")
    rest = iter(computed)
    found = tuple(next(rest) if number == _DYNAMIC else number for number in offsets)
    return found, sizes, strides


def covers(parts: Sequence[Part], shape: Sequence[int]) -> bool:
    """Return whether parts, which may overlap, leave out no element."""
    # What is inserted with gaps covers nothing but itself.
    parts = [part for part in parts if all(map(part.is_dense, range(len(shape))))]
    if not all(part.is_static for part in parts):
        return False
    # Of each dimension, where a part begins or ends: what is between two cuts is one cell.
    cuts = [{0, int(extent)} for extent in shape]
    for part in parts:
        for found, first, size in zip(cuts, part.offsets, part.sizes, strict=True):
            found |= {first, first + size}
    places = [sorted(found) for found in cuts]
    covered = np.zeros([len(found) - 1 for found in places], bool)
    for part in parts:
        box = zip(places, part.offsets, part.sizes, strict=True)
        covered[
            tuple(slice(cut.index(first), cut.index(first + size)) for cut, first, size in box)
        ] = True
    return bool(covered.all())


def joined(
    parts: Sequence[Part],
    base: ScalarExpr | None,
    places: Sequence[ScalarExpr],
    shape: Sequence[int],
    read: Read,
    number: Callable[[Any], ScalarExpr],
) -> ScalarExpr:
    """The element of a join at a position.

    Args:
        parts: What it is put together of; later ones win.
        base: The element where there is no part; None where the parts leave out nothing.
        places: The position.
        shape: Extents of the join.
        read: The element of a part at indices.
        number: What a value of the function is that says where a part begins.
    """
    value = base
    for part in parts:
        reader = PartAt(part, places, shape, number)
        element = read(part.value, reader.indices())
        inside = reader.inside()
        value = element if value is None or inside is None else Select(inside, element, value)
    assert value is not None  # there are parts
    return value


class PartAt:
    """Place at which a part is read at a position of the whole.

    Args:
        part: The part.
        places: The position.
        shape: Extents of the whole.
        number: What a value of the function is.
    """

    def __init__(
        self,
        part: Part,
        places: Sequence[ScalarExpr],
        shape: Sequence[int],
        number: Callable[[Any], ScalarExpr],
    ) -> None:
        self._part, self._places, self._shape = part, places, shape
        self._begins: list[Any] = [
            it if isinstance(it, int) else number(it) for it in part.offsets
        ]

    def inside(self) -> ScalarExpr | None:
        """The condition under which the position is in the part; None where it always is."""
        found: ScalarExpr | None = None
        for dimension in range(len(self._places)):
            for bound in self._bounds(dimension):
                found = bound if found is None else Binary("and", found, bound)
        return found

    def _bounds(self, dimension: int) -> list[ScalarExpr]:
        part, place, begin = self._part, self._places[dimension], self._begins[dimension]
        span = part.spans(dimension)
        found: list[ScalarExpr] = []
        if not isinstance(begin, int):
            found.append(Binary("ge", place, begin))
            found.append(Binary("lt", place, combined("add", begin, span)))
        elif begin > 0:
            found.append(Binary("ge", place, IndexValue(const(begin))))
        if isinstance(begin, int) and begin + span < self._shape[dimension]:
            found.append(Binary("lt", place, IndexValue(const(begin + span))))
        if not part.is_dense(dimension):
            distance = self._distance(dimension)
            left = IndexValue(distance.index % part.strides[dimension])
            found.append(Binary("eq", left, IndexValue(const(0))))
        return found

    def _distance(self, dimension: int) -> Any:
        """Distance of the position behind the first element of the part; 0 before it."""
        begin, place = self._begins[dimension], self._places[dimension]
        if isinstance(begin, int) and begin == 0:
            return place
        distance = combined("max", combined("sub", place, begin), 0)
        if not (self._part.is_dense(dimension) or isinstance(distance, IndexValue)):
            raise Unsupported("it has strides where data says where it begins")
        return distance

    def indices(self) -> list[ScalarExpr]:
        """Indices of the part's element at the position, or else of one beside it."""
        part, found = self._part, []
        for dimension in part.kept:
            size, stride = part.sizes[dimension], part.strides[dimension]
            begin, place = self._begins[dimension], self._distance(dimension)
            if not part.is_dense(dimension):
                place = IndexValue(place.index // stride)
            last = (self._shape[dimension] - 1 - begin) if isinstance(begin, int) else size
            if last // stride >= size:
                place = combined("min", place, size - 1)
            found.append(place)
        return found
