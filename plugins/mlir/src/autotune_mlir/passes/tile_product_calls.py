"""Contractions of vectors as calls of instructions on tile registers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from autotune.ir.element_types import element_type
from autotune.sketches.intrinsics.tile_registers import TileCall
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.contractions import Contraction
from autotune_mlir.passes.split_packing import origin, written_buffers
from autotune_mlir.passes.vector_maker import VectorMaker
from autotune_mlir.tile_products import TileMaker, TileMemory
from autotune_mlir.traversal import operations_in

__all__ = ["Place", "TileCalls", "TileLayout", "element_strides"]

Place = tuple[int, ...]
"""Where the sums of a call begin in the vector of all."""

_SUM_BYTES = 4


@frozen
class TileLayout:
    """How a factor, or sums, lie in memory.

    Attributes:
        memory: Where they begin.
        steps: Bytes between neighbours along each iterator.
    """

    memory: TileMemory
    steps: Mapping[int, int]

    def at(self, values: Mapping[int, int]) -> tuple[TileMemory, int]:
        """The memory, and the bytes to an element."""
        return self.memory, sum(values.get(it, 0) * step for it, step in self.steps.items())


@define(eq=False)
class TileCalls(Contraction):
    """The calls that a contraction becomes.

    Attributes:
        call: How each uses the registers.
        left_read: What reads the left factor; None where it is computed.
        left_buffer: Where what is computed is written.
    """

    call: TileCall = field(init=False)
    left_read: Any = field(init=False, default=None)
    left_buffer: Any = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.call = self.intrinsic.implementation("mlir")(self.intrinsic)
        producer = defining(self.left.value)
        if producer is not None and producer.name == "vector.transfer_read":
            self.left_read = self.plain_read(self.left, "left")
        if len(self.result) < 2 or self.rows not in self.left.labels:
            raise self.refused("its left factor has no rows")
        if self.rows in self.right.labels:
            raise self.refused("its right factor differs between rows")
        rows, columns = self.extents[self.rows], self.extents[self.lane]
        if rows % self.call.rows or columns % self.lanes:
            raise self.refused(f"its sums have {rows} rows of {columns}")

    @property
    def rows(self) -> int:
        """The iterator along rows of sums."""
        return self.result[-2]

    @property
    def places(self) -> list[Place]:
        """Where each call's sums begin in the vector of all."""
        steps = [1] * (len(self.result) - 2) + [self.call.rows, self.lanes]
        ranges = [
            range(0, self.extents[label], step)
            for label, step in zip(self.result, steps, strict=True)
        ]
        return list(itertools.product(*ranges))

    def add(self, make: TileMaker, bases: Mapping[Place, int]) -> None:
        """Add the products to sums in registers, at the current insertion point.

        Args:
            make: Makes instructions.
            bases: The first register of the sums, by their place; of these alone.
        """
        summed = [it for it in self.extents if it not in (*self.result, self.grouped)]
        left, right = self._left(), self._right()
        for place, base in bases.items():
            for values in itertools.product(*(range(self.extents[it]) for it in summed)):
                at = dict(zip((*self.result, *summed), (*place, *values), strict=True))
                make.add(left.at(at), right.at(at), base)

    def is_undisturbed(self, order: Sequence[Any], last: int) -> bool:
        """Whether factors are in memory what they were where they were read.

        Args:
            order: Operations of the block.
            last: Until before which of them; not before the contraction.
        """
        for read in (self.left_read, self.read):
            if read is None:
                continue
            # One that is elsewhere has been moved out of loops that do not write there.
            first = order.index(read if read in order else self.operation)
            source = origin(read.operands[0])
            for between in order[first:last]:
                for inner in (between, *operations_in(between)):
                    if any(origin(buffer) == source for buffer in _ended_buffers(inner)):
                        return False
        return True

    def sums_in(self, buffer: Any, indices: Sequence[Any] = ()) -> TileLayout:
        """How sums lie in a buffer, at the current insertion point.

        Args:
            buffer: Its last dimensions are those of the sums; its rows are evenly apart.
            indices: Of their first element; zeros unless given.
        """
        strides = element_strides(buffer) or []
        start = _address(self.ir, buffer, indices, strides, _SUM_BYTES)
        own = strides[len(strides) - len(self.result) :]
        steps = {it: step * _SUM_BYTES for it, step in zip(self.result, own, strict=True)}
        return TileLayout(TileMemory(start, steps[self.rows]), steps)

    def write_left(self, buffer: Any) -> None:
        """Write the left factor, which is computed, to memory.

        Args:
            buffer: Of its shape.
        """
        with self.ir.InsertionPoint(self.operation), self.operation.location:
            VectorMaker(self.ir).write_whole(self.left.value, buffer)
        self.left_buffer = buffer

    def _left(self) -> TileLayout:
        if self.left_read is None:
            dense = element_strides(self.left_buffer) or []
            return self._layout(self.left_buffer, (), dense, self.left.labels, self.rows)
        strides = element_strides(self.left_read.operands[0])
        labels = self.buffer_labels(self.left_read, self.left)
        if strides is None or labels[-1] != self.grouped:
            raise self.refused("its left factor has no rows of neighbours")
        operands = self.left_read.operands
        return self._layout(operands[0], operands[1:], strides, labels, self.rows)

    def _right(self) -> TileLayout:
        labels = self.buffer_labels(self.read, self.right)
        operands = self.read.operands
        return self._layout(operands[0], operands[1:], self.right_strides, labels, self.grouped)

    def _layout(
        self,
        buffer: Any,
        indices: Sequence[Any],
        strides: Sequence[int],
        labels: Sequence[int | None],
        rows: int,
    ) -> TileLayout:
        """How a factor lies in memory whose rows are along an iterator.

        Rows of the right one are groups of rows.
        """
        size = element_type(self.intrinsic.left.dtype).bytes
        steps = {
            label: stride * size
            for label, stride in zip(labels, strides, strict=True)
            if label is not None
        }
        start = _address(self.ir, buffer, indices, strides, size)
        group = self.call.group if rows == self.grouped else 1
        return TileLayout(TileMemory(start, steps[rows] * group), steps)


