"""Contractions of vectors that are to become calls of an instruction: what they read, and how."""

from __future__ import annotations

import math
import re
from typing import Any

from attrs import define, field, frozen

from autotune.backends import InvalidSchedule
from autotune.sketches.intrinsics import Intrinsic
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.interleave import Groups

__all__ = ["Contraction", "Factor", "erase_unused", "extents_of"]

_WIDENING = frozenset({"arith.extf", "arith.extsi", "arith.extui"})
_SAME_ELEMENTS = frozenset(
    {*_WIDENING, "vector.broadcast", "vector.shape_cast", "vector.transpose"}
)

_Labels = tuple[int | None, ...]


@frozen
class Factor:
    """A vector that a contraction reads, as it was before it was brought into form.

    Attributes:
        value: The vector.
        labels: For each of its dimensions the iterator of the contraction that moves along it;
            None where there is a single element.
    """

    value: Any
    labels: _Labels


@define(eq=False)
class Contraction:
    """A ``vector.contract`` as calls of an instruction see it.

    Attributes:
        ir: The ``ir`` module of the bindings.
        operation: The contraction.
        intrinsic: What is called.
        extents: Of the iterators.
        left: The factor that is the same for all lanes.
        right: The other one.
        result: Iterators along the dimensions of the sums.
        grouped: The iterator that a call sums over.
        read: What reads the right factor, which is packed.

    Raises:
        InvalidSchedule: it is none of the instruction's.
    """

    ir: Any
    operation: Any
    intrinsic: Intrinsic
    extents: dict[int, int] = field(init=False, factory=dict)
    left: Factor = field(init=False)
    right: Factor = field(init=False)
    result: list[int] = field(init=False)
    grouped: int = field(init=False)
    read: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        maps = [_dimensions(it) for it in self.operation.attributes["indexing_maps"]]
        for value, labels in zip(self.operation.operands, maps, strict=False):
            self.extents.update(zip(labels, extents_of(value), strict=True))
        self.result = maps[2]
        factors = [
            _source(value, tuple(labels))
            for value, labels in zip(list(self.operation.operands)[:2], maps, strict=False)
        ]
        moving = [factor for factor in factors if self.lane in factor.labels]
        others = [factor for factor in factors if self.lane not in factor.labels]
        if len(moving) != 1 or len(others) != 1:
            raise self.refused("both factors or none move along its lanes")
        (self.left,), (self.right,) = others, moving
        self.grouped = self._find_group()
        self.read = self._find_read()

    @property
    def lane(self) -> int:
        """The iterator along the lanes."""
        return self.result[-1]

    @property
    def lanes(self) -> int:
        """Columns of a call."""
        return self.intrinsic.spatial_axes[-1].extent

    @property
    def groups(self) -> Groups:
        """How its right factor has to lie in memory."""
        row = [extent for extent in extents_of(self.read.operands[0]) if extent > 1][-1]
        _, size = self.intrinsic.right.layout[-1]
        return Groups(size, row, self.lanes)

    @property
    def right_strides(self) -> list[int]:
        """Elements between neighbours along the dimensions of the packed buffer.

        Rows of groups follow each other: those of a row are a group apart.
        """
        shape = extents_of(self.read.operands[0])
        strides = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
        strides[max(at for at, extent in enumerate(shape) if extent > 1)] = self.groups.size
        return strides

    def buffer_labels(self, read: Any, factor: Factor) -> list[int | None]:
        """For each dimension of the buffer the iterator that moves along it.

        Args:
            read: What reads the factor.
            factor: Either factor.
        """
        found: list[int | None] = [None] * len(read.operands[0].type.shape)
        dimensions = _dimensions(read.attributes["permutation_map"])
        for dimension, label in zip(dimensions, factor.labels, strict=True):
            found[dimension] = label
        return found

    def plain_read(self, factor: Factor, name: str) -> Any:
        """What reads a factor from memory, all of whose elements are there.

        Args:
            factor: Either factor.
            name: What errors call it.

        Raises:
            InvalidSchedule: nothing does, or it has margins.
        """
        read = defining(factor.value)
        if read is None or read.name != "vector.transfer_read":
            raise self.refused(f"its {name} factor is not read from memory")
        inside = all(str(it) == "true" for it in read.attributes["in_bounds"])
        if not inside or list(read.attributes["operandSegmentSizes"])[-1]:
            raise self.refused(f"its {name} factor has margins")
        return read

    def refused(self, why: str) -> InvalidSchedule:
        """An error that says why there can be no calls."""
        return InvalidSchedule(f"a contraction cannot be calls of {self.intrinsic.name!r}: {why}")

    def _find_group(self) -> int:
        depth = self.intrinsic.reduce_axes[0].extent
        group = self.left.labels[-1]
        if group is None or group in self.result or self.extents[group] != depth:
            raise self.refused(f"its left factor has no {depth} neighbours to sum over")
        return group

    def _find_read(self) -> Any:
        read = self.plain_read(self.right, "right")
        shape = extents_of(read.operands[0])
        identity = self.ir.AffineMap.get_identity(len(shape))
        if read.operands[0].type.layout != self.ir.AffineMapAttr.get(identity):
            raise self.refused("its right factor is not packed")
        places = zip(self.buffer_labels(read, self.right), shape, strict=True)
        labels = [label for label, extent in places if extent > 1]
        if labels[-2:] != [self.grouped, self.lane]:
            raise self.refused("groups of its right factor are no rows that follow each other")
        return read


def erase_unused(operation: Any) -> None:
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


def extents_of(value: Any) -> list[int]:
    """The shape of a vector or a buffer."""
    return [int(extent) for extent in value.type.shape]


def _source(value: Any, labels: _Labels) -> Factor:
    """The vector that another one holds the elements of, converted and in another order."""
    while (producer := defining(value)) is not None and producer.name in _SAME_ELEMENTS:
        inner = producer.operands[0]
        if not hasattr(inner.type, "shape"):
            break  # one number for all
        if producer.name == "vector.shape_cast" and _long(inner) != _long(value):
            break
        labels = _labels_before(producer, inner, labels)
        value = inner
    return Factor(value, labels)


def _labels_before(producer: Any, inner: Any, labels: _Labels) -> _Labels:
    """Labels of what an operation brings into another form."""
    before = extents_of(inner)
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
        after = extents_of(producer.results[0])
        moving = iter([it for it, extent in zip(labels, after, strict=True) if extent > 1])
        return tuple(None if extent == 1 else next(moving) for extent in before)
    return labels


def _long(value: Any) -> list[int]:
    """The extents above 1."""
    return [extent for extent in extents_of(value) if extent > 1]


def _dimensions(map_: Any) -> list[int]:
    """The dimensions that are results of a map."""
    return [int(it) for it in re.findall(r"d(\d+)", str(map_).partition("->")[2])]
