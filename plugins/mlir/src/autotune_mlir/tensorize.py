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
from autotune_mlir.carried import (
    FIRST_CARRIED,
    behind,
    carrying_loops,
    chains,
    with_carried,
    yield_also,
)
from autotune_mlir.dot_products import DotProduct
from autotune_mlir.emit import STAGE
from autotune_mlir.interleave import Groups, copy_behind, flat, interleave
from autotune_mlir.locations import positions
from autotune_mlir.scalar_import import defining
from autotune_mlir.vector_maker import VectorMaker

__all__ = ["PRODUCTS", "TENSORIZE", "body_positions", "mark_of", "tensorize"]

TENSORIZE = "autotune.tensorize"
"""Attribute of a function: which stages are calls of which instruction."""

PRODUCTS = "products"
"""The last sequence of a schedule with such stages: it is for what they leave."""

_SEPARATOR = "; "
_WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui"})
_SAME_ELEMENTS = frozenset(
    {*_WIDENING, "vector.broadcast", "vector.shape_cast", "vector.transpose"}
)

_Labels = tuple[int | None, ...]
# Where a vector of sums is in a tile: values of the iterators of rows, and its first lane.
_Place = tuple[tuple[int, ...], int]


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
        continued = [
            [call for call in calls if call.operation in chain]
            for chain in chains([call.operation for call in calls])
        ]
        for chain in continued:
            _replace(ir, chain)


def _replace(ir: Any, chain: Sequence[_Calls]) -> None:
    """Put calls in the place of contractions that continue each other's sums."""
    first, last = chain[0], chain[-1]
    loops = carrying_loops([call.operation for call in chain])
    total, outermost = last.operation.results[0], first.operation
    start = first.operation.operands[2]
    if loops:
        outermost, at = loops[0]
        start = outermost.operands[FIRST_CARRIED + at]
    with ir.InsertionPoint(outermost), outermost.location:
        sums = first.sums_in(start)
    made = []
    for loop, _ in loops:
        made.append(with_carried(ir, loop, sums.values))
        sums = sums.with_values(list(made[-1].regions[0].blocks[0].arguments))
    for call in chain:
        sums = call.add(sums)
    for loop in reversed(made):
        yield_also(ir, loop, sums.values)
        sums = sums.with_values(list(loop.results))
    if made:
        outermost, total = made[0], made[0].results[loops[0][1]]
    else:
        outermost = last.operation
    with behind(ir, outermost), outermost.location:
        parts = last.complete(sums)
        last.give(total, parts)
    for call in chain:
        call.operation.results[0].replace_all_uses_with(call.operation.operands[2])
        _erase_unused(call.operation)


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


@frozen
class _Sums:
    """Sums, and what has been added to them too much, as vectors of an instruction's width.

    Attributes:
        parts: The sums, by their place in a tile.
        excess: What is to be subtracted, by the places where right factors differ.
    """

    parts: dict[_Place, Any]
    excess: dict[_Place, Any]

    @property
    def values(self) -> list[Any]:
        """All vectors."""
        return [*self.parts.values(), *self.excess.values()]

    def with_values(self, values: Sequence[Any]) -> _Sums:
        """The same with other vectors, which are the last ones of ``values``."""
        own = iter(values[len(values) - len(self.values) :])
        return _Sums({it: next(own) for it in self.parts}, {it: next(own) for it in self.excess})


