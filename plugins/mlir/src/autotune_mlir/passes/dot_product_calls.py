"""Contractions of vectors as calls of dot-product instructions.

A contraction becomes calls on vectors of the instruction's width. Loops around it carry the sums
as such vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, frozen

from autotune_mlir.dot_products import DotProduct
from autotune_mlir.passes.carried_sums import (
    FIRST_CARRIED,
    behind,
    carrying_loops,
    with_carried,
    yield_also,
)
from autotune_mlir.passes.contractions import Contraction, erase_unused
from autotune_mlir.passes.interleave import flat
from autotune_mlir.passes.vector_maker import VectorMaker
from autotune_mlir.traversal import users_of

__all__ = ["DotProductCalls", "replace_by_dot_products"]

# Where a vector of sums is in a tile: values of the iterators of rows, and its first lane.
_Place = tuple[tuple[int, ...], int]


def replace_by_dot_products(ir: Any, chain: Sequence[DotProductCalls]) -> None:
    """Put calls in the place of contractions that continue each other's sums.

    Args:
        ir: The ``ir`` module of the bindings.
        chain: As of :func:`autotune_mlir.passes.carried_sums.chains`.
    """
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
        erase_unused(call.operation)


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
class DotProductCalls(Contraction):
    """The calls that a contraction becomes."""

    @property
    def instruction(self) -> DotProduct:
        """What is called."""
        found: DotProduct = self.intrinsic.implementation("mlir")
        return found

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
        for user in users_of(total):
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
        rows = self._values(self.result[:-1])
        return list(itertools.product(rows, self._firsts))

    def _right_place(self, row: Sequence[int], first: int) -> _Place:
        """The first of the places with the same right factor."""
        moving = zip(row, self.result, strict=False)
        return tuple(at if label in self.right.labels else 0 for at, label in moving), first

    def _labelled(self, place: _Place, summed: Sequence[int]) -> dict[int, int]:
        """Values of iterators."""
        row, first = place
        labels = (*self.result, *self._summed)
        return dict(zip(labels, (*row, first, *summed), strict=True))

    @property
    def _summed(self) -> list[int]:
        """Iterators that are summed over beside the one of groups."""
        return [it for it in self.extents if it not in (*self.result, self.grouped)]

    @property
    def _firsts(self) -> range:
        """The first lane of each vector of results."""
        return range(0, self.extents[self.lane], self.lanes)

    def _values(self, labels: Sequence[int]) -> list[tuple[int, ...]]:
        """All values of some iterators."""
        return list(itertools.product(*(range(self.extents[label]) for label in labels)))


class _Reading:
    """Reads the factors of calls, each once."""

    def __init__(self, calls: DotProductCalls, make: VectorMaker) -> None:
        self._calls, self._make = calls, make
        self._left: dict[tuple[int, ...], Any] = {}
        self._right: dict[int, Any] = {}
        read = calls.read
        self._elements = flat(calls.ir, read.operands[0])
        self._strides = calls.right_strides
        self._group = calls.groups.size
        self._labels = calls.buffer_labels(read, calls.right)
        self._start = make.sum_of(list(read.operands)[1 : 1 + len(self._strides)], self._strides)

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
