"""The operations of expressions in those of processors, which LLVM's languages share.

Names of operations are LLVM's: ``fadd contract``, ``icmp slt``, ``lshr``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.elementary import ELEMENTARY, Arithmetic, Comparison
from autotune.lower.emitter import Emitter, Value

__all__ = ["ArithmeticEmitter", "EmitterArithmetic", "is_float"]

_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul"}
_FUNCTIONS = frozenset(
    {"exp", "log", "sqrt", "sin", "cos", "tanh", "floor", "ceil", "round", "abs"}
)
_EXACT = ("sqrt", "floor", "ceil", "round", "abs")


def is_float(dtype: str) -> bool:
    """Tell whether processors compute in a type of floating-point numbers."""
    return dtype in ("float16", "float32", "float64")


class ArithmeticEmitter(Emitter):
    """A printer whose language has LLVM's operations."""

    @abstractmethod
    def operation(self, name: str, left: Value, right: Value, dtype: str = "") -> Value:
        """An operation of LLVM on two values; its result is of their type unless given."""

    @abstractmethod
    def converted(self, name: str, value: Value, dtype: str) -> Value:
        """A conversion of LLVM."""

    @abstractmethod
    def called(self, name: str, *operands: Value) -> Value:
        """A function of floats: one of ``Unary``, or ``pow``."""

    @abstractmethod
    def by_library(self, name: str, operand: Value) -> Value:
        """A function of the C library on doubles, lane by lane."""

    @abstractmethod
    def negative(self, operand: Value) -> Value:
        """Floats with the other sign."""

    def same(self, *values: Value) -> list[Value]:
        """Values with equal numbers of lanes."""
        lanes = max(value.lanes for value in values)
        return [self.wide(value, lanes) for value in values]

    def binary(self, op: str, left: Value, right: Value) -> Value:
        """An operation of ``Binary``."""
        dtype = left.dtype
        if dtype == "bfloat16" or (dtype == "float16" and op in ("pow", "mod")):
            parts = (self.cast(value, "float32") for value in (left, right))
            result = self.binary(op, *parts)
            return result if result.dtype == "bool" else self.cast(result, dtype)
        if op in ("and", "or"):
            return self.operation(op, left, right)
        if op in _COMPARISONS:
            return self._compared(op, left, right)
        if op in ("max", "min"):
            return self._extreme(op, left, right)
        if op == "pow" and not is_float(dtype):
            parts = (self.cast(value, "float64") for value in (left, right))
            return self.cast(self.binary(op, *parts), dtype)
        if op == "pow":
            return self.called("pow", *self.same(left, right))
        if op == "mod":
            return self._modulo(left, right)
        if is_float(dtype):
            flags = " contract" if op != "div" else ""
            return self.operation(f"f{op}{flags}", left, right)
        if op == "div":
            return self.operation("udiv" if dtype.startswith("u") else "sdiv", left, right)
        if dtype == "bool":
            return self.operation({"add": "or", "mul": "and", "sub": "xor"}[op], left, right)
        return self.operation(_ARITHMETIC[op], left, right)

    def _compared(self, op: str, left: Value, right: Value) -> Value:
        if is_float(left.dtype):
            return self.operation(f"fcmp {'u' if op == 'ne' else 'o'}{op}", left, right, "bool")
        unsigned = left.dtype.startswith("u") or left.dtype == "bool"
        sign = "" if op in ("eq", "ne") else "u" if unsigned else "s"
        return self.operation(f"icmp {sign}{op}", left, right, "bool")

    def _extreme(self, op: str, left: Value, right: Value) -> Value:
        """The larger or smaller, NaN if either is: ``right`` waits for two instructions only.

        Which NaN it is does not matter. A choice of ``left`` would be joined with the other one:
        a comparison more, where processors have an instruction for the larger of two numbers.
        """
        chosen = self.select(
            self._compared("gt" if op == "max" else "lt", left, right), left, right
        )
        if not is_float(left.dtype):
            return chosen
        is_nan = self.operation("fcmp uno", left, left, "bool")
        return self.select(is_nan, self.constant(math.nan, left.dtype), chosen)

    def _modulo(self, left: Value, right: Value) -> Value:
        """The remainder with the sign of the divisor, as in Python."""
        dtype = left.dtype
        if dtype.startswith("u"):
            return self.operation("urem", left, right)
        rest = self.operation("frem" if is_float(dtype) else "srem", left, right)
        zero = self.constant(0, dtype)
        apart = self.operation(
            "xor", self._compared("lt", rest, zero), self._compared("lt", right, zero)
        )
        moved = self.binary("and", apart, self._compared("ne", rest, zero))
        return self.select(moved, self.binary("add", rest, right), rest)

    def unary(self, op: str, operand: Value) -> Value:
        """An operation of ``Unary``."""
        dtype = operand.dtype
        if op == "not":
            return self.operation("xor", operand, self.constant(True, "bool"))
        if dtype == "bfloat16" or (dtype == "float16" and op not in ("neg", *_EXACT)):
            return self.cast(self.unary(op, self.cast(operand, "float32")), dtype)
        if not is_float(dtype):
            return self._of_integer(op, operand)
        if op == "neg":
            return self.negative(operand)
        if op == "erf" and dtype == "float64":
            return self.by_library("erf", operand)
        if dtype == "float32" and op in ELEMENTARY:
            result: Value = ELEMENTARY[op](EmitterArithmetic(self), operand)
            return result
        if op == "rsqrt":
            one = self.constant(1.0, dtype)
            return self.binary("div", one, self.called("sqrt", operand))
        if op == "sigmoid":
            one = self.constant(1.0, dtype)
            grown = self.called("exp", self.unary("neg", operand))
            return self.binary("div", one, self.binary("add", one, grown))
        if op not in _FUNCTIONS:
            raise UnsupportedWorkload(f"{op} of {dtype} is not printed")
        return self.called(op, operand)

    def _of_integer(self, op: str, operand: Value) -> Value:
        zero = self.constant(0, operand.dtype)
        if op == "neg":
            return self.binary("sub", zero, operand)
        if op == "abs" and not operand.dtype.startswith("u"):
            negative = self._compared("lt", operand, zero)
            return self.select(negative, self.binary("sub", zero, operand), operand)
        if op in ("abs", "floor", "ceil", "round"):
            return operand
        return self.unary(op, self.cast(operand, "float32"))

    def cast(self, value: Value, dtype: str) -> Value:
        """A value converted."""
        source, lanes = value.dtype, value.lanes
        if source == dtype:
            return value
        if source == "bfloat16":
            return self.cast(self._of_bfloat16(value), dtype)
        if dtype == "bfloat16":
            return self._to_bfloat16(self.cast(value, "float32"))
        if dtype == "bool":
            return self._compared("ne", value, self.constant(0, source))
        unsigned = source.startswith("u") or source == "bool"
        sizes = element_type(source).bytes, element_type(dtype).bytes
        if is_float(source) and is_float(dtype):
            name = "fpext" if sizes[1] > sizes[0] else "fptrunc"
        elif is_float(source):
            name = "fptoui" if dtype.startswith("u") else "fptosi"
        elif is_float(dtype):
            name = "uitofp" if unsigned else "sitofp"
        elif source != "bool" and sizes[0] == sizes[1]:
            return Value(value.handle, dtype, lanes)
        elif source != "bool" and sizes[1] < sizes[0]:
            name = "trunc"
        else:
            name = "zext" if unsigned else "sext"
        return self.converted(name, value, dtype)

    def _of_bfloat16(self, value: Value) -> Value:
        wide = self.converted("zext", value, "int32")
        bits = self.operation("shl", wide, self.constant(16, "int32"))
        return self.bitcast(bits, "float32", value.lanes)

    def _to_bfloat16(self, value: Value) -> Value:
        """Rounded to the nearest, halfway to even; NaN stays NaN."""
        bits, number = self.bitcast(value, "int32", value.lanes), self.constant
        high = self.operation("lshr", bits, number(16, "int32"))
        odd = self.operation("and", high, number(1, "int32"))
        nearest = self.operation("add", bits, number(0x7FFF, "int32"))
        rounded = self.operation("add", nearest, odd)
        result = self.operation("lshr", rounded, number(16, "int32"))
        is_nan = self.operation("fcmp uno", value, value, "bool")
        result = self.select(is_nan, number(0x7FC0, "int32"), result)
        return self.converted("trunc", result, "bfloat16")


