"""Text with LLVM's types in scopes: integers and addresses are computed where the innermost loop
that they depend on begins, so that nothing has to move them out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import define, field

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.arithmetic import ArithmeticEmitter, is_float
from autotune.lower.emitter import Value
from autotune.lower.linear import DerivedOp, Digits, Linear
from autotune.lower.places import Place

__all__ = ["ALIGNMENT", "Function", "Scope", "ScopedEmitter"]

ALIGNMENT = 64
"""Of arrays and scratch memory, in bytes."""

_INTEGERS = {
    "bool": "i1",
    "bfloat16": "i16",  # LLVM calls a library to round to its own type where no instruction does
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


@define(eq=False)
class Scope:
    """The body of a loop, or of a function.

    Attributes:
        depth: Number of scopes around it.
        head: What begins it.
        prologue: What is computed where it begins.
        lines: What it does.
        known: Integers and addresses that its prologue has.
    """

    depth: int
    head: list[str] = field(factory=list)
    prologue: list[str] = field(factory=list)
    lines: list[str | Scope] = field(factory=list)
    known: dict[Any, str] = field(factory=dict)

    def text(self) -> Iterator[str]:
        """Its lines, and those of the scopes in it."""
        yield from self.head
        yield from self.prologue
        for line in self.lines:
            if isinstance(line, Scope):
                yield from line.text()
            else:
                yield line


@define(eq=False)
class Function:
    """A function that is printed.

    Attributes:
        allocations: What it allocates.
        scopes: The scopes that are open, the outermost first.
        block: Label of the block that lines are added to.
        bases: Address of each place.
        registers: Addresses of the registers of each place.
        counters: Scope and value of each digit.
        constants: Names of constants, where they have names, by their text.
        streams: Whether it writes past the caches.
    """

    allocations: list[str] = field(factory=list)
    scopes: list[Scope] = field(factory=lambda: [Scope(0)])
    block: str = "entry"
    bases: dict[str, str] = field(factory=dict)
    registers: dict[str, list[str]] = field(factory=dict)
    counters: dict[str, tuple[Scope, str]] = field(factory=dict)
    constants: dict[str, str] = field(factory=dict)
    streams: bool = False

    @property
    def scope(self) -> Scope:
        """The innermost scope that is open."""
        return self.scopes[-1]


@define(eq=False)
class ScopedEmitter(ArithmeticEmitter):
    """A printer of text whose values have names, and are known in the scope that names them.

    Registers are stack slots, which LLVM's first pass makes values of.

    Attributes:
        language: Its name.
        types: Names of floating-point types and of addresses.
        vector: Form of a type of so many lanes of another type.
        brain: Name of LLVM's own ``bfloat16``, which functions for instructions take.
    """

    language: ClassVar[str]
    types: ClassVar[Mapping[str, str]]
    vector: ClassVar[str]
    brain: ClassVar[str]

    _digits: Digits = field(factory=Digits)
    _places: list[Place] = field(factory=list)
    _inputs: int = 0
    _names: int = 0
    _functions: list[Function] = field(factory=list)
    _texts: list[str] = field(factory=list)
    _declared: set[str] = field(factory=set)

    # What a language says

    @abstractmethod
    def number(self, value: int) -> str:
        """An integer of 64 bits that is known."""

    @abstractmethod
    def product(self, value: str, factor: int) -> str:
        """The multiple of an integer."""

    @abstractmethod
    def total(self, left: str, right: str) -> str:
        """The sum of two integers."""

    @abstractmethod
    def derived(self, op: DerivedOp, value: str, divisor: int) -> str:
        """The integer that a digit is derived as."""

    @abstractmethod
    def step(self, dtype: str, base: str, by: str) -> str:
        """The address of an element behind another one."""

    @abstractmethod
    def float_bits(self, value: np.floating[Any]) -> str:
        """A number of its own type as a literal."""

    @abstractmethod
    def reserved(self, kind: str, elements: int) -> str:
        """Memory on the stack: of an array, or, with 0 elements, of one register."""

    @abstractmethod
    def read(self, kind: str, pointer: str, aligned: int) -> str:
        """A load, aligned to so many bytes."""

    @abstractmethod
    def written(self, kind: str, value: str, pointer: str, aligned: int, stream: bool) -> str:
        """A store, past the caches if it is a stream."""

    @abstractmethod
    def masked_read(self, dtype: str, lanes: int, pointer: str, mask: str) -> str:
        """A load of lanes; zeros where a mask is false."""

    @abstractmethod
    def masked_gather(self, dtype: str, lanes: int, pointer: str, stride: int, mask: Value) -> str:
        """A load of lanes that are ``stride`` apart; zeros where a mask is false."""

    @abstractmethod
    def masked_written(self, dtype: str, value: Value, pointer: str, mask: str) -> str:
        """A store of lanes where a mask is true."""

    @abstractmethod
    def broadcast(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""

    @abstractmethod
    def chosen(self, condition: Value, yes: Value, no: Value) -> str:
        """A choice, lane by lane."""

    @abstractmethod
    def bits_as(self, handle: str, before: str, after: str) -> str:
        """The bits of a value of one type as one of another."""

    @abstractmethod
    def library_call(self, name: str, operand: str) -> str:
        """The call of a function of doubles."""

    @abstractmethod
    def intrinsic_call(
        self, name: str, result: str, kinds: Sequence[str], given: Sequence[str]
    ) -> str:
        """The call of a function of LLVM with arguments; ``result`` is "" where it has none."""

    # Types and literals

    def _of(self, dtype: str, lanes: int = 1) -> str:
        name = self.types.get(dtype) or _INTEGERS.get(dtype)
        if name is None:
            raise UnsupportedWorkload(f"element type {dtype!r} has no type of {self.language}")
        return name if lanes == 1 else self.vector.format(lanes, name)

    def _in_memory(self, dtype: str, lanes: int = 1) -> str:
        return self._of("uint8" if dtype == "bool" else dtype, lanes)

    def _as_argument(self, dtype: str, lanes: int) -> str:
        """A type as LLVM's functions for instructions take it."""
        kind = self._of(dtype, lanes)
        return kind.replace("i16", self.brain) if dtype == "bfloat16" else kind

    def _literal(self, value: float | int | bool, dtype: str) -> str:
        if dtype == "bool":
            return "true" if value else "false"
        if dtype == "bfloat16":
            return str(int(element_type(dtype).stored(np.asarray(value, np.float32))))
        if not is_float(dtype):
            return str(int(value))
        with np.errstate(over="ignore"):
            return self.float_bits(np.dtype(dtype).type(value))

    # Structure

    def begin(
        self,
        digits: Digits,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        scratch: Sequence[Place],
    ) -> None:
        """Begin a program over these arrays."""
        self._digits, self._places = digits, [*inputs, *outputs, *scratch]
        self._inputs = len(inputs)

    def _open(self, thread: str) -> Function:
        """Begin a function whose scratch memory is that of a thread; "" is the only one."""
        function = Function()
        self._functions.append(function)
        for number, place in enumerate(self._places):
            base = f"%array{number}"
            if place.kind == "scratch" and place.depth and thread:
                size = -(-place.bytes // ALIGNMENT) * ALIGNMENT
                offset = self.product(thread, size)
                function.allocations.append(f"  {base}.offset = {offset}")
                own = self.step("uint8", base, f"{base}.offset")
                function.allocations.append(f"  {base}.own = {own}")
                base = f"{base}.own"
            function.bases[place.name] = base
        return function

    @property
    def _at(self) -> Function:
        return self._functions[-1]

    def _name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"%{prefix}{self._names}"

    def _line(self, text: str) -> None:
        self._at.scope.lines.append(f"  {text}")

    def _value(self, text: str, dtype: str, lanes: int = 1) -> Value:
        name = self._name()
        self._line(f"{name} = {text}")
        return Value(name, dtype, lanes)

    # Addresses

    def _digit(self, digit: str) -> tuple[Scope, str]:
        """The scope in which a digit is known, and its value."""
        function = self._at
        if digit in function.counters:
            return function.counters[digit]
        derived = self._digits.derived[digit]
        operand = self._digits.resolved(derived.operand)
        scope = self._scope(operand)
        key = (digit, operand)
        if key not in scope.known:
            text = self.derived(derived.op, self._sum(operand), derived.divisor)
            scope.known[key] = self._early(scope, text)
        return scope, scope.known[key]

    def _scope(self, linear: Linear) -> Scope:
        scopes = [self._digit(digit)[0] for digit in linear.digits]
        return max(scopes, key=lambda scope: scope.depth, default=self._at.scopes[0])

    def _early(self, scope: Scope, text: str) -> str:
        name = self._name("a")
        scope.prologue.append(f"  {name} = {text}")
        return name

    def _terms(self, linear: Linear) -> list[tuple[Scope, int, str]]:
        """Scope, factor and value of each term, the outermost first."""
        found = []
        for digit, factor in linear.terms:
            scope, value = self._digit(digit)
            found.append((scope, factor, value))
        return sorted(found, key=lambda term: term[0].depth)

    def _sum(self, linear: Linear) -> str:
        """A form as an integer, computed in the prologues of scopes."""
        total, scope = "", self._at.scopes[0]
        key: tuple[object, ...] = ()
        for scope, factor, value in self._terms(linear):
            key = (*key, factor, value)
            if ("sum", key) not in scope.known:
                part = value
                if factor != 1:
                    part = self._early(scope, self.product(value, factor))
                if total:
                    part = self._early(scope, self.total(total, part))
                scope.known["sum", key] = part
            total = scope.known["sum", key]
        if not total:
            return self.number(linear.constant)
        if linear.constant:
            whole = ("sum", key, linear.constant)
            if whole not in scope.known:
                text = self.total(total, self.number(linear.constant))
                scope.known[whole] = self._early(scope, text)
            total = scope.known[whole]
        return total

    def _integer(self, linear: Linear) -> str:
        return self._sum(self._digits.resolved(linear))

    def _pointer(self, place: Place, at: Linear) -> tuple[str, int]:
        """The address of an element, and what it is aligned to in bytes."""
        key: tuple[object, ...] = ("at", place.name)
        found, scope = self._at.bases[place.name], self._at.scopes[0]
        for scope, factor, value in self._terms(at):
            key = (*key, factor, value)
            if key not in scope.known:
                by = value if factor == 1 else self._early(scope, self.product(value, factor))
                scope.known[key] = self._early(scope, self.step(place.dtype, found, by))
            found = scope.known[key]
        if at.constant:
            whole = (*key, at.constant)
            if whole not in scope.known:
                text = self.step(place.dtype, found, self.number(at.constant))
                scope.known[whole] = self._early(scope, text)
            found = scope.known[whole]
        size = element_type(place.dtype).bytes
        apart = math.gcd(at.constant, *(factor for _, factor in at.terms)) * size
        return found, math.gcd(apart, ALIGNMENT) if apart else ALIGNMENT

    def pointer(self, place: Place, at: Linear) -> Value:
        found, _ = self._pointer(place, at)
        return Value(found, "pointer")

    # Memory

    def allocate(self, place: Place) -> None:
        function = self._at
        if place.kind == "registers" and place.name not in function.registers:
            kind = self._of(place.dtype, place.lanes)
            names = [self._name("r") for _ in range(place.elements // place.lanes)]
            for name in names:
                function.allocations.append(f"  {name} = {self.reserved(kind, 0)}")
            function.registers[place.name] = names
        elif place.kind == "stack" and place.name not in function.bases:
            name = function.bases[place.name] = self._name("stack")
            text = self.reserved(self._in_memory(place.dtype), place.elements)
            function.allocations.append(f"  {name} = {text}")

    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        pointer, aligned = self._pointer(place, at)
        if mask is None:
            return self._read(place.dtype, pointer, aligned, lanes)
        bits = self.wide(mask, lanes).handle
        text = self.masked_read(place.dtype, lanes, pointer, bits)
        return self._from_memory(text, place.dtype, lanes)

    def _read(self, dtype: str, pointer: str, aligned: int, lanes: int) -> Value:
        whole = 1 << (element_type(dtype).bytes * lanes).bit_length() - 1
        text = self.read(self._in_memory(dtype, lanes), pointer, min(aligned, whole))
        return self._from_memory(text, dtype, lanes)

    def _from_memory(self, text: str, dtype: str, lanes: int) -> Value:
        if dtype != "bool":
            return self._value(text, dtype, lanes)
        return self.converted("trunc", self._value(text, "uint8", lanes), dtype)

    def load_strided(
        self, place: Place, at: Linear, stride: int, lanes: int, mask: Value | None = None
    ) -> Value:
        if mask is None:
            return self.gathered([self.load(place, at + stride * it, 1) for it in range(lanes)])
        pointer, _ = self._pointer(place, at)
        text = self.masked_gather(place.dtype, lanes, pointer, stride, mask)
        return self._from_memory(text, place.dtype, lanes)

    def load_chosen(self, place: Place, at: Linear, offset: Value, lanes: int) -> Value:
        pointer, _ = self._pointer(place, at)
        name = self._name("p")
        self._line(f"{name} = {self.step(place.dtype, pointer, offset.handle)}")
        return self._read(place.dtype, name, element_type(place.dtype).bytes, lanes)

    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        pointer, aligned = self._pointer(place, at)
        dtype, lanes = place.dtype, value.lanes
        if dtype == "bool":
            value = self.converted("zext", value, "uint8")
        if mask is not None:
            bits = self.wide(mask, lanes).handle
            self._line(self.masked_written(dtype, value, pointer, bits))
            return
        whole = 1 << (element_type(dtype).bytes * lanes).bit_length() - 1
        past = stream and aligned >= min(whole, ALIGNMENT)
        self._at.streams = self._at.streams or past
        kind, aligned = self._in_memory(dtype, lanes), min(aligned, whole)
        self._line(self.written(kind, value.handle, pointer, aligned, past))

    def register(self, place: Place, number: int) -> Value:
        slot, kind = self._at.registers[place.name][number], self._of(place.dtype, place.lanes)
        return self._value(self.read(kind, slot, ALIGNMENT), place.dtype, place.lanes)

    def set_register(self, place: Place, number: int, value: Value) -> None:
        value = self.wide(value, place.lanes)
        slot, kind = self._at.registers[place.name][number], self._of(place.dtype, place.lanes)
        self._line(self.written(kind, value.handle, slot, ALIGNMENT, False))

    # Values

    def below(self, linear: Linear, step: int = 0, lanes: int = 1) -> Value:
        if step == 0:
            index = self.integer(linear)
            return self.operation("icmp slt", index, self.constant(0, "int64"), "bool")
        zero = self.constant(0, "int64")
        return self.operation("icmp slt", self.ramp(linear, step, lanes), zero, "bool")

    def integer(self, linear: Linear) -> Value:
        return Value(self._integer(linear), "int64")

    def wide(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise UnsupportedWorkload(f"{value.lanes} lanes are used as {lanes}")
        return self.broadcast(value, lanes)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if condition.lanes > 1:
            condition, yes, no = self.same(condition, yes, no)
        else:
            yes, no = self.same(yes, no)
        return self._value(self.chosen(condition, yes, no), yes.dtype, yes.lanes)

    def by_library(self, name: str, operand: Value) -> Value:
        found = []
        for number in range(operand.lanes):
            scalar = self.lane(operand, number) if operand.lanes > 1 else operand
            found.append(self._value(self.library_call(name, scalar.handle), "float64"))
        return self.gathered(found) if operand.lanes > 1 else found[0]

    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        kinds = self._of(value.dtype, value.lanes), self._of(dtype, lanes)
        return self._with_kind(Value(value.handle, dtype, lanes), *kinds)

    def _with_kind(self, value: Value, before: str, after: str) -> Value:
        """A value whose bits are taken for another type."""
        if before == after:
            return value
        return self._value(self.bits_as(value.handle, before, after), value.dtype, value.lanes)

    # Instructions

    def intrinsic(self, name: str, dtype: str, lanes: int, arguments: Sequence[Value]) -> Value:
        kind = self._as_argument(dtype, lanes)
        found = self._value(self._called(name, kind, arguments), dtype, lanes)
        return self._with_kind(found, kind, self._of(dtype, lanes))

    def execute(self, name: str, arguments: Sequence[Value]) -> None:
        self._line(self._called(name, "", arguments))

    def _called(self, name: str, result: str, arguments: Sequence[Value]) -> str:
        """A function of LLVM with its arguments, in their own types."""
        kinds = [self._as_argument(value.dtype, value.lanes) for value in arguments]
        given = [
            self._with_kind(value, self._of(value.dtype, value.lanes), kind).handle
            for value, kind in zip(arguments, kinds, strict=True)
        ]
        return self.intrinsic_call(name, result, kinds, given)
