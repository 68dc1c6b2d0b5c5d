"""Elementary functions on the values of a printer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.lower.elementary import Arithmetic, BitOperation, Comparison, FloatOperation
from autotune.lower.emitter import Emitter, Value

__all__ = ["EmittedArithmetic"]


class EmittedArithmetic(Arithmetic):
    """Operations of elementary functions, printed.

    Args:
        emitter: The printer.
        bitwise: Its operations on the bits of two integers.
    """

    def __init__(
        self, emitter: Emitter, bitwise: Callable[[BitOperation, Value, Value], Value]
    ) -> None:
        self._emitter, self._bitwise = emitter, bitwise

    def _float(self, value: Any) -> Value:
        given = isinstance(value, (int, float))
        return self._emitter.constant(value, "float32") if given else value

    def _integer(self, value: Any) -> Value:
        given = isinstance(value, (int, float))
        return self._emitter.constant(int(value), "int32") if given else value

    def floats(self, operation: FloatOperation, left: Any, right: Any) -> Value:
        return self._emitter.binary(operation, self._float(left), self._float(right))

    def integers(self, operation: BitOperation, left: Any, right: Any) -> Value:
        return self._bitwise(operation, self._integer(left), self._integer(right))

    def where(self, comparison: Comparison, left: Any, right: Any, yes: Any, no: Any) -> Value:
        condition = self._emitter.binary(comparison, self._float(left), self._float(right))
        return self._emitter.select(condition, self._float(yes), self._float(no))

    def bits(self, value: Any) -> Value:
        given = self._float(value)
        return self._emitter.bitcast(given, "int32", given.lanes)

    def of_bits(self, value: Any) -> Value:
        given = self._integer(value)
        return self._emitter.bitcast(given, "float32", given.lanes)

    def converted(self, value: Any) -> Value:
        return self._emitter.cast(self._integer(value), "float32")
