"""The interface of printers: what a program says, in the order in which it runs.

The walk decides everything: loops, lanes, registers, addresses, masks. A printer only says it in
its language. Values are opaque to the walk but for their type and number of lanes; operations
take scalars beside vectors, and widen them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from attrs import frozen

from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place

__all__ = ["Emitter", "Value"]


@frozen
class Value:
    """A value of the program.

    Attributes:
        handle: What the printer knows it by.
        dtype: Its element type; comparisons give ``bool``, indices are ``int64``, addresses that
            are given to instructions ``pointer``.
        lanes: How many numbers it has; 1: a scalar.
    """

    handle: Any
    dtype: str
    lanes: int = 1


class Emitter(ABC):
    """A printer.

    Attributes:
        has_instructions: Whether it says :meth:`intrinsic` and :meth:`execute`.
    """

    has_instructions: ClassVar[bool] = True

    @abstractmethod
    def begin(
        self,
        digits: Digits,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        scratch: Sequence[Place],
    ) -> None:
        """Begin a program over arrays of the caller and its scratch memory, in this order."""

    @abstractmethod
    def entry(self, name: str) -> AbstractContextManager[None]:
        """A function of the program that the caller may call by its name."""

    @abstractmethod
    def finish(self) -> Any:
        """End the program; return it."""

    @abstractmethod
    def loop(
        self, counter: str, begin: Linear, end: Linear, kind: str
    ) -> AbstractContextManager[None]:
        """A loop, in whose body the counter is the digit of its name.

        One of kind ``parallel`` begins at 0, and its iterations may run at once.
        """

    @abstractmethod
    def when(self, condition: Value) -> AbstractContextManager[None]:
        """Begin what runs only where a scalar condition holds."""

    @abstractmethod
    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """Choose one of two values, and compute only that; the condition is scalar."""

    @abstractmethod
    def allocate(self, place: Place) -> None:
        """Make room for a place on the stack or in registers."""

    @abstractmethod
    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        """Neighbouring elements; zeros where a mask is false."""

    @abstractmethod
    def load_strided(
        self, place: Place, at: Linear, stride: int, lanes: int, mask: Value | None = None
    ) -> Value:
        """Elements that are ``stride`` apart; zeros where a mask is false."""

    @abstractmethod
    def load_chosen(self, place: Place, at: Linear, offset: Value, lanes: int) -> Value:
        """Neighbouring elements from an address to which a computed scalar is added."""

    @abstractmethod
    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        """Write neighbouring elements, past the caches if it is a stream."""

    @abstractmethod
    def prefetch(self, place: Place, at: Linear) -> None:
        """Ask for the cache line of an element early."""

    @abstractmethod
    def register(self, place: Place, number: int) -> Value:
        """The content of one register of a place."""

    @abstractmethod
    def set_register(self, place: Place, number: int, value: Value) -> None:
        """Let one register of a place hold a value."""

    @abstractmethod
    def constant(self, value: float | int | bool, dtype: str) -> Value:
        """A scalar constant."""

    @abstractmethod
    def below(self, linear: Linear, step: int = 0, lanes: int = 1) -> Value:
        """Tell whether an index is below 0; a mask where it is ``step`` more in each lane."""

    @abstractmethod
    def integer(self, linear: Linear) -> Value:
        """An index as a scalar of 64 bits."""

    @abstractmethod
    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        """Indices ``step`` apart, one a lane."""

    @abstractmethod
    def wide(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane; a vector as it is."""

    @abstractmethod
    def lane(self, value: Value, number: int) -> Value:
        """A lane of a vector."""

    @abstractmethod
    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        """A vector with one lane replaced."""

    @abstractmethod
    def gathered(self, scalars: Sequence[Value]) -> Value:
        """The vector of scalars."""

    @abstractmethod
    def shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        """Lanes of two vectors of one length, those of the second after those of the first."""

    @abstractmethod
    def binary(self, op: str, left: Value, right: Value) -> Value:
        """An operation of :class:`~autotune.ir.expressions.Binary` on two values of one type."""

    @abstractmethod
    def unary(self, op: str, operand: Value) -> Value:
        """An operation of :class:`~autotune.ir.expressions.Unary`."""

    @abstractmethod
    def cast(self, value: Value, dtype: str) -> Value:
        """A value converted."""

    @abstractmethod
    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """``yes`` where the condition holds, lane by lane; both are computed."""

    @abstractmethod
    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        """The bits of a value as ``lanes`` numbers of another type, as many bits in all."""

    @abstractmethod
    def pointer(self, place: Place, at: Linear) -> Value:
        """The address of an element of memory, as an argument of :meth:`execute`."""

    @abstractmethod
    def intrinsic(self, name: str, dtype: str, lanes: int, arguments: Sequence[Value]) -> Value:
        """The result of an instruction that has no other effect.

        Args:
            name: Of LLVM's function that stands for it, such as
                ``"llvm.x86.avx512.vpdpbusd.512"``.
            dtype: Element type of the result.
            lanes: Of the result.
            arguments: As LLVM's function takes them, in numbers and types: vectors of bytes where
                it takes such, of its ``bfloat`` those of ``bfloat16``.
        """

    @abstractmethod
    def execute(self, name: str, arguments: Sequence[Value]) -> None:
        """Run an instruction for its effect on memory or on registers that the program names.

        Such instructions stay in their order among each other, and among loads and stores.

        Args:
            name: As of :meth:`intrinsic`, such as ``"llvm.x86.tileloadd64"``.
            arguments: As of :meth:`intrinsic`; where LLVM's function takes an immediate number,
                one of :meth:`constant`, where it takes a pointer, one of :meth:`pointer`.
        """

    def interleaved(self, left: Value, right: Value) -> Value:
        """The lanes of two vectors of equal length in turn, beginning with ``left``."""
        count = left.lanes
        return self.shuffled(
            left, right, [it + side for it in range(count) for side in (0, count)]
        )

    def halves(self, value: Value) -> tuple[Value, Value]:
        """The lower and the upper half of a vector of an even number of lanes."""
        half = value.lanes // 2
        if half == 1:
            return self.lane(value, 0), self.lane(value, 1)
        lower = self.shuffled(value, value, range(half))
        return lower, self.shuffled(value, value, range(half, value.lanes))

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """The columns of a square of vectors: bits of rows and of lanes change places."""
        found, size, bit = list(rows), len(rows), 1
        while bit < size:
            even = [it if not it & bit else size + (it ^ bit) for it in range(size)]
            odd = [it | bit if not it & bit else size + it for it in range(size)]
            for row in (it for it in range(size) if not it & bit):
                upper, lower = found[row], found[row | bit]
                found[row] = self.shuffled(upper, lower, even)
                found[row | bit] = self.shuffled(upper, lower, odd)
            bit *= 2
        return found

    def reduced(self, op: str, value: Value) -> Value:
        """All lanes combined in halves: a tree, whose order is the same on every processor."""
        while value.lanes > 1:
            if value.lanes % 2:
                rest = self.lane(value, value.lanes - 1)
                lanes = [self.lane(value, number) for number in range(value.lanes - 1)]
                value = self.gathered(lanes) if len(lanes) > 1 else lanes[0]
                return self.binary(op, self.reduced(op, value), rest)
            value = self.binary(op, *self.halves(value))
        return value

    def negated(self, condition: Value) -> Value:
        """True where a condition is false."""
        return self.unary("not", condition)
