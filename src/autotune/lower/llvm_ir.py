"""The printer of LLVM IR, as text.

A program is one function over an array of pointers, and one more for each parallel loop, whose
iterations are tasks of a pool. Integers of addresses are computed where the innermost loop that
they depend on begins, so that nothing has to move them out; registers are stack slots, which
LLVM's first pass makes values of.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from attrs import define, field

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.elementary import ELEMENTARY, Arithmetic, Comparison
from autotune.lower.emitter import Emitter, Value
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place

__all__ = ["LLVMEmitter"]

_TYPES = {
    "bool": "i1",
    "float16": "half",
    "bfloat16": "i16",  # LLVM calls a library to round to its own type where no instruction does
    "float32": "float",
    "float64": "double",
    "pointer": "ptr",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_ALIGNMENT = 64  # of arrays and scratch memory, in bytes
_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul"}
_FUNCTIONS = {
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "floor": "floor",
    "ceil": "ceil",
    "round": "rint",
    "abs": "fabs",
}
_EXACT = ("sqrt", "floor", "ceil", "round", "abs")

_TAIL = """
attributes #0 = { nounwind noinline "no-builtins" }
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{i32 1}
"""


def _of(dtype: str, lanes: int = 1) -> str:
    if dtype not in _TYPES:
        raise UnsupportedWorkload(f"element type {dtype!r} has no type of LLVM")
    return _TYPES[dtype] if lanes == 1 else f"<{lanes} x {_TYPES[dtype]}>"


def _in_memory(dtype: str, lanes: int = 1) -> str:
    name = "i8" if dtype == "bool" else _of(dtype)
    return name if lanes == 1 else f"<{lanes} x {name}>"


def _as_argument(dtype: str, lanes: int) -> str:
    """A type as LLVM's functions for instructions take it."""
    return _of(dtype, lanes).replace("i16", "bfloat") if dtype == "bfloat16" else _of(dtype, lanes)


def _is_float(dtype: str) -> bool:
    return dtype in ("float16", "float32", "float64")


