"""Joins of tensors, and parts at computed places, as elementwise operations.

What is computed at a position says which of the tensors it is read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune_mlir.bindings import Bindings
from autotune_mlir.building import Builder
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.scalar_import import Unsupported, defining
from autotune_mlir.traversal import operations_in

__all__ = ["JOINS", "kept_dimensions", "read_through_slices", "replace_join", "replace_slice"]

JOINS = ("tensor.concat", "tensor.insert_slice")
"""Operations that put a tensor together of others."""


# How MLIR writes that a number is not known before the program runs.
_DYNAMIC = -(1 << 63)
# Predicates of arith.cmpi.
_EQUAL, _LESS, _AT_LEAST = 0, 2, 5


@frozen(eq=False)
class _Part:
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

    def spans(self, dimension: int) -> int:
        """How many places there are from the first element to the last one."""
        return (self.sizes[dimension] - 1) * self.strides[dimension] + 1


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


def replace_join(mlir: Bindings, operation: Any) -> None:
    """Replace an operation of :data:`JOINS` by an elementwise one.

    Insertions into the result of another one that nothing else reads are replaced with the last
    of them.

    Args:
        mlir: The bindings.
        operation: In the body of a function; shapes are static.

    Raises:
        Unsupported: where something is inserted is not known, or elements are never written.
    """
    if operation.name == "tensor.concat":
        base, parts, replaced = None, _concatenated(operation), [operation]
    elif _is_inserted_into(operation):
        return
    else:
        base, parts, replaced = _inserted(operation)
    result = operation.results[0]
    start = None if base is None else defining(base)
    if start is not None and start.name == "tensor.empty":
        if not _covers(parts, result.type.shape):
            raise Unsupported(
                "it leaves elements of a tensor that was never written (tensor.empty)"
            )
        base = None
    name = "concat" if base is None else "insert"
    with mlir.ir.InsertionPoint(operation), operation.location:
        made = _Join(mlir, result.type, parts, base).result(_stage_name(operation, name))
    result.replace_all_uses_with(made)
    for dead in replaced:
        dead.erase()


def _stage_name(operation: Any, name: str) -> str:
    attributes = operation.attributes
    return str(attributes[STAGE].value) if STAGE in attributes else name


def _concatenated(operation: Any) -> list[_Part]:
    along = int(operation.attributes["dim"].value)
    rank = len(operation.results[0].type.shape)
    parts, begin = [], 0
    for value in operation.operands:
        shape = tuple(int(extent) for extent in value.type.shape)
        offsets = tuple(begin if dimension == along else 0 for dimension in range(rank))
        parts.append(_Part(value, offsets, shape, (1,) * rank, tuple(range(rank))))
        begin += shape[along]
    return parts


def _is_inserted_into(operation: Any) -> bool:
    """Whether the only use of an insertion's result is that something else is inserted there."""
    uses = [(use.owner.operation, use.operand_number) for use in operation.results[0].uses]
    return [(user.name, number) for user, number in uses] == [("tensor.insert_slice", 1)]


def _inserted(operation: Any) -> tuple[Any, list[_Part], list[Any]]:
    """What is inserted into first, what is inserted in order, and by which operations.

    Operations are listed from the last one on.
    """
    parts: list[_Part] = []
    chain: list[Any] = []
    while True:
        parts.insert(0, _insertion(operation))
        chain.append(operation)
        base = operation.operands[1]
        producer = defining(base)
        if producer is None or producer.name != "tensor.insert_slice":
            return base, parts, chain
        if not _is_inserted_into(producer):
            return base, parts, chain
        operation = producer


def _insertion(operation: Any) -> _Part:
    offsets, sizes, strides = _places(operation, 2)
    if any(stride < 1 for stride in strides):
        raise Unsupported(f"it inserts with strides {strides}; only positive ones are supported")
    value = operation.operands[0]
    kept = kept_dimensions(sizes, value.type.shape)
    part = _Part(value, offsets, sizes, tuple(strides), kept)
    for dimension, extent in enumerate(operation.results[0].type.shape):
        first = offsets[dimension]
        if isinstance(first, int) and (first < 0 or first + part.spans(dimension) > extent):
            last = first + part.spans(dimension) - 1
            raise Unsupported(f"it writes from {first} to {last}, of {extent} elements")
    return part


def _places(operation: Any, tensors: int) -> tuple[tuple[Any, ...], tuple[int, ...], list[int]]:
    """Offsets, which may be values, sizes and strides of a slice.

    Args:
        operation: That takes a slice.
        tensors: How many of its operands are tensors.
    """
    offsets, sizes, strides = (
        [int(number) for number in operation.attributes[f"static_{name}"]]
        for name in ("offsets", "sizes", "strides")
    )
    computed = list(operation.operands)[tensors:]
    if list(operation.attributes["operandSegmentSizes"])[tensors + 1 :] != [0, 0]:
        raise Unsupported("its sizes or strides are dynamic")
    rest = iter(computed)
    found = tuple(next(rest) if number == _DYNAMIC else number for number in offsets)
    return found, tuple(sizes), strides