@define(eq=False)
class _Calls:
    """The calls that a contraction becomes."""

    ir: Any
    operation: Any
    intrinsic: Intrinsic
    instruction: DotProduct = field(init=False)
    lanes: int = field(init=False)
    read: Any = field(init=False)
    extents: dict[int, int] = field(init=False, factory=dict)
    left: _Factor = field(init=False)
    _right: _Factor = field(init=False)
    _result: list[int] = field(init=False)
    grouped: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.instruction = self.intrinsic.implementation("mlir")
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
        row = _long(self.read.operands[0])[-1]
        return Groups(self.extents[self.grouped], row, self.lanes)

    def sums_in(self, total: Any) -> _Sums:
        """The parts of a tile of sums, where operations are inserted."""
        make = VectorMaker(self.ir)
        parts, excess = {}, {}
        for row, first in self._places:
            parts[row, first] = make.part(make.extracted(total, row), first, self.lanes)
            if self.instruction.is_shifted:
                excess[self._right_place(row, first)] = make.zeros(parts[row, first].type)
        return _Sums(parts, excess)

    def add(self, sums: _Sums) -> _Sums:
        """Add the products of the contraction, in front of it."""
        ir, operation = self.ir, self.operation
        parts, excess = dict(sums.parts), dict(sums.excess)
        with ir.InsertionPoint(operation), operation.location:
            reading = _Reading(self, VectorMaker(ir))
            for place, summed in itertools.product(self._places, self._values(self._summed)):
                at = self._labelled(place, summed)
                parts[place] = self.instruction.add(
                    ir, parts[place], reading.groups(at), reading.factors(at)
                )
            for place, summed in itertools.product(excess, self._values(self._summed)):
                right = reading.factors(self._labelled(place, summed))
                excess[place] = self.instruction.add_excess(ir, excess[place], right)
        return _Sums(parts, excess)

    def complete(self, sums: _Sums) -> dict[_Place, Any]:
        """The sums without what has been added too much, where operations are inserted."""
        if not sums.excess:
            return sums.parts
        make = VectorMaker(self.ir)
        return {
            place: make.difference(part, sums.excess[self._right_place(*place)])
            for place, part in sums.parts.items()
        }

    def give(self, total: Any, parts: Mapping[_Place, Any]) -> None:
        """Give parts of sums to what uses the vector of all.

        What writes it to memory writes the parts.
        """
        make = VectorMaker(self.ir)
        for use in list(total.uses):
            user = getattr(use.owner, "operation", use.owner)
            if make.is_plain_write(user):
                with self.ir.InsertionPoint(user), user.location:
                    for (row, first), part in parts.items():
                        make.write_part(user, part, (*row, first))
                user.erase()
        users = [(use.owner, use.operand_number) for use in total.uses]
        if not users:
            return
        whole = make.poison(total.type)
        for row in dict.fromkeys(row for row, _ in parts):
            lanes = make.poison(make.extracted(whole, row).type)
            for first in self._firsts:
                lanes = make.with_part(lanes, parts[row, first], first)
            whole = make.inserted(whole, lanes, row)
        for owner, number in users:
            owner.operands[number] = whole

    @property
    def _places(self) -> list[_Place]:
        rows = self._values(self._result[:-1])
        return list(itertools.product(rows, self._firsts))

    def _right_place(self, row: Sequence[int], first: int) -> _Place:
        """The first of the places with the same right factor."""
        moving = zip(row, self._result, strict=False)
        return tuple(at if label in self._right.labels else 0 for at, label in moving), first

    def _labelled(self, place: _Place, summed: Sequence[int]) -> dict[int, int]:
        """Values of iterators."""
        row, first = place
        labels = (*self._result, *self._summed)
        return dict(zip(labels, (*row, first, *summed), strict=True))

    @property
    def _summed(self) -> list[int]:
        """Iterators that are summed over beside the one of groups."""
        return [it for it in self.extents if it not in (*self._result, self.grouped)]

    @property
    def _firsts(self) -> range:
        """The first lane of each vector of results."""
        return range(0, self.extents[self.lane], self.lanes)

    def _values(self, labels: Sequence[int]) -> list[tuple[int, ...]]:
        """All values of some iterators."""
        return list(itertools.product(*(range(self.extents[label]) for label in labels)))

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

    def __init__(self, calls: _Calls, make: VectorMaker) -> None:
        self._calls, self._make = calls, make
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

    def groups(self, at: Mapping[int, int]) -> Any:
        """Left factors for values of the iterators, the same in all lanes."""
        factor = self._calls.left
        place = tuple(0 if it is None else at[it] for it in factor.labels[:-1])
        if place not in self._left:
            group = self._make.extracted(factor.value, place)
            self._left[place] = self._make.spread(group, self._calls.lanes)
        return self._left[place]

    def factors(self, at: Mapping[int, int]) -> Any:
        """Right factors for values of the iterators: a group for each lane."""
        offset = sum(
            at.get(label, 0) * stride
            for label, stride in zip(self._labels, self._strides, strict=True)
            if label is not None
        )
        if offset not in self._right:
            size = self._group * self._calls.lanes
            self._right[offset] = self._make.loaded(self._elements, self._start, offset, size)
        return self._right[offset]


def _source(value: Any, labels: _Labels) -> _Factor:
    """The vector that another one holds the elements of, converted and in another order."""
    while (producer := defining(value)) is not None and producer.name in _SAME_ELEMENTS:
        inner = producer.operands[0]
        if not hasattr(inner.type, "shape"):
            break  # one number for all
        if producer.name == "vector.shape_cast" and _long(inner) != _long(value):
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


def _long(value: Any) -> list[int]:
    """The extents above 1."""
    return [extent for extent in _shape(value) if extent > 1]


def _shape(value: Any) -> list[int]:
    return [int(extent) for extent in value.type.shape]


def _dimensions(map_: Any) -> list[int]:
    """The dimensions that are results of a map."""
    return [int(it) for it in re.findall(r"d(\d+)", str(map_).partition("->")[2])]