def _literal(value: float | int | bool, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "bfloat16":
        return str(int(element_type(dtype).stored(np.asarray(value, np.float32))))
    if not _is_float(dtype):
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = float(np.dtype(dtype).type(value))
    if dtype == "float16":
        return "0xH" + struct.pack(">e", rounded).hex().upper()
    return "0x" + struct.pack(">d", rounded).hex().upper()


@define(eq=False)
class _Scope:
    """The body of a loop, or of a function.

    Attributes:
        depth: Number of scopes around it.
        head: Its label and counter.
        prologue: What is computed where it begins.
        lines: What it does.
        known: Integers and addresses that its prologue has.
    """

    depth: int
    head: list[str] = field(factory=list)
    prologue: list[str] = field(factory=list)
    lines: list[str | _Scope] = field(factory=list)
    known: dict[Any, str] = field(factory=dict)

    def text(self) -> Iterator[str]:
        yield from self.head
        yield from self.prologue
        for line in self.lines:
            if isinstance(line, _Scope):
                yield from line.text()
            else:
                yield line


@define(eq=False)
class _Function:
    """A function that is printed.

    Attributes:
        allocations: What it allocates.
        scopes: The scopes that are open, the outermost first.
        block: Label of the block that lines are added to.
        bases: Address of each place.
        registers: Addresses of the registers of each place.
        counters: Scope and value of each digit.
    """

    allocations: list[str] = field(factory=list)
    scopes: list[_Scope] = field(factory=lambda: [_Scope(0)])
    block: str = "entry"
    bases: dict[str, str] = field(factory=dict)
    registers: dict[str, list[str]] = field(factory=dict)
    counters: dict[str, tuple[_Scope, str]] = field(factory=dict)

    @property
    def scope(self) -> _Scope:
        return self.scopes[-1]


@define(eq=False)
class LLVMEmitter(Emitter):
    """Prints LLVM IR.

    Every entry of the program is a function ``int ENTRY(ptr arrays, ptr launch, ptr pool)``, which
    returns 0. ``arrays`` holds the addresses of inputs, outputs and scratch memory. Tasks of a
    parallel loop are started by ``launch(pool, task, arrays, count)``, which calls ``task(arrays,
    begin, end, thread)`` for parts of ``range(count)``, and returns when all have run; where
    ``launch`` is null, the caller's thread runs them.
    """

    _digits: Digits = field(factory=Digits)
    _places: list[Place] = field(factory=list)
    _inputs: int = 0
    _names: int = 0
    _functions: list[_Function] = field(factory=list)
    _declared: set[str] = field(factory=set)
    _texts: list[str] = field(factory=list)

    # Structure

    def begin(
        self,
        digits: Digits,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        scratch: Sequence[Place],
    ) -> None:
        self._digits, self._places = digits, [*inputs, *outputs, *scratch]
        self._inputs = len(inputs)

    @contextmanager
    def entry(self, name: str) -> Iterator[None]:
        self._functions = [self._function("0")]
        yield
        pool = "ptr %launch, ptr %pool"
        self._define(f"{name}.body", pool, self._functions.pop())
        self._texts.append(
            f"define i32 @{name}(ptr %arrays, {pool}) {{\n"
            + self._unpacked(f"{name}.body", f"ptr %arrays, {pool}", "ret i32 0")
            + "}"
        )

    def finish(self) -> str:
        return "\n".join([*self._texts, *sorted(self._declared), _TAIL])

    def _function(self, thread: str) -> _Function:
        """A function whose scratch memory is that of a thread."""
        function = _Function()
        for number, place in enumerate(self._places):
            base = f"%array{number}"
            if place.kind == "scratch" and place.depth and thread != "0":
                size = -(-place.bytes // _ALIGNMENT) * _ALIGNMENT
                function.allocations += [
                    f"  {base}.offset = mul nuw nsw i64 {thread}, {size}",
                    f"  {base}.own = getelementptr i8, ptr {base}, i64 {base}.offset",
                ]
                base = f"{base}.own"
            function.bases[place.name] = base
        return function

    def _define(self, name: str, others: str, function: _Function) -> None:
        """Add a function of all arrays, which do not overlap, and of other parameters."""
        arrays = [
            f"ptr noalias align {_ALIGNMENT} "
            + ("readonly " if number < self._inputs else "")
            + f"%array{number}"
            for number in range(len(self._places))
        ]
        lines = [*function.allocations, *function.scope.text(), "  ret void"]
        body = "\n".join(lines)
        parameters = ", ".join([*arrays, "ptr %arrays", others])
        self._texts.append(f"define internal void @{name}({parameters}) #0 {{\nentry:\n{body}\n}}")

    def _unpacked(self, name: str, others: str, leave: str) -> str:
        """The call of a function with the addresses in an array of them."""
        lines = []
        for number in range(len(self._places)):
            lines += [
                f"  %at{number} = getelementptr ptr, ptr %arrays, i64 {number}",
                f"  %array{number} = load ptr, ptr %at{number}",
            ]
        arrays = [f"ptr %array{number}" for number in range(len(self._places))]
        call = f"  call void @{name}({', '.join([*arrays, others])})"
        return "\n".join([*lines, call, f"  {leave}", ""])

    @property
    def _at(self) -> _Function:
        return self._functions[-1]

    def _name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"%{prefix}{self._names}"

    def _line(self, text: str) -> None:
        self._at.scope.lines.append(f"  {text}")

    def _label(self, label: str) -> None:
        self._at.scope.lines.append(f"{label}:")
        self._at.block = label

    def _value(self, text: str, dtype: str, lanes: int = 1) -> Value:
        name = self._name()
        self._line(f"{name} = {text}")
        return Value(name, dtype, lanes)

    @contextmanager
    def loop(self, counter: str, begin: Linear, end: Linear, kind: str) -> Iterator[None]:
        if kind == "parallel" and len(self._functions) == 1 and len(self._at.scopes) == 1:
            yield from self._tasks(counter, end.constant)
            return
        yield from self._counted(counter, self._integer(begin), self._integer(end), kind)

    def _counted(self, counter: str, begin: str, end: str, kind: str) -> Iterator[None]:
        function, value = self._at, self._name("i")
        head, back, done = (self._name(kind)[1:] for kind in ("loop", "next", "done"))
        if begin.isdigit() and end.isdigit() and int(begin) < int(end):
            self._line(f"br label %{head}")
        else:
            runs = self._value(f"icmp slt i64 {begin}, {end}", "bool")
            self._line(f"br i1 {runs.handle}, label %{head}, label %{done}")
        scope = _Scope(len(function.scopes))
        scope.head = [
            f"{head}:",
            f"  {value} = phi i64 [ {begin}, %{function.block} ], [ {value}.next, %{back} ]",
        ]
        function.scope.lines.append(scope)
        function.scopes.append(scope)
        function.block = head
        function.counters[counter] = scope, value
        yield
        self._line(f"br label %{back}")
        self._label(back)
        self._line(f"{value}.next = add nuw nsw i64 {value}, 1")
        more = self._value(f"icmp slt i64 {value}.next, {end}", "bool")
        self._line(f"br i1 {more.handle}, label %{head}, label %{done}, !llvm.loop !0")
        function.scopes.pop()
        del function.counters[counter]
        self._label(done)

    def _tasks(self, counter: str, count: int) -> Iterator[None]:
        """A loop whose body is a function that a pool calls."""
        name = f"task{len(self._texts)}"
        self._functions.append(self._function("%thread"))
        yield from self._counted(counter, "%begin", "%end", "serial")
        own = "i64 %begin, i64 %end, i64 %thread"
        self._define(f"{name}.body", own, self._functions.pop())
        self._texts.append(
            f"define internal void @{name}(ptr %arrays, {own}) {{\n"
            + self._unpacked(f"{name}.body", f"ptr %arrays, {own}", "ret void")
            + "}"
        )
        pooled, alone, done = (self._name(kind)[1:] for kind in ("pooled", "alone", "done"))
        none = self._value("icmp eq ptr %launch, null", "bool")
        self._line(f"br i1 {none.handle}, label %{alone}, label %{pooled}")
        self._label(pooled)
        self._line(f"call void %launch(ptr %pool, ptr @{name}, ptr %arrays, i64 {count})")
        self._line(f"br label %{done}")
        self._label(alone)
        self._line(f"call void @{name}(ptr %arrays, i64 0, i64 {count}, i64 0)")
        self._line(f"br label %{done}")
        self._label(done)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        inside, done = self._name("when")[1:], self._name("done")[1:]
        self._line(f"br i1 {condition.handle}, label %{inside}, label %{done}")
        self._label(inside)
        yield
        self._line(f"br label %{done}")
        self._label(done)

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        first, second, done = (self._name(kind)[1:] for kind in ("yes", "no", "done"))
        self._line(f"br i1 {condition.handle}, label %{first}, label %{second}")
        found = []
        for label, side in ((first, yes), (second, no)):
            self._label(label)
            value = side()
            found.append((value, self._at.block))
            self._line(f"br label %{done}")
        self._label(done)
        (left, left_block), (right, right_block) = found
        kind = _of(left.dtype, left.lanes)
        text = f"phi {kind} [ {left.handle}, %{left_block} ], [ {right.handle}, %{right_block} ]"
        return self._value(text, left.dtype, left.lanes)

    # Addresses

    def _digit(self, digit: str) -> tuple[_Scope, str]:
        """The scope in which a digit is known, and its value."""
        function = self._at
        if digit in function.counters:
            return function.counters[digit]
        derived = self._digits.derived[digit]
        operand = self._digits.resolved(derived.operand)
        scope = self._scope(operand)
        key = (digit, operand)
        if key not in scope.known:
            value = self._sum(operand)
            if derived.op in ("div", "mod"):
                name = "udiv" if derived.op == "div" else "urem"
                text = f"{name} i64 {value}, {derived.divisor}"
            else:
                name = "smin" if derived.op == "at_most_0" else "smax"
                self._declare(f"declare i64 @llvm.{name}.i64(i64, i64)")
                text = f"call i64 @llvm.{name}.i64(i64 {value}, i64 0)"
            scope.known[key] = self._early(scope, text)
        return scope, scope.known[key]

    def _scope(self, linear: Linear) -> _Scope:
        scopes = [self._digit(digit)[0] for digit in linear.digits]
        return max(scopes, key=lambda scope: scope.depth, default=self._at.scopes[0])

    def _early(self, scope: _Scope, text: str) -> str:
        name = self._name("a")
        scope.prologue.append(f"  {name} = {text}")
        return name

    def _terms(self, linear: Linear) -> list[tuple[_Scope, int, str]]:
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
                    part = self._early(scope, f"mul nsw i64 {value}, {factor}")
                if total:
                    part = self._early(scope, f"add nsw i64 {total}, {part}")
                scope.known["sum", key] = part
            total = scope.known["sum", key]
        if not total:
            return str(linear.constant)
        if linear.constant:
            whole = ("sum", key, linear.constant)
            if whole not in scope.known:
                scope.known[whole] = self._early(scope, f"add nsw i64 {total}, {linear.constant}")
            total = scope.known[whole]
        return total

    def _integer(self, linear: Linear) -> str:
        return self._sum(self._digits.resolved(linear))

    def _pointer(self, place: Place, at: Linear) -> tuple[str, int]:
        """The address of an element, and what it is aligned to in bytes."""
        kind = _in_memory(place.dtype)
        key: tuple[object, ...] = ("at", place.name)
        found, scope = self._at.bases[place.name], self._at.scopes[0]
        for scope, factor, value in self._terms(at):
            key = (*key, factor, value)
            if key not in scope.known:
                step = value
                if factor != 1:
                    step = self._early(scope, f"mul nsw i64 {value}, {factor}")
                text = f"getelementptr {kind}, ptr {found}, i64 {step}"
                scope.known[key] = self._early(scope, text)
            found = scope.known[key]
        if at.constant:
            whole = (*key, at.constant)
            if whole not in scope.known:
                text = f"getelementptr {kind}, ptr {found}, i64 {at.constant}"
                scope.known[whole] = self._early(scope, text)
            found = scope.known[whole]
        size = element_type(place.dtype).bytes
        apart = math.gcd(at.constant, *(factor for _, factor in at.terms)) * size
        return found, math.gcd(apart, _ALIGNMENT) if apart else _ALIGNMENT

    # Memory

    def allocate(self, place: Place) -> None:
        function = self._at
        if place.kind == "registers" and place.name not in function.registers:
            kind = _of(place.dtype, place.lanes)
            names = [self._name("r") for _ in range(place.elements // place.lanes)]
            function.allocations += [f"  {it} = alloca {kind}, align {_ALIGNMENT}" for it in names]
            function.registers[place.name] = names
        elif place.kind == "stack" and place.name not in function.bases:
            name, kind = self._name("stack"), _in_memory(place.dtype)
            text = f"  {name} = alloca [{place.elements} x {kind}], align {_ALIGNMENT}"
            function.allocations.append(text)
            function.bases[place.name] = name

    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        pointer, aligned = self._pointer(place, at)
        if mask is None:
            return self._read(place.dtype, pointer, aligned, lanes)
        kind, bits = _in_memory(place.dtype, lanes), self.wide(mask, lanes).handle
        size = element_type(place.dtype).bytes
        name = f"llvm.masked.load.{_suffix(kind, lanes)}.p0"
        self._declare(f"declare {kind} @{name}(ptr, <{lanes} x i1>, {kind})")
        text = f"call {kind} @{name}(ptr align {size} {pointer}, <{lanes} x i1> {bits}, "
        return self._from_memory(f"{text}{kind} zeroinitializer)", place.dtype, lanes)

    def _read(self, dtype: str, pointer: str, aligned: int, lanes: int) -> Value:
        whole = 1 << (element_type(dtype).bytes * lanes).bit_length() - 1
        text = f"load {_in_memory(dtype, lanes)}, ptr {pointer}, align {min(aligned, whole)}"
        return self._from_memory(text, dtype, lanes)

    def _from_memory(self, text: str, dtype: str, lanes: int) -> Value:
        value = self._value(text, dtype, lanes)
        if dtype != "bool":
            return value
        kind = _in_memory(dtype, lanes)
        return self._value(f"trunc {kind} {value.handle} to {_of(dtype, lanes)}", dtype, lanes)

    def load_strided(
        self, place: Place, at: Linear, stride: int, lanes: int, mask: Value | None = None
    ) -> Value:
        if mask is None:
            return self.gathered([self.load(place, at + stride * it, 1) for it in range(lanes)])
        pointer, _ = self._pointer(place, at)
        kind, size = _in_memory(place.dtype, lanes), element_type(place.dtype).bytes
        steps = ", ".join(f"i64 {stride * number}" for number in range(lanes))
        places = self._value(
            f"getelementptr {_in_memory(place.dtype)}, ptr {pointer}, <{lanes} x i64> <{steps}>",
            "int64",
            lanes,
        )
        name = f"llvm.masked.gather.{_suffix(kind, lanes)}.v{lanes}p0"
        self._declare(f"declare {kind} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {kind})")
        bits = self.wide(mask, lanes).handle
        text = f"call {kind} @{name}(<{lanes} x ptr> align {size} {places.handle}, "
        text += f"<{lanes} x i1> {bits}, {kind} zeroinitializer)"
        return self._from_memory(text, place.dtype, lanes)

    def load_chosen(self, place: Place, at: Linear, offset: Value, lanes: int) -> Value:
        pointer, _ = self._pointer(place, at)
        kind, name = _in_memory(place.dtype), self._name("p")
        self._line(f"{name} = getelementptr {kind}, ptr {pointer}, i64 {offset.handle}")
        return self._read(place.dtype, name, element_type(place.dtype).bytes, lanes)

    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        pointer, aligned = self._pointer(place, at)
        dtype, lanes = place.dtype, value.lanes
        kind, size = _in_memory(dtype, lanes), element_type(dtype).bytes
        if dtype == "bool":
            text = f"zext {_of(dtype, lanes)} {value.handle} to {kind}"
            value = self._value(text, dtype, lanes)
        if mask is not None:
            name = f"llvm.masked.store.{_suffix(kind, lanes)}.p0"
            self._declare(f"declare void @{name}({kind}, ptr, <{lanes} x i1>)")
            bits = self.wide(mask, lanes).handle
            text = f"({kind} {value.handle}, ptr align {size} {pointer}, <{lanes} x i1> {bits})"
            self._line(f"call void @{name}{text}")
            return
        whole = 1 << (size * lanes).bit_length() - 1
        past = ", !nontemporal !2" if stream and aligned >= min(whole, _ALIGNMENT) else ""
        text = f"store {kind} {value.handle}, ptr {pointer}, align {min(aligned, whole)}{past}"
        self._line(text)

    def prefetch(self, place: Place, at: Linear) -> None:
        pointer, _ = self._pointer(place, at)
        self._declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self._line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    def register(self, place: Place, number: int) -> Value:
        kind = _of(place.dtype, place.lanes)
        slot = self._at.registers[place.name][number]
        return self._value(f"load {kind}, ptr {slot}, align 64", place.dtype, place.lanes)

    def set_register(self, place: Place, number: int, value: Value) -> None:
        value = self.wide(value, place.lanes)
        slot = self._at.registers[place.name][number]
        kind = _of(place.dtype, place.lanes)
        self._line(f"store {kind} {value.handle}, ptr {slot}, align 64")

    # Values

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        return Value(_literal(value, dtype), dtype)

    def below(self, linear: Linear, step: int = 0, lanes: int = 1) -> Value:
        if step == 0:
            return self._value(f"icmp slt i64 {self._integer(linear)}, 0", "bool")
        values = self.ramp(linear, step, lanes)
        text = f"icmp slt <{lanes} x i64> {values.handle}, zeroinitializer"
        return self._value(text, "bool", lanes)

    def integer(self, linear: Linear) -> Value:
        return Value(self._integer(linear), "int64")

    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        first = self.wide(self.integer(base), lanes)
        steps = ", ".join(f"i64 {step * number}" for number in range(lanes))
        return self._value(f"add nsw <{lanes} x i64> {first.handle}, <{steps}>", "int64", lanes)

    def wide(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise UnsupportedWorkload(f"{value.lanes} lanes are used as {lanes}")
        scalar = f"{_of(value.dtype)} {value.handle}"
        if not value.handle.startswith("%"):
            return Value(f"splat ({scalar})", value.dtype, lanes)
        kind = _of(value.dtype, lanes)
        first = self._value(f"insertelement {kind} poison, {scalar}, i64 0", value.dtype, lanes)
        text = f"shufflevector {kind} {first.handle}, {kind} poison, <{lanes} x i32> "
        return self._value(f"{text}zeroinitializer", value.dtype, lanes)

    def lane(self, value: Value, number: int) -> Value:
        kind = _of(value.dtype, value.lanes)
        return self._value(f"extractelement {kind} {value.handle}, i64 {number}", value.dtype)

    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        kind = _of(value.dtype, value.lanes)
        text = f"insertelement {kind} {value.handle}, {_of(value.dtype)} {scalar.handle}, "
        return self._value(f"{text}i64 {number}", value.dtype, value.lanes)

    def gathered(self, scalars: Sequence[Value]) -> Value:
        result = Value("poison", scalars[0].dtype, len(scalars))
        for number, scalar in enumerate(scalars):
            result = self.with_lane(result, number, scalar)
        return result

    def _shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        kind = _of(left.dtype, left.lanes)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {kind} {left.handle}, {kind} {right.handle}, "
        return self._value(f"{text}<{len(lanes)} x i32> <{mask}>", left.dtype, len(lanes))

    def interleaved(self, left: Value, right: Value) -> Value:
        lanes = left.lanes
        order = [lane + side for lane in range(lanes) for side in (0, lanes)]
        return self._shuffled(left, right, order)

    def halves(self, value: Value) -> tuple[Value, Value]:
        if value.lanes == 2:
            return self.lane(value, 0), self.lane(value, 1)
        half = value.lanes // 2
        lower = self._shuffled(value, value, range(half))
        return lower, self._shuffled(value, value, range(half, value.lanes))

    def transposed(self, rows: Sequence[Value]) -> list[Value]:
        """Rows and columns change places bit by bit of their numbers."""
        found, size, bit = list(rows), len(rows), 1
        while bit < size:
            for row in range(size):
                if row & bit:
                    continue
                upper, lower = found[row], found[row | bit]
                even = [lane if not lane & bit else size + (lane ^ bit) for lane in range(size)]
                odd = [lane | bit if not lane & bit else size + lane for lane in range(size)]
                found[row] = self._shuffled(upper, lower, even)
                found[row | bit] = self._shuffled(upper, lower, odd)
            bit *= 2
        return found

    def _same(self, *values: Value) -> list[Value]:
        lanes = max(value.lanes for value in values)
        return [self.wide(value, lanes) for value in values]

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if condition.lanes > 1:
            condition, yes, no = self._same(condition, yes, no)
        else:
            yes, no = self._same(yes, no)
        kind = _of(yes.dtype, yes.lanes)
        text = f"select {_of('bool', condition.lanes)} {condition.handle}, {kind} {yes.handle}, "
        return self._value(f"{text}{kind} {no.handle}", yes.dtype, yes.lanes)

    def _operation(self, text: str, left: Value, right: Value, dtype: str = "") -> Value:
        left, right = self._same(left, right)
        kind = _of(left.dtype, left.lanes)
        found = f"{text} {kind} {left.handle}, {right.handle}"
        return self._value(found, dtype or left.dtype, left.lanes)

    def binary(self, op: str, left: Value, right: Value) -> Value:
        dtype = left.dtype
        if dtype == "bfloat16" or (dtype == "float16" and op in ("pow", "mod")):
            parts = (self.cast(value, "float32") for value in (left, right))
            result = self.binary(op, *parts)
            return result if result.dtype == "bool" else self.cast(result, dtype)
        if op in ("and", "or"):
            return self._operation(op, left, right)
        if op in _COMPARISONS:
            return self._compared(op, left, right)
        if op in ("max", "min"):
            return self._extreme(op, left, right)
        if op == "pow" and not _is_float(dtype):
            parts = (self.cast(value, "float64") for value in (left, right))
            return self.cast(self.binary(op, *parts), dtype)
        if op == "pow":
            return self._called("pow", *self._same(left, right))
        if op == "mod":
            return self._modulo(left, right)
        if _is_float(dtype):
            flags = " contract" if op != "div" else ""
            return self._operation(f"f{op}{flags}", left, right)
        if op == "div":
            return self._operation("udiv" if dtype.startswith("u") else "sdiv", left, right)
        if dtype == "bool":
            return self._operation({"add": "or", "mul": "and", "sub": "xor"}[op], left, right)
        return self._operation(_ARITHMETIC[op], left, right)

    def _compared(self, op: str, left: Value, right: Value) -> Value:
        if _is_float(left.dtype):
            return self._operation(f"fcmp {'u' if op == 'ne' else 'o'}{op}", left, right, "bool")
        unsigned = left.dtype.startswith("u") or left.dtype == "bool"
        sign = "" if op in ("eq", "ne") else "u" if unsigned else "s"
        return self._operation(f"icmp {sign}{op}", left, right, "bool")

    def _extreme(self, op: str, left: Value, right: Value) -> Value:
        """The larger or smaller, NaN if either is: ``right`` waits for one comparison only."""
        chosen = self.select(
            self._compared("gt" if op == "max" else "lt", left, right), left, right
        )
        if not _is_float(left.dtype):
            return chosen
        return self.select(self._operation("fcmp uno", left, left, "bool"), left, chosen)

    def _modulo(self, left: Value, right: Value) -> Value:
        """The remainder with the sign of the divisor, as in Python."""
        dtype = left.dtype
        if dtype.startswith("u"):
            return self._operation("urem", left, right)
        rest = self._operation("frem" if _is_float(dtype) else "srem", left, right)
        zero = self.constant(0, dtype)
        apart = self._operation(
            "xor", self._compared("lt", rest, zero), self._compared("lt", right, zero)
        )
        moved = self.binary("and", apart, self._compared("ne", rest, zero))
        return self.select(moved, self.binary("add", rest, right), rest)

    def unary(self, op: str, operand: Value) -> Value:
        dtype, kind = operand.dtype, _of(operand.dtype, operand.lanes)
        if op == "not":
            return self._operation("xor", operand, self.constant(True, "bool"))
        if dtype == "bfloat16" or (dtype == "float16" and op not in ("neg", *_EXACT)):
            return self.cast(self.unary(op, self.cast(operand, "float32")), dtype)
        if not _is_float(dtype):
            return self._of_integer(op, operand)
        if op == "neg":
            return self._value(f"fneg {kind} {operand.handle}", dtype, operand.lanes)
        if op == "erf" and dtype == "float64":
            return self._by_library("erf", operand)
        if dtype == "float32" and op in ELEMENTARY:
            result: Value = ELEMENTARY[op](_Arithmetic(self, operand.lanes), operand)
            return result
        if op == "rsqrt":
            one = self.constant(1.0, dtype)
            return self.binary("div", one, self._called("sqrt", operand))
        if op == "sigmoid":
            one = self.constant(1.0, dtype)
            grown = self._called("exp", self.unary("neg", operand))
            return self.binary("div", one, self.binary("add", one, grown))
        if op not in _FUNCTIONS:
            raise UnsupportedWorkload(f"{op} of {dtype} is not printed")
        return self._called(_FUNCTIONS[op], operand)

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

    def _by_library(self, name: str, operand: Value) -> Value:
        """A function of the C library on doubles, lane by lane."""
        self._declare(f"declare double @{name}(double)")
        lanes = [
            self._value(f"call double @{name}(double {self.lane(operand, it).handle})", "float64")
            if operand.lanes > 1
            else self._value(f"call double @{name}(double {operand.handle})", "float64")
            for it in range(operand.lanes)
        ]
        return self.gathered(lanes) if operand.lanes > 1 else lanes[0]

    def _called(self, name: str, *operands: Value) -> Value:
        """A function of LLVM's, which calls the C library where the processor has none."""
        first = operands[0]
        kind = _of(first.dtype, first.lanes)
        full = f"llvm.{name}.{_suffix(kind, first.lanes)}"
        self._declare(f"declare {kind} @{full}({', '.join([kind] * len(operands))})")
        arguments = ", ".join(f"{kind} {operand.handle}" for operand in operands)
        return self._value(f"call {kind} @{full}({arguments})", first.dtype, first.lanes)

    def cast(self, value: Value, dtype: str) -> Value:
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
        if _is_float(source) and _is_float(dtype):
            name = "fpext" if sizes[1] > sizes[0] else "fptrunc"
        elif _is_float(source):
            name = "fptoui" if dtype.startswith("u") else "fptosi"
        elif _is_float(dtype):
            name = "uitofp" if unsigned else "sitofp"
        elif source != "bool" and sizes[0] == sizes[1]:
            return Value(value.handle, dtype, lanes)
        elif source != "bool" and sizes[1] < sizes[0]:
            name = "trunc"
        else:
            name = "zext" if unsigned else "sext"
        text = f"{name} {_of(source, lanes)} {value.handle} to {_of(dtype, lanes)}"
        return self._value(text, dtype, lanes)

    def _of_bfloat16(self, value: Value) -> Value:
        lanes = value.lanes
        text = f"zext {_of('int16', lanes)} {value.handle} to {_of('int32', lanes)}"
        bits = self._operation(
            "shl", self._value(text, "int32", lanes), self.constant(16, "int32")
        )
        return self.bitcast(bits, "float32", lanes)

    def _to_bfloat16(self, value: Value) -> Value:
        """Rounded to the nearest, halfway to even; NaN stays NaN."""
        bits, number = self.bitcast(value, "int32", value.lanes), self.constant
        high = self._operation("lshr", bits, number(16, "int32"))
        odd = self._operation("and", high, number(1, "int32"))
        nearest = self._operation("add", bits, number(0x7FFF, "int32"))
        rounded = self._operation("add", nearest, odd)
        result = self._operation("lshr", rounded, number(16, "int32"))
        is_nan = self._operation("fcmp uno", value, value, "bool")
        result = self.select(is_nan, number(0x7FC0, "int32"), result)
        kind = _of("int16", value.lanes)
        text = f"trunc {_of('int32', value.lanes)} {result.handle} to {kind}"
        return self._value(text, "bfloat16", value.lanes)

    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        kinds = _of(value.dtype, value.lanes), _of(dtype, lanes)
        if kinds[0] == kinds[1]:
            return Value(value.handle, dtype, lanes)
        return self._value(f"bitcast {kinds[0]} {value.handle} to {kinds[1]}", dtype, lanes)

    # Instructions

    def pointer(self, place: Place, at: Linear) -> Value:
        found, _ = self._pointer(place, at)
        return Value(found, "pointer")

    def intrinsic(self, name: str, dtype: str, lanes: int, arguments: Sequence[Value]) -> Value:
        kind = _as_argument(dtype, lanes)
        found = self._value(f"call {kind} {self._given(kind, name, arguments)}", dtype, lanes)
        return self._with_kind(found, kind, _of(dtype, lanes))

    def execute(self, name: str, arguments: Sequence[Value]) -> None:
        self._line(f"call void {self._given('void', name, arguments)}")

    def _given(self, result: str, name: str, arguments: Sequence[Value]) -> str:
        """A function of LLVM with its arguments, in their own types."""
        kinds = [_as_argument(value.dtype, value.lanes) for value in arguments]
        self._declare(f"declare {result} @{name}({', '.join(kinds)})")
        given = [
            f"{kind} {self._with_kind(value, _of(value.dtype, value.lanes), kind).handle}"
            for value, kind in zip(arguments, kinds, strict=True)
        ]
        return f"@{name}({', '.join(given)})"

    def _with_kind(self, value: Value, before: str, after: str) -> Value:
        if before == after:
            return value
        text = f"bitcast {before} {value.handle} to {after}"
        return self._value(text, value.dtype, value.lanes)

    def _declare(self, text: str) -> None:
        self._declared.add(text)


def _suffix(kind: str, lanes: int) -> str:
    """What the names of LLVM's functions say of a type."""
    element = kind if lanes == 1 else kind.split(" x ")[1].removesuffix(">")
    name = _SUFFIXES.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


class _Arithmetic(Arithmetic):
    """Elementary functions on the values of a printer."""

    def __init__(self, emitter: LLVMEmitter, lanes: int) -> None:
        self._emitter, self._lanes = emitter, lanes

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
        return self._emitter._operation(name, self._bits(left), self._bits(right))

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
