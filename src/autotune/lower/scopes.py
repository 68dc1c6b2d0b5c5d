"""Text in scopes: integers and addresses are computed where the innermost loop that they depend on
begins, so that nothing has to move them out."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field

from autotune.ir.element_types import element_type
from autotune.lower.emitter import Emitter, Value
from autotune.lower.linear import DerivedOp, Digits, Linear
from autotune.lower.places import Place

__all__ = ["ALIGNMENT", "Function", "Scope", "ScopedEmitter"]

ALIGNMENT = 64
"""Of arrays and scratch memory, in bytes."""


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
class ScopedEmitter(Emitter):
    """A printer of text whose values have names, and are known in the scope that names them."""

    _digits: Digits = field(factory=Digits)
    _places: list[Place] = field(factory=list)
    _inputs: int = 0
    _names: int = 0
    _functions: list[Function] = field(factory=list)
    _texts: list[str] = field(factory=list)

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
