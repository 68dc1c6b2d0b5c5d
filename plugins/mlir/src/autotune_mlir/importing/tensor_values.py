"""Tensor values of a function in the words of its workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from autotune.ir.expressions import (
    Binary,
    Constant,
    Gather,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    const,
    index_bounds,
    maximum,
    minimum,
    simplify_index,
)
from autotune.ir.workloads import Tensor
from autotune_mlir.importing.scalar_import import Unsupported

__all__ = [
    "TensorValue",
    "Uniform",
    "Unwritten",
    "View",
    "combined",
    "kept_dimensions",
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