def replace_slice(mlir: Bindings, operation: Any) -> None:
    """Replace a ``tensor.extract_slice`` that begins where a number says by an elementwise one.

    Args:
        mlir: The bindings.
        operation: In the body of a function; shapes are static.

    Raises:
        Unsupported: its sizes or strides are dynamic.
    """
    part, result = _sliced(operation), operation.results[0]
    if all(isinstance(offset, int) for offset in part.offsets):
        return
    with mlir.ir.InsertionPoint(operation), operation.location:
        made = _Slice(mlir, result.type, part).result(_stage_name(operation, "slice"))
    result.replace_all_uses_with(made)
    operation.erase()


def _sliced(operation: Any) -> _Part:
    """The tensor that a ``tensor.extract_slice`` takes a part of, and the part."""
    offsets, sizes, strides = _places(operation, 1)
    kept = kept_dimensions(sizes, operation.results[0].type.shape)
    return _Part(operation.operands[0], offsets, sizes, tuple(strides), kept)


def read_through_slices(mlir: Bindings, block: Any) -> None:
    """Have bodies extract elements from what a tensor is a slice of, and not from the slice.

    The vectors of these reads count elements by extents. Elements of a slice lie farther apart in
    memory, and vectors of them would be others.

    Args:
        mlir: The bindings.
        block: The body of a function; slices begin at numbers.
    """
    for view in list(block.operations):
        for operation in list(operations_in(view.operation)):
            if operation.name != "tensor.extract":
                continue
            while (part := _slice_of(operation.operands[0])) is not None:
                operation = _extracted_before(mlir, operation, part)


def _slice_of(value: Any) -> Any | None:
    """The operation that takes the slice that a value is; None where it is none."""
    producer = defining(value)
    return producer if producer is not None and producer.name == "tensor.extract_slice" else None


def _extracted_before(mlir: Bindings, operation: Any, producer: Any) -> Any:
    """What extracts an element of a slice, replaced by what extracts it from the whole tensor."""
    with mlir.ir.InsertionPoint(operation), operation.location:
        part, places = _sliced(producer), list(operation.operands)[1:]
        read = _Slice(mlir, producer.results[0].type, part).element(places)
    operation.results[0].replace_all_uses_with(read)
    operation.erase()
    return defining(read)


def _covers(parts: Sequence[_Part], shape: Sequence[int]) -> bool:
    """Whether parts, which may overlap, leave out no element."""
    # What is inserted with gaps covers nothing but itself.
    parts = [part for part in parts if all(map(_is_dense, part.sizes, part.strides))]
    if any(not isinstance(offset, int) for part in parts for offset in part.offsets):
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


def _is_dense(size: int, stride: int) -> bool:
    return size == 1 or stride == 1


