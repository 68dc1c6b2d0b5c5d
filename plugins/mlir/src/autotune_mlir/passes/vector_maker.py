"""Makes operations on vectors at the current insertion point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

__all__ = ["VectorMaker", "constant_of"]


def constant_of(ir: Any, kind: Any, scalar: Any) -> Any:
    """A constant, the same in every lane, at the current insertion point.

    Args:
        ir: The ``ir`` module of the bindings.
        kind: Its type: that of a vector, or of ``scalar``.
        scalar: The attribute of one number.
    """
    is_vector = isinstance(kind, ir.VectorType)
    value = ir.DenseElementsAttr.get_splat(kind, scalar) if is_vector else scalar
    return ir.Operation.create("arith.constant", [kind], attributes={"value": value}).results[0]


@frozen
class VectorMaker:
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
        kind = self._vector(list(value.type.shape)[len(place) :], value.type.element_type)
        position = self.ir.DenseI64ArrayAttr.get(list(place))
        return self._one("vector.extract", kind, value, static_position=position)

    def element(self, value: Any, place: Sequence[int]) -> Any:
        """The number of a vector at a place."""
        position = self.ir.DenseI64ArrayAttr.get(list(place))
        return self._one(
            "vector.extract", value.type.element_type, value, static_position=position
        )

    def inserted(self, value: Any, part: Any, place: Sequence[int]) -> Any:
        """A vector with another part at such a place."""
        if not place:
            return part
        position = self.ir.DenseI64ArrayAttr.get(list(place))
        return self._one("vector.insert", value.type, part, value, static_position=position)

    def part(self, value: Any, first: int, size: int) -> Any:
        """Neighbours in a vector."""
        if list(value.type.shape) == [size]:
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

    def zeros(self, kind: Any) -> Any:
        """A vector of zeros."""
        return constant_of(self.ir, kind, self.ir.IntegerAttr.get(kind.element_type, 0))

    def poison(self, kind: Any) -> Any:
        """A vector without values."""
        return self._one("ub.poison", kind)

    def is_plain_write(self, operation: Any) -> bool:
        """Whether an operation writes a vector to memory as it is."""
        if operation.name != "vector.transfer_write":
            return False
        inside = all(str(it) == "true" for it in operation.attributes["in_bounds"])
        masked = list(operation.attributes["operandSegmentSizes"])[-1]
        rank, total = len(operation.operands[0].type.shape), len(operation.operands[1].type.shape)
        last = self.ir.AffineMapAttr.get(self.ir.AffineMap.get_minor_identity(total, rank))
        return bool(inside and not masked and operation.attributes["permutation_map"] == last)

    def write_part(self, write: Any, part: Any, place: Sequence[int]) -> None:
        """Write a part of a vector along its last dimension to where that is in memory.

        Args:
            write: As of :meth:`is_plain_write`.
            part: What to write.
            place: Where its first element is in the whole vector.
        """
        _, buffer, *indices = write.operands
        offsets = [*[0] * (len(indices) - len(place)), *place]
        moved = [
            self._applied([self.ir.AffineExpr.get_dim(0) + offset], [index]) if offset else index
            for index, offset in zip(indices, offsets, strict=True)
        ]
        last = self.ir.AffineMap.get_minor_identity(len(indices), 1)
        attributes = {
            "permutation_map": self.ir.AffineMapAttr.get(last),
            "in_bounds": self.ir.ArrayAttr.get([self.ir.BoolAttr.get(True)]),
            "operandSegmentSizes": self.ir.DenseI32ArrayAttr.get([1, 1, len(indices), 0]),
        }
        self.ir.Operation.create("vector.transfer_write", [], [part, buffer, *moved], attributes)

    def write_whole(self, value: Any, buffer: Any) -> None:
        """Write a vector to a buffer of its shape."""
        indices = [self._zero_index()] * len(buffer.type.shape)
        self.ir.Operation.create(
            "vector.transfer_write",
            [],
            [value, buffer, *indices],
            self._whole(buffer, writing=True),
        )

    def read_whole(self, buffer: Any, kind: Any) -> Any:
        """A vector of all elements of a buffer of its shape."""
        indices = [self._zero_index()] * len(buffer.type.shape)
        nothing = self.poison(kind.element_type)
        attributes = self._whole(buffer, writing=False)
        return self._one("vector.transfer_read", kind, buffer, *indices, nothing, **attributes)

    def _whole(self, buffer: Any, *, writing: bool) -> dict[str, Any]:
        rank = len(buffer.type.shape)
        segments = [1, 1, rank, 0] if writing else [1, rank, 1, 0]
        identity = self.ir.AffineMap.get_identity(rank)
        return {
            "permutation_map": self.ir.AffineMapAttr.get(identity),
            "in_bounds": self.ir.ArrayAttr.get([self.ir.BoolAttr.get(True)] * rank),
            "operandSegmentSizes": self.ir.DenseI32ArrayAttr.get(segments),
        }

    def _zero_index(self) -> Any:
        kind = self.ir.IndexType.get()
        return self._one("arith.constant", kind, value=self.ir.IntegerAttr.get(kind, 0))

    def difference(self, one: Any, other: Any) -> Any:
        """A vector of integers minus another one."""
        return self._one("arith.subi", one.type, one, other)

    def sum_of(self, indices: Sequence[Any], factors: Sequence[int], number: int = 0) -> Any:
        """The sum of a number and of indices, each times a factor."""
        total = self.ir.AffineExpr.get_constant(number)
        for at, factor in enumerate(factors):
            total = total + self.ir.AffineExpr.get_dim(at) * factor
        return self._applied([total], indices)

    def loaded(self, elements: Any, start: Any, offset: int, size: int) -> Any:
        """A vector of neighbours in a buffer of one dimension."""
        place = self._applied([self.ir.AffineExpr.get_dim(0) + offset], [start])
        kind = self._vector([size], elements.type.element_type)
        return self._one("vector.load", kind, elements, place)

    def loaded_masked(self, elements: Any, start: Any, offset: int, mask: Any) -> Any:
        """A vector of those neighbours in a buffer of one dimension that a mask has."""
        place = self._applied([self.ir.AffineExpr.get_dim(0) + offset], [start])
        kind = self._vector(list(mask.type.shape), elements.type.element_type)
        rest = self.poison(kind)
        return self._one("vector.maskedload", kind, elements, place, mask, rest)

    def shaped(self, value: Any, shape: Sequence[int]) -> Any:
        """The lanes of a vector in another shape."""
        if list(value.type.shape) == list(shape):
            return value
        return self._one("vector.shape_cast", self._vector(shape, value.type.element_type), value)

    def _applied(self, expressions: Sequence[Any], operands: Sequence[Any]) -> Any:
        place = self.ir.AffineMap.get(len(operands), 0, list(expressions))
        attribute = self.ir.AffineMapAttr.get(place)
        return self._one("affine.apply", self.ir.IndexType.get(), *operands, map=attribute)
