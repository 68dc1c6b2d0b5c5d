"""Arithmetic for functions that MLIR would otherwise call once per element.

``math.exp`` and similar operations become calls of the C library, element by element even in a
vector. Here those of single precision become arithmetic on whatever type they have
(:mod:`autotune.lower.elementary`), so that they vectorise with the loop around them. Half
precision is computed in single by who writes the program; double precision stays a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from autotune.lower.elementary import (
    ELEMENTARY,
    Arithmetic,
    BitOperation,
    Comparison,
    FloatOperation,
)
from autotune_mlir.passes.vector_maker import constant_of

__all__ = ["FUNCTIONS", "expand_functions"]

FUNCTIONS: Mapping[str, str] = {f"math.{name}": name for name in ("exp", "log", "tanh", "erf")}
"""The function that an operation computes, of those that become arithmetic."""

_COMPARISONS: Mapping[Comparison, int] = {"eq": 1, "gt": 2, "lt": 4}  # ordered ones of arith.cmpf
_BITS: Mapping[BitOperation, str] = {"and": "andi", "or": "ori", "shl": "shli", "shr": "shrsi"}


_SCALE: Mapping[int, tuple[str, tuple[int, ...]]] = {
    16: ("i16", (4,)),
    8: ("i8", ()),
    4: ("i8", ()),
}
"""How AVX-512 multiplies vectors by powers of two, by lanes: the type of the intrinsic's mask, and
the value of what says how it rounds."""


def expand_functions(
    ir: Any, operations: Sequence[Any], scaled_lanes: frozenset[int] = frozenset()
) -> None:
    """Replace single-precision functions by arithmetic.

    Args:
        ir: The ``ir`` module of the bindings.
        operations: Any operations; those that are no such function are left alone.
        scaled_lanes: Lanes of the vectors that the processor multiplies by powers of two.
    """
    for operation in operations:
        function = FUNCTIONS.get(operation.name)
        kind = operation.results[0].type if function is not None else None
        if function is None or not isinstance(_element(ir, kind), ir.F32Type):
            continue
        with ir.InsertionPoint(operation), operation.location:
            result = ELEMENTARY[function](
                _Operations.on(ir, kind, scaled_lanes), operation.operands[0]
            )
        operation.results[0].replace_all_uses_with(result)
        operation.erase()


def _element(ir: Any, kind: Any) -> Any:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


@frozen
class _Operations(Arithmetic):
    """Makes operations on values of one floating-point type, or on integers of its shape.

    Attributes:
        ir: The ``ir`` module of the bindings.
        kind: The type.
        width: Lanes of the parts that are scaled by one instruction each; 0 where none is.
    """

    ir: Any
    kind: Any
    width: int

    @classmethod
    def on(cls, ir: Any, kind: Any, scaled_lanes: frozenset[int]) -> _Operations:
        """Operations on ``kind``, with instructions that scale vectors of so many lanes."""
        lanes = kind.shape[-1] if isinstance(kind, ir.VectorType) and kind.rank else 1
        fitting = (width for width in scaled_lanes if lanes % width == 0)
        return cls(ir, kind, max(fitting, default=0))

    @property
    def scales(self) -> bool:  # type: ignore[override]
        """See :class:`Arithmetic`."""
        return bool(self.width)

    def floats(self, operation: FloatOperation, left: Any, right: Any) -> Any:
        """One whose product may be fused with a sum."""
        flags = self.ir.Attribute.parse("#arith.fastmath<contract>")
        operands = self._float(left), self._float(right)
        return self._made(f"arith.{operation}f", self.kind, *operands, fastmath=flags)

    def integers(self, operation: BitOperation, left: Any, right: Any) -> Any:
        """See :meth:`Arithmetic.integers`."""
        operands = self._integer(left), self._integer(right)
        return self._made(f"arith.{_BITS[operation]}", self._integers, *operands)

    def where(self, comparison: Comparison, left: Any, right: Any, yes: Any, no: Any) -> Any:
        """See :meth:`Arithmetic.where`."""
        ir = self.ir
        code = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _COMPARISONS[comparison])
        kind = self._shaped(ir.IntegerType.get_signless(1))
        operands = self._float(left), self._float(right)
        condition = self._made("arith.cmpf", kind, *operands, predicate=code)
        return self._made("arith.select", self.kind, condition, self._float(yes), self._float(no))

    def bits(self, value: Any) -> Any:
        """See :meth:`Arithmetic.bits`."""
        return self._made("arith.bitcast", self._integers, value)

    def of_bits(self, value: Any) -> Any:
        """See :meth:`Arithmetic.of_bits`."""
        return self._made("arith.bitcast", self.kind, value)

    def converted(self, value: Any) -> Any:
        """See :meth:`Arithmetic.converted`."""
        return self._made("arith.sitofp", self.kind, value)

    def scaled(self, value: Any, power: Any) -> Any:
        """See :meth:`Arithmetic.scaled`."""
        part = self.ir.VectorType.get([self.width], self.ir.F32Type.get())
        if self.kind == part:
            return self._scaled_part(part, value, power)
        parts = math.prod(self.kind.shape) // self.width
        rows = self.ir.VectorType.get([parts, self.width], self.ir.F32Type.get())
        values, powers = (self._made("vector.shape_cast", rows, it) for it in (value, power))
        made = values
        for row in range(parts):
            place = {"static_position": self.ir.DenseI64ArrayAttr.get([row])}
            own = [self._made("vector.extract", part, it, **place) for it in (values, powers)]
            result = self._scaled_part(part, *own)
            made = self._made("vector.insert", rows, result, made, **place)
        return self._made("vector.shape_cast", self.kind, made)

    def _scaled_part(self, part: Any, value: Any, power: Any) -> Any:
        """One vector, by LLVM's intrinsic for the instruction, under a mask of all lanes."""
        ir = self.ir
        mask, rounding = _SCALE[self.width]
        zero = constant_of(ir, part, ir.FloatAttr.get(ir.F32Type.get(), 0.0))
        operands = [value, power, zero]
        for name, number in ((mask, -1), *(("i32", number) for number in rounding)):
            attribute = ir.IntegerAttr.get(ir.Type.parse(name), number)
            operands.append(constant_of(ir, attribute.type, attribute))
        return self._made(
            "llvm.call_intrinsic",
            part,
            *operands,
            intrin=ir.StringAttr.get(f"llvm.x86.avx512.mask.scalef.ps.{32 * self.width}"),
            operandSegmentSizes=ir.DenseI32ArrayAttr.get([len(operands), 0]),
            op_bundle_sizes=ir.DenseI32ArrayAttr.get([]),
        )

    @property
    def _integers(self) -> Any:
        return self._shaped(self.ir.IntegerType.get_signless(32))

    def _shaped(self, element: Any) -> Any:
        """``element`` in the shape of the values."""
        if not isinstance(self.kind, self.ir.VectorType):
            return element
        # A scalable vector has no form here: programs for one machine have none.
        return self.ir.VectorType.get(list(self.kind.shape), element)

    def _float(self, value: Any) -> Any:
        if not isinstance(value, (int, float)):
            return value
        return constant_of(self.ir, self.kind, self.ir.FloatAttr.get(self.ir.F32Type.get(), value))

    def _integer(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        element = self.ir.IntegerType.get_signless(32)
        return constant_of(self.ir, self._integers, self.ir.IntegerAttr.get(element, value))

    def _made(self, name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        """The result of a new operation."""
        return self.ir.Operation.create(
            name, results=[kind], operands=list(operands), attributes=attributes
        ).results[0]
