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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from autotune.backends import InvalidSchedule
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic
from autotune_mlir.dot_products import DotProduct
from autotune_mlir.emit import STAGE
from autotune_mlir.excess import behind, carrying_loops, chains, with_carried, yield_also
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
# Iterators with a value of each.
_Values = tuple[tuple[int, int], ...]
# Values of iterators along rows, and the first lane of a vector of results.
_Place = tuple[_Values, int]
_Excess = Mapping[_Place, Any]


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
    if not chain[0].instruction.is_shifted:
        for call in chain:
            call.replace({})
        return
    first, loops = chain[0], carrying_loops([call.operation for call in chain])
    outermost = loops[0][0] if loops else first.operation
    make = VectorMaker(ir)
    with ir.InsertionPoint(outermost), outermost.location:
        zero = make.zeros(first.part_type)
        excess: _Excess = dict.fromkeys(first.right_places(), zero)
    made = []
    for loop, _ in loops:
        made.append(with_carried(ir, loop, list(excess.values())))
        arguments = list(made[-1].regions[0].blocks[0].arguments)[-len(excess) :]
        excess = dict(zip(excess, arguments, strict=True))
    for call in chain[:-1]:
        excess = call.replace(excess)
    last = chain[-1]
    excess = last.replace(excess, complete=not loops)
    for loop in reversed(made):
        yield_also(ir, loop, list(excess.values()))
        results = list(loop.results)[-len(excess) :]
        excess = dict(zip(excess, results, strict=True))
    if made:
        total = made[0].results[loops[0][1]]
        uses = [(use.owner, use.operand_number) for use in total.uses]
        with behind(ir, made[0]), made[0].location:
            complete = last.without_excess(make, total, excess)
        for owner, number in uses:
            owner.operands[number] = complete


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
        row = [extent for extent in _shape(self.read.operands[0]) if extent > 1][-1]
        return Groups(self.extents[self.grouped], row, self.lanes)

    @property
    def part_type(self) -> Any:
        """The vector of sums that a call takes."""
        return self.ir.VectorType.get([self.lanes], self.operation.results[0].type.element_type)

    def right_places(self) -> list[_Place]:
        """Where results differ in their right factors."""
        rows = [it for it in self._result[:-1] if it in self._right.labels]
        return [(row, first) for row in self._values(rows) for first in self._firsts]

    def replace(self, excess: _Excess, *, complete: bool = False) -> _Excess:
        """Put the calls in the place of the contraction.

        Args:
            excess: What contractions before have added too much, for each of
                :meth:`right_places`; nothing where none do.
            complete: Whether the sums are complete, and the excess is to be subtracted.

        Returns:
            What has been added too much with this one.
        """
        ir, operation = self.ir, self.operation
        make = VectorMaker(ir)
        with ir.InsertionPoint(operation), operation.location:
            reading = _Reading(self, make)
            total = self._sums(make, reading)
            for place in excess:
                row, first = place
                for summed in self._values(self._summed):
                    right = reading.factors(dict((*row, *summed)), first)
                    excess = {
                        **excess,
                        place: self.instruction.add_excess(ir, excess[place], right),
                    }
            if complete:
                total = self.without_excess(make, total, excess)
        operation.results[0].replace_all_uses_with(total)
        _erase_unused(operation)
        return excess

    def without_excess(self, make: VectorMaker, total: Any, excess: _Excess) -> Any:
        """Sums without what has been added too much."""

        def correct(part: Any, row: Mapping[int, int], first: int) -> Any:
            own = tuple((label, at) for label, at in row.items() if label in self._right.labels)
            return make.difference(part, excess[own, first])

        return self._each_part(make, total, correct)

    def _sums(self, make: VectorMaker, reading: _Reading) -> Any:
        def add(part: Any, row: Mapping[int, int], first: int) -> Any:
            for summed in self._values(self._summed):
                part = reading.add(part, {**row, **dict(summed)}, first)
            return part

        return self._each_part(make, self.operation.operands[2], add)

    def _each_part(
        self, make: VectorMaker, total: Any, change: Callable[[Any, Mapping[int, int], int], Any]
    ) -> Any:
        """The results, with something else for each vector of the instruction's width."""
        for values in self._values(self._result[:-1]):
            row = dict(values)
            place = list(row.values())
            lanes = make.extracted(total, place)
            for first in self._firsts:
                part = change(make.part(lanes, first, self.lanes), row, first)
                lanes = make.with_part(lanes, part, first)
            total = make.inserted(total, lanes, place)
        return total

    @property
    def _summed(self) -> list[int]:
        """Iterators that are summed over beside the one of groups."""
        return [it for it in self.extents if it not in (*self._result, self.grouped)]

    @property
    def _firsts(self) -> range:
        """The first lane of each vector of results."""
        return range(0, self.extents[self.lane], self.lanes)

    def _values(self, labels: Sequence[int]) -> list[_Values]:
        """All values of some iterators."""
        ranges = [range(self.extents[label]) for label in labels]
        return [tuple(zip(labels, values, strict=True)) for values in itertools.product(*ranges)]

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

    def add(self, sums: Any, at: Mapping[int, int], first: int) -> Any:
        """Sums of lanes from ``first`` on and products, for values of the other iterators."""
        right = self.factors(at, first)
        return self._calls.instruction.add(self._calls.ir, sums, self._groups(at), right)

    def _groups(self, at: Mapping[int, int]) -> Any:
        factor = self._calls.left
        place = tuple(0 if it is None else at[it] for it in factor.labels[:-1])
        if place not in self._left:
            group = self._make.extracted(factor.value, place)
            self._left[place] = self._make.spread(group, self._calls.lanes)
        return self._left[place]

    def factors(self, at: Mapping[int, int], first: int) -> Any:
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
