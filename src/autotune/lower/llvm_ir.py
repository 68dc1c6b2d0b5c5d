"""The printer of LLVM IR, as text.

A program is one function over an array of pointers, and one more for each parallel loop, whose
iterations are tasks of a pool. Integers of addresses are computed where the innermost loop that
they depend on begins, so that nothing has to move them out; registers are stack slots, which
LLVM's first pass makes values of.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import define, field

from autotune.ir.element_types import element_type
from autotune.lower.emitter import Value
from autotune.lower.linear import DerivedOp, Linear
from autotune.lower.places import Place
from autotune.lower.scopes import ALIGNMENT, Function, Scope, ScopedEmitter

__all__ = ["LLVMEmitter", "function_text"]

_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}
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
_MASKED_SIZES = (4, 8)
_TAIL = """
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}
!2 = !{i32 1}
"""


@define(eq=False)
class LLVMEmitter(ScopedEmitter):
    """Prints LLVM IR.

    Every entry of the program is a function ``int ENTRY(ptr arrays, ptr launch, ptr pool)``, which
    returns 0. ``arrays`` holds the addresses of inputs, outputs and scratch memory. Tasks of a
    parallel loop are started by ``launch(pool, task, arrays, count)``, which calls ``task(arrays,
    begin, end, thread)`` for parts of ``range(count)``, and returns when all have run; where
    ``launch`` is null, the caller's thread runs them.

    Attributes:
        prefix: What names of functions begin with.
        attributes: LLVM's attributes of functions that compute, each behind a blank.
        masked_bytes: Width of the registers that are loaded under a mask of elements of 4 or 8
            bytes; 0 where the processor has no instruction for that.
    """

    language = "LLVM"
    types = MappingProxyType(
        {"float16": "half", "float32": "float", "float64": "double", "pointer": "ptr"}
    )
    vector = "<{} x {}>"
    brain = "bfloat"

    prefix: str = field(default="", kw_only=True)
    attributes: str = field(default="", kw_only=True)
    masked_bytes: int = field(default=0, kw_only=True)
    _pieces: dict[str, tuple[str, str, int, int]] = field(factory=dict)

    # Structure

    @contextmanager
    def entry(self, name: str) -> Iterator[None]:
        self._functions = []
        self._open("")
        yield
        name = f"{self.prefix}{name}"
        pool = "ptr %launch, ptr %pool"
        self._define(f"{name}.body", pool, self._functions.pop())
        self._texts.append(
            f"define i32 @{name}(ptr %arrays, {pool}) {{\n"
            + self._unpacked(f"{name}.body", f"ptr %arrays, {pool}", "ret i32 0")
            + "}"
        )

    def finish(self) -> str:
        own = f'attributes #0 = {{ nounwind noinline "no-builtins"{self.attributes} }}'
        return "\n".join([*self._texts, *sorted(self._declared), own, _TAIL])

    def _define(self, name: str, others: str, function: Function) -> None:
        """Add a function of all arrays, which do not overlap, and of other parameters."""
        arrays = [
            f"ptr noalias align {ALIGNMENT} "
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

    def _label(self, label: str) -> None:
        self._at.scope.lines.append(f"{label}:")
        self._at.block = label

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
        scope = Scope(len(function.scopes))
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
        name = f"{self.prefix}task{len(self._texts)}"
        self._open("%thread")
        yield from self._counted(counter, "%begin", "%end", "serial")
        if self._at.streams:
            # What is written past the caches is seen by others behind a fence only.
            self._line("fence seq_cst")
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
        kind = self._of(left.dtype, left.lanes)
        text = f"phi {kind} [ {left.handle}, %{left_block} ], [ {right.handle}, %{right_block} ]"
        return self._value(text, left.dtype, left.lanes)

    # Addresses

    def number(self, value: int) -> str:
        return str(value)

    def product(self, value: str, factor: int) -> str:
        return f"mul nsw i64 {value}, {factor}"

    def total(self, left: str, right: str) -> str:
        return f"add nsw i64 {left}, {right}"

    def derived(self, op: DerivedOp, value: str, divisor: int) -> str:
        if op in ("div", "mod"):
            return f"{'udiv' if op == 'div' else 'urem'} i64 {value}, {divisor}"
        name = "smin" if op == "at_most_0" else "smax"
        self._declare(f"declare i64 @llvm.{name}.i64(i64, i64)")
        return f"call i64 @llvm.{name}.i64(i64 {value}, i64 0)"

    def step(self, dtype: str, base: str, by: str) -> str:
        return f"getelementptr {self._in_memory(dtype)}, ptr {base}, i64 {by}"

    # Memory

    def float_bits(self, value: np.floating[Any]) -> str:
        if value.dtype == np.float16:
            return "0xH" + struct.pack(">e", value).hex().upper()
        return "0x" + struct.pack(">d", value).hex().upper()

    def reserved(self, kind: str, elements: int) -> str:
        what = f"[{elements} x {kind}]" if elements else kind
        return f"alloca {what}, align {ALIGNMENT}"

    def read(self, kind: str, pointer: str, aligned: int) -> str:
        return f"load {kind}, ptr {pointer}, align {aligned}"

    def written(self, kind: str, value: str, pointer: str, aligned: int, stream: bool) -> str:
        past = ", !nontemporal !2" if stream else ""
        return f"store {kind} {value}, ptr {pointer}, align {aligned}{past}"

    def masked_read(self, dtype: str, lanes: int, pointer: str, mask: str) -> str:
        kind, size = self._in_memory(dtype, lanes), element_type(dtype).bytes
        name = f"llvm.masked.load.{_suffix(kind, lanes)}.p0"
        self._declare(f"declare {kind} @{name}(ptr, <{lanes} x i1>, {kind})")
        given = f"ptr align {size} {pointer}, <{lanes} x i1> {mask}, {kind} zeroinitializer"
        return f"call {kind} @{name}({given})"

    def masked_written(self, dtype: str, value: Value, pointer: str, mask: str) -> str:
        lanes, size = value.lanes, element_type(dtype).bytes
        kind = self._in_memory(dtype, lanes)
        name = f"llvm.masked.store.{_suffix(kind, lanes)}.p0"
        self._declare(f"declare void @{name}({kind}, ptr, <{lanes} x i1>)")
        given = f"{kind} {value.handle}, ptr align {size} {pointer}, <{lanes} x i1> {mask}"
        return f"call void @{name}({given})"

    def masked_gather(self, dtype: str, lanes: int, pointer: str, stride: int, mask: Value) -> str:
        kind, size = self._in_memory(dtype, lanes), element_type(dtype).bytes
        steps = ", ".join(f"i64 {stride * number}" for number in range(lanes))
        by = f"<{lanes} x i64> <{steps}>"
        places = self._value(
            f"getelementptr {self._in_memory(dtype)}, ptr {pointer}, {by}", "int64", lanes
        )
        name = f"llvm.masked.gather.{_suffix(kind, lanes)}.v{lanes}p0"
        self._declare(f"declare {kind} @{name}(<{lanes} x ptr>, <{lanes} x i1>, {kind})")
        bits = self.wide(mask, lanes).handle
        return (
            f"call {kind} @{name}(<{lanes} x ptr> align {size} {places.handle}, "
            f"<{lanes} x i1> {bits}, {kind} zeroinitializer)"
        )

    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        if mask is None and self._is_read_in_pieces(place, lanes):
            return self._read_whole(place, at, lanes)
        return super().load(place, at, lanes, mask)

    def _is_read_in_pieces(self, place: Place, lanes: int) -> bool:
        """Tell whether LLVM would put a register together from several loads: 7 floats from 3.

        What was written a moment ago, in such pieces, is read in them all the same: a wider load
        would wait until they are in the cache.
        """
        size = element_type(place.dtype).bytes
        if not self.masked_bytes or size not in _MASKED_SIZES:
            return False
        is_old = place.is_copy or place in self._places[: self._inputs]
        return is_old and (lanes % (self.masked_bytes // size)).bit_count() > 1

    def _read_whole(self, place: Place, at: Linear, lanes: int) -> Value:
        """Lanes of one load under a mask; what is only moved is read in the pieces of a store."""
        whole = 1 << lanes.bit_length()
        bits = ", ".join(f"i1 {'true' if it < lanes else 'false'}" for it in range(whole))
        value = self.load(place, at, whole, Value(f"<{bits}>", "bool", whole))
        value = self.shuffled(value, value, range(lanes))
        pointer, aligned = self._pointer(place, at)
        self._pieces[value.handle] = place.dtype, pointer, aligned, lanes
        return value

    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        if mask is None and value.handle in self._pieces:
            value = self._read(*self._pieces[value.handle])
        super().store(place, at, value, mask, stream)

    def prefetch(self, place: Place, at: Linear) -> None:
        pointer, _ = self._pointer(place, at)
        self._declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self._line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 3, i32 1)")

    # Values

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        return Value(self._literal(value, dtype), dtype)

    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        first = self.wide(self.integer(base), lanes)
        steps = ", ".join(f"i64 {step * number}" for number in range(lanes))
        return self._value(f"add nsw <{lanes} x i64> {first.handle}, <{steps}>", "int64", lanes)

    def broadcast(self, value: Value, lanes: int) -> Value:
        scalar = f"{self._of(value.dtype)} {value.handle}"
        if not value.handle.startswith("%"):
            return Value(f"splat ({scalar})", value.dtype, lanes)
        kind = self._of(value.dtype, lanes)
        first = self._value(f"insertelement {kind} poison, {scalar}, i64 0", value.dtype, lanes)
        text = f"shufflevector {kind} {first.handle}, {kind} poison, <{lanes} x i32> "
        return self._value(f"{text}zeroinitializer", value.dtype, lanes)

    def lane(self, value: Value, number: int) -> Value:
        kind = self._of(value.dtype, value.lanes)
        return self._value(f"extractelement {kind} {value.handle}, i64 {number}", value.dtype)

    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        kind = self._of(value.dtype, value.lanes)
        text = f"insertelement {kind} {value.handle}, {self._of(value.dtype)} {scalar.handle}, "
        return self._value(f"{text}i64 {number}", value.dtype, value.lanes)

    def gathered(self, scalars: Sequence[Value]) -> Value:
        result = Value("poison", scalars[0].dtype, len(scalars))
        for number, scalar in enumerate(scalars):
            result = self.with_lane(result, number, scalar)
        return result

    def shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        kind = self._of(left.dtype, left.lanes)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {kind} {left.handle}, {kind} {right.handle}, "
        return self._value(f"{text}<{len(lanes)} x i32> <{mask}>", left.dtype, len(lanes))

    def chosen(self, condition: Value, yes: Value, no: Value) -> str:
        kind, bits = self._of(yes.dtype, yes.lanes), self._of("bool", condition.lanes)
        return f"select {bits} {condition.handle}, {kind} {yes.handle}, {kind} {no.handle}"

    def operation(self, name: str, left: Value, right: Value, dtype: str = "") -> Value:
        left, right = self.same(left, right)
        kind = self._of(left.dtype, left.lanes)
        found = f"{name} {kind} {left.handle}, {right.handle}"
        return self._value(found, dtype or left.dtype, left.lanes)

    def library_call(self, name: str, operand: str) -> str:
        self._declare(f"declare double @{name}(double)")
        return f"call double @{name}(double {operand})"

    def called(self, name: str, *operands: Value) -> Value:
        """A function of LLVM's, which calls the C library where the processor has none."""
        first = operands[0]
        kind = self._of(first.dtype, first.lanes)
        full = f"llvm.{_FUNCTIONS.get(name, name)}.{_suffix(kind, first.lanes)}"
        self._declare(f"declare {kind} @{full}({', '.join([kind] * len(operands))})")
        arguments = ", ".join(f"{kind} {operand.handle}" for operand in operands)
        return self._value(f"call {kind} @{full}({arguments})", first.dtype, first.lanes)

    def negative(self, operand: Value) -> Value:
        kind = self._of(operand.dtype, operand.lanes)
        return self._value(f"fneg {kind} {operand.handle}", operand.dtype, operand.lanes)

    def converted(self, name: str, value: Value, dtype: str) -> Value:
        lanes = value.lanes
        text = f"{name} {self._of(value.dtype, lanes)} {value.handle} to {self._of(dtype, lanes)}"
        return self._value(text, dtype, lanes)

    def bits_as(self, handle: str, before: str, after: str) -> str:
        return f"bitcast {before} {handle} to {after}"

    def intrinsic_call(
        self, name: str, result: str, kinds: Sequence[str], given: Sequence[str]
    ) -> str:
        result = result or "void"
        self._declare(f"declare {result} @{name}({', '.join(kinds)})")
        listed = ", ".join(" ".join(pair) for pair in zip(kinds, given, strict=True))
        return f"call {result} @{name}({listed})"

    def _declare(self, text: str) -> None:
        self._declared.add(text)


def function_text(
    name: str, operand: tuple[str, int], make: Callable[[LLVMEmitter, Value], Value]
) -> tuple[str, ...]:
    """A function of one value, which LLVM puts in where it is called, behind what it declares.

    Args:
        name: What it is called by.
        operand: Element type and lanes of the value.
        make: Says with the printer what the function returns.
    """
    emitter = LLVMEmitter()
    scope = emitter._open("").scope
    result = make(emitter, Value("%x", *operand))
    kind = emitter._of(result.dtype, result.lanes)
    lines = [*scope.text(), f"  ret {kind} {result.handle}"]
    head = f"define {kind} @{name}({emitter._of(*operand)} %x) alwaysinline nounwind"
    return *sorted(emitter._declared), "\n".join([f"{head} {{", *lines, "}\n"])


def _suffix(kind: str, lanes: int) -> str:
    """The suffix of a type in names of LLVM's functions."""
    element = kind if lanes == 1 else kind.split(" x ")[1].removesuffix(">")
    name = _SUFFIXES.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"