class EmitterArithmetic(Arithmetic):
    """Elementary functions on the values of a printer."""

    def __init__(self, emitter: ArithmeticEmitter) -> None:
        self._emitter = emitter

    def _float(self, value: Any) -> Value:
        given = isinstance(value, (int, float))
        return self._emitter.constant(value, "float32") if given else value

    def _bits(self, value: Any) -> Value:
        given = isinstance(value, (int, float))
        return self._emitter.constant(int(value), "int32") if given else value

    def floats(self, operation: str, left: Any, right: Any) -> Value:
        return self._emitter.binary(operation, self._float(left), self._float(right))

    def integers(self, operation: str, left: Any, right: Any) -> Value:
        name = "ashr" if operation == "shr" else operation
        return self._emitter.operation(name, self._bits(left), self._bits(right))

    def where(self, comparison: Comparison, left: Any, right: Any, yes: Any, no: Any) -> Value:
        condition = self._emitter.binary(comparison, self._float(left), self._float(right))
        return self._emitter.select(condition, self._float(yes), self._float(no))

    def bits(self, value: Any) -> Value:
        given = self._float(value)
        return self._emitter.bitcast(given, "int32", given.lanes)

    def of_bits(self, value: Any) -> Value:
        given = self._bits(value)
        return self._emitter.bitcast(given, "float32", given.lanes)

    def converted(self, value: Any) -> Value:
        return self._emitter.cast(self._bits(value), "float32")
