"""Arithmetic for functions that MLIR would otherwise call once per element.

``math.exp`` and similar operations become calls of the C library, element by element even in a
vector. Here those of single precision become arithmetic on whatever type they have
(:mod:`autotune.lower.elementary`), so that they vectorise with the loop around them. Half
precision is computed in single by who writes the program; double precision stays a call.
"""

from __future__ import annotations

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

__all__ = ["FUNCTIONS", "expand_functions"]

FUNCTIONS: Mapping[str, str] = {f"math.{name}": name for name in ("exp", "log", "tanh", "erf")}
"""The function that an operation computes, of those that become arithmetic."""

_COMPARISONS: Mapping[Comparison, int] = {"eq": 1, "gt": 2, "lt": 4}  # ordered ones of arith.cmpf
_BITS: Mapping[BitOperation, str] = {"and": "andi", "or": "ori", "shl": "shli", "shr": "shrsi"}


def expand_functions(ir: Any, operations: Sequence[Any]) -> None:
    """Replace single-precision functions by arithmetic.

    Args:
        ir: The ``ir`` module of the bindings.
        operations: Any operations; those that are no such function are left alone.
    """
    for operation in operations:
        function = FUNCTIONS.get(operation.name)
        kind = operation.results[0].type if function is not None else None
        if function is None or not isinstance(_element(ir, kind), ir.F32Type):
            continue
        with ir.InsertionPoint(operation), operation.location:
            result = ELEMENTARY[function](_Operations(ir, kind), operation.operands[0])
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
    """

    ir: Any
    kind: Any

    def floats(self, operation: FloatOperation, left: Any, right: Any) -> Any:
        """Apply an operation on floats; a product may be fused with a sum."""
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
        return _constant(self.ir, self.kind, self.ir.FloatAttr.get(self.ir.F32Type.get(), value))

    def _integer(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        element = self.ir.IntegerType.get_signless(32)
        return _constant(self.ir, self._integers, self.ir.IntegerAttr.get(element, value))

    def _made(self, name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        """The result of a new operation."""
        return self.ir.Operation.create(
            name, results=[kind], operands=list(operands), attributes=attributes
        ).results[0]


def _constant(ir: Any, kind: Any, scalar: Any) -> Any:
    """A constant, the same in every lane, at the current insertion point."""
    is_vector = isinstance(kind, ir.VectorType)
    value = ir.DenseElementsAttr.get_splat(kind, scalar) if is_vector else scalar
    return ir.Operation.create("arith.constant", [kind], attributes={"value": value}).results[0]