def _ended_buffers(operation: Any) -> list[Any]:
    """The buffers that do not hold what they held, or are no more, behind an operation."""
    if operation.name == "memref.dealloc":
        return list(operation.operands)
    return written_buffers(operation)


def element_strides(buffer: Any) -> list[int] | None:
    """Elements between neighbours along each dimension of a buffer with rows of neighbours.

    None where they are not, or only the running program knows how far rows are apart. Along a
    dimension with a single element it is 0.
    """
    kind = buffer.type
    strides, _ = kind.get_strides_and_offset()
    found = [
        0 if int(extent) == 1 else stride
        for extent, stride in zip(kind.shape, strides[:-1], strict=False)
    ]
    if strides[-1] != 1 or any(map(kind.is_dynamic_stride_or_offset, found)):
        return None
    return [*found, 1]


def _address(
    ir: Any, buffer: Any, indices: Sequence[Any], strides: Sequence[int], size: int
) -> Any:
    """The address of an element, as an index, at the current insertion point.

    Args:
        ir: The ``ir`` module of the bindings.
        buffer: What it is in.
        indices: Of the element, and possibly what follows; zeros where there are none.
        strides: Elements between neighbours along each dimension.
        size: Bytes of an element.
    """
    create, index = ir.Operation.create, ir.IndexType.get()
    parts = [create("memref.extract_aligned_pointer_as_index", [index], [buffer]).results[0]]
    factors = [1]
    kind = buffer.type
    _, offset = kind.get_strides_and_offset()
    if offset:
        # Of what is known, the number is folded.
        base = ir.MemRefType.get([], kind.element_type, memory_space=kind.memory_space)
        results = [base, *[index] * (1 + 2 * len(kind.shape))]
        parts.append(create("memref.extract_strided_metadata", results, [buffer]).results[1])
        factors.append(size)
    for place, stride in zip(indices, strides, strict=False):
        parts.append(place)
        factors.append(stride * size)
    return VectorMaker(ir).sum_of(parts, factors)
