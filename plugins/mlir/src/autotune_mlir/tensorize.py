"""Contractions of small tiles as calls of instructions, in programs on buffers.

A schedule leaves a note in an attribute of the function: which stages are run as calls of which
instruction. A tile of such a stage is a contraction of vectors, as deep as a call is, which is
found by the place in the program's text that it comes from. It becomes calls on vectors of the
instruction's width; their right factors are read from a packed copy that is interleaved
(:mod:`autotune_mlir.interleave`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from autotune.backends import InvalidSchedule
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic
from autotune_mlir.dot_products import DotProduct
from autotune_mlir.emit import STAGE
from autotune_mlir.interleave import Groups, copy_behind, flat, interleave
from autotune_mlir.locations import positions
from autotune_mlir.scalar_import import defining

__all__ = ["PRODUCTS", "TENSORIZE", "body_positions", "mark_of", "tensorize"]

TENSORIZE = "autotune.tensorize"
"""Attribute of a function: which stages are calls of which instruction."""

PRODUCTS = "products"
"""The last sequence of a schedule with such stages: it is for what they leave."""

_SEPARATOR = "; "
_WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui"})
_SAME_ELEMENTS = frozenset({*_WIDENING, "vector.broadcast", "vector.shape_cast", "vector.transpose"})

_Labels = tuple[int | None, ...]


def mark_of(instructions: Mapping[str, str]) -> str:
    """The value of the attribute: names of instructions by stage."""
    return _SEPARATOR.join(f"{name} {stage}" for stage, name in instructions.items())


def body_positions(ir: Any, module: Any) -> dict[str, set[str]]:
    """Where what computes each stage is in the text that a program was parsed from.

    Args:
        ir: The ``ir`` module of the bindings.
        module: The program, before its schedule.
    """
    found: dict[str, set[str]] = {}

    def visit(operation: Any) -> Any:
        if STAGE in operation.attributes:
            places = found[str(operation.attributes[STAGE].value)] = positions(operation)
            for region in operation.regions:
                for block in region.blocks:
                    places.update(*(positions(inner) for inner in block.operations))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def tensorize(ir: Any, kernel: Any, places: Mapping[str, set[str]], *, parallel: bool) -> None:
    """Make calls of instructions of the marked stages' contractions.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on buffers; loses the attribute.
        places: As of :func:`body_positions`.
        parallel: Whether loops may run on several threads.

    Raises:
        InvalidSchedule: a contraction is none of the instruction's.
    """
    if TENSORIZE not in kernel.attributes:
        return
    marks = [mark.split(" ", 1) for mark in kernel.attributes[TENSORIZE].value.split(_SEPARATOR)]
    del kernel.attributes[TENSORIZE]
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == "vector.contract":
            found.append(operation.operation)
        return ir.WalkResult.ADVANCE

    kernel.walk(visit)
    for name, stage in marks:
        own = [operation for operation in found if places[stage] & positions(operation)]
        if not own:
            raise InvalidSchedule(f"no contraction of {stage!r} can be calls of {name!r}")
        intrinsic = find_intrinsic(name)
        calls = [_Calls(ir, operation, intrinsic) for operation in own]
        for copy, readers in _by_copy(calls):
            groups = readers[0].groups
            if any(call.groups != groups for call in readers):
                raise InvalidSchedule(f"calls of {name!r} read {copy.type} as rows of two lengths")
            interleave(ir, copy, groups, [call.read for call in readers], parallel=parallel)
        for call in calls:
            call.replace()


def _by_copy(calls: Sequence[_Calls]) -> list[tuple[Any, list[_Calls]]]:
    """Calls by the copy that they read."""
    found: list[tuple[Any, list[_Calls]]] = []
    for call in calls:
        copy = copy_behind(call.read.operands[0])
        known = next((readers for other, readers in found if other == copy), None)
        if known is None:
            found.append((copy, [call]))
        else:
            known.append(call)
    return found


@frozen
class _Factor:
    """A vector that a contraction reads, as it was before it was brought into form.

    Attributes:
        value: The vector.
        labels: For each of its dimensions the iterator of the contraction that moves along it;
            None where there is a single element.
    """

    value: Any
    labels: _Labels


@define(eq=False)
class _Calls:
    """The calls that a contraction becomes."""

    ir: Any
    operation: Any
    intrinsic: Intrinsic
    lanes: int = field(init=False)
    read: Any = field(init=False)
    extents: dict[int, int] = field(init=False, factory=dict)
    left: _Factor = field(init=False)
    _right: _Factor = field(init=False)
    _result: list[int] = field(init=False)
    grouped: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.lanes = self.intrinsic.spatial_axes[-1].extent
        maps = [_dimensions(it) for it in self.operation.attributes["indexing_maps"]]
        for value, labels in zip(self.operation.operands, maps, strict=False):
            self.extents.update(zip(labels, _shape(value), strict=True))
        self._result = maps[2]
        factors = [
            _source(value, tuple(labels))
            for value, labels in zip(list(self.operation.operands)[:2], maps, strict=False)
        ]
        lane = self.lane
        moving = [factor for factor in factors if lane in factor.labels]
        others = [factor for factor in factors if lane not in factor.labels]
        if len(moving) != 1 or len(others) != 1:
            raise self._refused("both factors or none move along its lanes")
        (self.left,), (self._right,) = others, moving
        self.grouped = self._find_group()
        self.read = self._find_read()

    @property
    def lane(self) -> int:
        """The iterator along the lanes."""
        return self._result[-1]

    @property
    def groups(self) -> Groups:
        """How its right factor has to lie in memory."""
        row = [extent for extent in _shape(self.read.operands[0]) if extent > 1][-1]
        return Groups(self.extents[self.grouped], row, self.lanes)

    def replace(self) -> None:
        """Put the calls in the place of the contraction."""
        ir, operation = self.ir, self.operation
        with ir.InsertionPoint(operation), operation.location:
            self._replace(_Maker(ir))
        _erase_unused(operation)

    def _replace(self, make: _Maker) -> None:
        rows = [label for label in self._result[:-1]]
        sums = [
            label for label in self.extents if label not in (*self._result, self.grouped)
        ]
        reading = _Reading(self, make)
        total = self.operation.operands[2]
        for row in itertools.product(*(range(self.extents[label]) for label in rows)):
            lanes = make.extracted(total, row)
            for first in range(0, self.extents[self.lane], self.lanes):
                part = make.part(lanes, first, self.lanes)
                for summed in itertools.product(*(range(self.extents[it]) for it in sums)):
                    at = dict(zip((*rows, *sums), (*row, *summed), strict=True))
                    part = reading.add(part, at, first)
                lanes = make.with_part(lanes, part, first)
            total = make.inserted(total, lanes, row)
        self.operation.results[0].replace_all_uses_with(total)

    def _find_group(self) -> int:
        depth = self.intrinsic.reduce_axes[0].extent
        group = self.left.labels[-1]
        if group is None or group in self._result or self.extents[group] != depth:
            raise self._refused(f"its left factor has no {depth} neighbours to sum over")
        return group

    def _find_read(self) -> Any:
        read = defining(self._right.value)
        if read is None or read.name != "vector.transfer_read":
            raise self._refused("its right factor is not read from memory")
        inside = all(str(it) == "true" for it in read.attributes["in_bounds"])
        if not inside or list(read.attributes["operandSegmentSizes"])[-1]:
            raise self._refused("its right factor has margins")
        if read.operands[0].type.layout != self.ir.AffineMapAttr.get(
            self.ir.AffineMap.get_identity(len(read.operands[0].type.shape))
        ):
            raise self._refused("its right factor is not packed")
        labels = [
            label
            for label, extent in zip(
                self.buffer_labels(read), _shape(read.operands[0]), strict=True
            )
            if extent > 1
        ]
        if labels[-2:] != [self.grouped, self.lane]:
            raise self._refused("groups of its right factor are no rows that follow each other")
        return read

    def buffer_labels(self, read: Any) -> list[int | None]:
        """For each dimension of the buffer the iterator that moves along it."""
        found: list[int | None] = [None] * len(read.operands[0].type.shape)
        dimensions = _dimensions(read.attributes["permutation_map"])
        for dimension, label in zip(dimensions, self._right.labels, strict=True):
            found[dimension] = label
        return found

    def _refused(self, why: str) -> InvalidSchedule:
        return InvalidSchedule(f"a contraction cannot be calls of {self.intrinsic.name!r}: {why}")


class _Reading:
    """Reads the factors of calls, each once."""

    def __init__(self, calls: _Calls, make: _Maker) -> None:
        self._calls, self._make = calls, make
        self._instruction: DotProduct = calls.intrinsic.implementation("mlir")
        self._left: dict[tuple[int, ...], Any] = {}
        self._right: dict[int, Any] = {}
        read = calls.read
        self._elements = flat(calls.ir, read.operands[0])
        shape = list(read.operands[0].type.shape)
        self._strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
        self._group = calls.extents[calls.grouped]
        # Elements of a row are a group apart.
        row = max(at for at, extent in enumerate(shape) if extent > 1)
        self._strides[row] = self._group
        self._labels = calls.buffer_labels(read)
        self._start = make.sum_of(list(read.operands)[1 : 1 + len(shape)], self._strides)

    def add(self, sums: Any, at: Mapping[int, int], first: int) -> Any:
        """Sums of lanes from ``first`` on and products, for values of the other iterators."""
        right = self._factors(at, first)
        return self._instruction.add(self._calls.ir, sums, self._groups(at), right)

    def _groups(self, at: Mapping[int, int]) -> Any:
        factor = self._calls.left
        place = tuple(0 if it is None else at[it] for it in factor.labels[:-1])
        if place not in self._left:
            group = self._make.extracted(factor.value, place)
            self._left[place] = self._make.spread(group, self._calls.lanes)
        return self._left[place]

    def _factors(self, at: Mapping[int, int], first: int) -> Any:
        steps = {**at, self._calls.lane: first}
        offset = sum(
            steps.get(label, 0) * stride
            for label, stride in zip(self._labels, self._strides, strict=True)
            if label is not None
        )
        if offset not in self._right:
            size = self._group * self._calls.lanes
            self._right[offset] = self._make.loaded(self._elements, self._start, offset, size)
        return self._right[offset]


@frozen
class _Maker:
    """Makes operations where they are inserted."""

    ir: Any

    def _one(self, name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        return self.ir.Operation.create(name, [kind], list(operands), attributes).results[0]

    def _vector(self, shape: Sequence[int], element: Any) -> Any:
        return self.ir.VectorType.get(list(shape), element)

    def _integers(self, values: Sequence[int]) -> Any:
        integer = self.ir.IntegerType.get_signless(64)
        return self.ir.ArrayAttr.get([self.ir.IntegerAttr.get(integer, it) for it in values])

    def extracted(self, value: Any, place: Sequence[int]) -> Any:
        """The part of a vector at a place along its outer dimensions."""
        if not place:
            return value
        kind = self._vector(_shape(value)[len(place) :], value.type.element_type)
        position = self.ir.DenseI64ArrayAttr.get(list(place))
        return self._one("vector.extract", kind, value, static_position=position)

    def inserted(self, value: Any, part: Any, place: Sequence[int]) -> Any:
        """A vector with another part at such a place."""
        if not place:
            return part
        position = self.ir.DenseI64ArrayAttr.get(list(place))
        return self._one("vector.insert", value.type, part, value, static_position=position)

    def part(self, value: Any, first: int, size: int) -> Any:
        """Neighbours in a vector."""
        if _shape(value) == [size]:
            return value
        kind = self._vector([size], value.type.element_type)
        return self._one(
            "vector.extract_strided_slice",
            kind,
            value,
            offsets=self._integers([first]),
            sizes=self._integers([size]),
            strides=self._integers([1]),
        )

    def with_part(self, value: Any, part: Any, first: int) -> Any:
        """A vector with other neighbours."""
        if value.type == part.type:
            return part
        return self._one(
            "vector.insert_strided_slice",
            value.type,
            part,
            value,
            offsets=self._integers([first]),
            strides=self._integers([1]),
        )

    def spread(self, group: Any, lanes: int) -> Any:
        """A group of 32 bits in each of so many lanes."""
        word = self.ir.IntegerType.get_signless(32)
        one = self._one("vector.bitcast", self._vector([1], word), group)
        return self._one("vector.broadcast", self._vector([lanes], word), one)

    def sum_of(self, indices: Sequence[Any], factors: Sequence[int]) -> Any:
        """The sum of indices, each times a number."""
        expressions = [
            self.ir.AffineExpr.get_dim(at) * factor for at, factor in enumerate(factors)
        ]
        total = expressions[0]
        for expression in expressions[1:]:
            total = total + expression
        return self._applied([total], indices)

    def loaded(self, elements: Any, start: Any, offset: int, size: int) -> Any:
        """A vector of neighbours in a buffer of one dimension."""
        place = self._applied([self.ir.AffineExpr.get_dim(0) + offset], [start])
        kind = self._vector([size], elements.type.element_type)
        return self._one("vector.load", kind, elements, place)

    def _applied(self, expressions: Sequence[Any], operands: Sequence[Any]) -> Any:
        place = self.ir.AffineMap.get(len(operands), 0, list(expressions))
        attribute = self.ir.AffineMapAttr.get(place)
        return self._one("affine.apply", self.ir.IndexType.get(), *operands, map=attribute)


def _source(value: Any, labels: _Labels) -> _Factor:
    """The vector that another one holds the elements of, converted and in another order."""
    while (producer := defining(value)) is not None and producer.name in _SAME_ELEMENTS:
        inner = producer.operands[0]
        if not hasattr(inner.type, "shape"):
            break
        labels = _labels_before(producer, inner, labels)
        value = inner
    return _Factor(value, labels)


def _labels_before(producer: Any, inner: Any, labels: _Labels) -> _Labels:
    """Labels of what an operation brings into another form."""
    before = _shape(inner)
    if producer.name == "vector.transpose":
        found: list[int | None] = [None] * len(before)
        for label, dimension in zip(labels, producer.attributes["permutation"], strict=True):
            found[dimension] = label
        return tuple(found)
    if producer.name == "vector.broadcast":
        return tuple(
            None if extent == 1 else label
            for label, extent in zip(labels[len(labels) - len(before) :], before, strict=True)
        )
    if producer.name == "vector.shape_cast":
        after = _shape(producer.results[0])
        moving = iter([it for it, extent in zip(labels, after, strict=True) if extent > 1])
        return tuple(None if extent == 1 else next(moving) for extent in before)
    return labels


def _erase_unused(operation: Any) -> None:
    """Erase an operation, and what only it used."""
    before = [producer for producer in map(defining, operation.operands) if producer is not None]
    operation.erase()
    while before:
        producer = before.pop()
        if producer.name not in (*_SAME_ELEMENTS, "vector.transfer_read"):
            continue
        if not any(True for _ in producer.results[0].uses):
            before = [it for it in before if it != producer]
            before += [it for it in map(defining, producer.operands) if it is not None]
            producer.erase()


def _shape(value: Any) -> list[int]:
    return [int(extent) for extent in value.type.shape]


def _dimensions(map_: Any) -> list[int]:
    """The dimensions that are results of a map."""
    return [int(it) for it in re.findall(r"d(\d+)", str(map_).partition("->")[2])]