class _Elementwise:
    """An elementwise operation that reads tensors at places that it computes.

    Args:
        mlir: The bindings; there is an insertion point.
        kind: Type of the result.
        base: A tensor of this type that is read, too; None where there is none.
    """

    def __init__(self, mlir: Bindings, kind: Any, base: Any | None = None) -> None:
        self._ir = mlir.ir
        self._build = Builder(mlir)
        self._kind = kind
        self._base = base
        self._index = mlir.ir.IndexType.get()

    def result(self, name: str) -> Any:
        """The result of the operation, which is marked as a stage called ``name``."""
        inputs = [] if self._base is None else [self._base]
        maps = [self._ir.AffineMap.get_identity(self._kind.rank)] * (len(inputs) + 1)
        stage = self._build.generic(name, inputs, maps, self._build.empty(self._kind))
        body = stage.regions[0].blocks.append(*[self._kind.element_type] * len(maps))
        with self._ir.InsertionPoint(body):
            whole = self._ir.IntegerType.get_signless(64)
            places = [
                self._create("linalg.index", self._index, dim=self._ir.IntegerAttr.get(whole, it))
                for it in range(self._kind.rank)
            ]
            value = self._value(places, list(body.arguments)[:-1])
            self._ir.Operation.create("linalg.yield", operands=[value])
        return stage.results[0]

    def _value(self, places: Sequence[Any], given: Sequence[Any]) -> Any:
        """What is computed at a position, with the element of the base where there is one."""
        raise NotImplementedError

    def _number(self, value: Any) -> Any:
        """A value of type index for a number, or the value that it is."""
        if not isinstance(value, int):
            return value
        return self._build.scalar(self._ir.IntegerAttr.get(self._index, value), self._index)

    def _create(self, name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        create = self._ir.Operation.create
        return create(name, [kind], list(operands), attributes or None).results[0]


class _Slice(_Elementwise):
    """An elementwise operation that reads a part of a tensor.

    Args:
        mlir: The bindings; there is an insertion point.
        kind: Type of the result.
        part: The tensor and the part of it that is read.
    """

    def __init__(self, mlir: Bindings, kind: Any, part: _Part) -> None:
        super().__init__(mlir, kind)
        self._part = part

    def _value(self, places: Sequence[Any], given: Sequence[Any]) -> Any:
        return self.element(places)

    def element(self, places: Sequence[Any]) -> Any:
        """The element of the part at a position, extracted from the tensor."""
        indices = [self._number(offset) for offset in self._part.offsets]
        for dimension, place in zip(self._part.kept, places, strict=True):
            stride = self._number(self._part.strides[dimension])
            step = self._create("arith.muli", self._index, place, stride)
            indices[dimension] = self._create("arith.addi", self._index, step, indices[dimension])
        return self._create("tensor.extract", self._kind.element_type, self._part.value, *indices)


class _Join(_Elementwise):
    """An elementwise operation that reads parts of its result.

    Args:
        mlir: The bindings; there is an insertion point.
        kind: Type of the result.
        parts: What is read where; later ones win.
        base: What is read elsewhere; None where the parts leave out nothing.
    """

    def __init__(
        self, mlir: Bindings, kind: Any, parts: Sequence[_Part], base: Any | None
    ) -> None:
        super().__init__(mlir, kind, base)
        self._parts = parts
        self._truth = mlir.ir.IntegerType.get_signless(1)

    def _value(self, places: Sequence[Any], given: Sequence[Any]) -> Any:
        parts = list(self._parts)
        value = given[0] if given else self._read(parts.pop(0), places)
        for part in parts:
            value = self._chosen(part, places, value)
        return value

    def _chosen(self, part: _Part, places: Sequence[Any], other: Any) -> Any:
        """The element of a part where there is one, and ``other`` elsewhere."""
        inside: Any = None
        for dimension, place in enumerate(places):
            for bound in self._bounds(part, dimension, place):
                joined = bound
                if inside is not None:
                    joined = self._create("arith.andi", self._truth, inside, bound)
                inside = joined
        read = self._read(part, places)
        if inside is None:
            return read
        return self._create("arith.select", read.type, inside, read, other)

    def _bounds(self, part: _Part, dimension: int, place: Any) -> list[Any]:
        """Comparisons that hold where a position is inside of a part."""
        begin, span = part.offsets[dimension], part.spans(dimension)
        extent = int(self._kind.shape[dimension])
        found = []
        if not isinstance(begin, int):
            end = self._create("arith.addi", self._index, begin, self._number(span))
            found += [self._compared(_AT_LEAST, place, begin), self._compared(_LESS, place, end)]
        elif begin > 0:
            found.append(self._compared(_AT_LEAST, place, begin))
        if isinstance(begin, int) and begin + span < extent:
            found.append(self._compared(_LESS, place, begin + span))
        if not _is_dense(part.sizes[dimension], part.strides[dimension]):
            distance = self._distance(part, dimension, place)
            stride = self._number(part.strides[dimension])
            left = self._create("arith.remui", self._index, distance, stride)
            found.append(self._compared(_EQUAL, left, 0))
        return found

    def _distance(self, part: _Part, dimension: int, place: Any) -> Any:
        """How far a position is behind the first element of a part; 0 before it."""
        begin = part.offsets[dimension]
        if isinstance(begin, int) and begin == 0:
            return place
        place = self._create("arith.subi", self._index, place, self._number(begin))
        return self._create("arith.maxsi", self._index, place, self._number(0))

    def _read(self, part: _Part, places: Sequence[Any]) -> Any:
        """The element of a part at a position, or one beside it where there is none."""
        indices = []
        for dimension in part.kept:
            begin, size = part.offsets[dimension], part.sizes[dimension]
            place = self._distance(part, dimension, places[dimension])
            if not _is_dense(size, part.strides[dimension]):
                stride = self._number(part.strides[dimension])
                place = self._create("arith.divui", self._index, place, stride)
            last = (self._kind.shape[dimension] - 1 - begin) if isinstance(begin, int) else size
            if last // part.strides[dimension] >= size:
                place = self._create("arith.minsi", self._index, place, self._number(size - 1))
            indices.append(place)
        return self._create("tensor.extract", self._kind.element_type, part.value, *indices)

    def _compared(self, predicate: int, place: Any, bound: Any) -> Any:
        number = self._ir.IntegerAttr.get(self._ir.IntegerType.get_signless(64), predicate)
        bounded = self._number(bound)
        return self._create("arith.cmpi", self._truth, place, bounded, predicate=number)
