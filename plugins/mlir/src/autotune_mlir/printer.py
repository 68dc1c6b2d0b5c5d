"""The printer of MLIR, as text: loops of ``scf``, numbers of ``arith``, ``math`` and ``vector``.

Memory is LLVM's dialect, which says what memrefs cannot: what is aligned, what is written past the
caches, what does not overlap. Registers are stack slots, which LLVM's first pass makes values of.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from autotune_mlir.entry import call_text, entry_text

__all__ = ["MLIREmitter", "unary_text"]

_OPERATIONS = MappingProxyType(
    {
        **{f"f{op} contract": f"arith.{op}f" for op in ("add", "sub", "mul")},
        "fdiv": "arith.divf",
        "frem": "arith.remf",
        **{op: f"arith.{op}i" for op in ("add", "sub", "mul", "and", "or", "xor")},
        "shl": "arith.shli",
        "lshr": "arith.shrui",
        "ashr": "arith.shrsi",
        "sdiv": "arith.divsi",
        "udiv": "arith.divui",
        "srem": "arith.remsi",
        "urem": "arith.remui",
    }
)
_CONVERSIONS = MappingProxyType(
    {"fpext": "extf", "fptrunc": "truncf", "trunc": "trunci", "zext": "extui", "sext": "extsi"}
)
_FUNCTIONS = MappingProxyType({"round": "roundeven", "abs": "absf", "pow": "powf"})
_DERIVED: Mapping[DerivedOp, str] = MappingProxyType(
    {"div": "divui", "mod": "remui", "at_most_0": "minsi", "at_least_0": "maxsi"}
)
_LOOP = "llvm.loop_annotation = #loop"
_HEAD = """\
#loop = #llvm.loop_annotation<unroll = <disable = true>, vectorize = <disable = true>>
module {"""
# Not inlined, or LLVM would forget what does not overlap.
_OUTLINED = 'passthrough = ["noinline", "nounwind", "no-builtins"]'


@define(eq=False)
class MLIREmitter(ScopedEmitter):
    """Prints MLIR.

    Every entry of the program is a function ``int ENTRY(void **arrays)``, which returns 0.
    ``arrays`` holds the addresses of inputs, outputs and scratch memory. The threads of OpenMP
    share the iterations of a parallel loop.

    Attributes:
        threads: How many of them there are.
        disabled: Features of this machine that the program must not use, by LLVM's names.
    """

    language = "MLIR"
    types = MappingProxyType(
        {"float16": "f16", "float32": "f32", "float64": "f64", "pointer": "!llvm.ptr"}
    )
    vector = "vector<{}x{}>"
    brain = "bf16"

    threads: int = 1
    disabled: tuple[str, ...] = ()
    _literals: dict[str, tuple[str, str]] = field(factory=dict)
    _is_uneven: bool = False

    # Structure

    @contextmanager
    def entry(self, name: str) -> Iterator[None]:
        self._functions = []
        self._open("")
        yield
        self._define(f"{name}.body", (), self._functions.pop())
        entry = entry_text(name, f"{name}.body", len(self._places), self._with())
        self._texts.append(entry)

    def finish(self) -> str:
        return "\n".join([_HEAD, *sorted(self._declared), *self._texts, "}", ""])

    def _with(self, *attributes: str) -> str:
        """The attributes of a function."""
        listed = ", ".join(f'"-{feature}"' for feature in self.disabled)
        if listed:
            attributes += (f"target_features = #llvm.target_features<[{listed}]>",)
        return f" attributes {{{', '.join(attributes)}}}" if attributes else ""

    def _define(self, name: str, others: Sequence[str], function: Function) -> None:
        """Add a function of all arrays, which do not overlap, and of integers."""
        kept = f"llvm.align = {ALIGNMENT} : i64, llvm.noalias"
        arrays = [
            f"%array{number}: !llvm.ptr {{{kept}"
            + (", llvm.readonly}" if number < self._inputs else "}")
            for number in range(len(self._places))
        ]
        body = "\n".join([*function.allocations, *function.scope.text(), "  llvm.return"])
        parameters = ", ".join([*arrays, *(f"{other}: i64" for other in others)])
        head = f"llvm.func internal @{name}({parameters}){self._with(_OUTLINED)}"
        self._texts.append(f"{head} {{\n{body}\n}}")

    @contextmanager
    def loop(self, counter: str, begin: Linear, end: Linear, kind: str) -> Iterator[None]:
        if kind == "parallel" and len(self._functions) == 1 and len(self._at.scopes) == 1:
            yield from self._shared(counter, end.constant)
            return
        parallel = next(iter(self._at.counters), None) if len(self._functions) == 2 else None
        if parallel is not None:
            self._is_uneven |= any(self._digits.depends(it, parallel) for it in (begin, end))
        yield from self._counted(counter, self._integer(begin), self._integer(end))

    def _counted(self, counter: str, begin: str, end: str) -> Iterator[None]:
        function, value = self._at, self._name("i")
        scope = Scope(len(function.scopes))
        step = self.number(1)
        scope.head = [f"  scf.for {value} = {begin} to {end} step {step} : i64 {{"]
        function.scope.lines.append(scope)
        function.scopes.append(scope)
        function.counters[counter] = scope, value
        yield
        self._line(f"}} {{{_LOOP}}}")
        function.scopes.pop()
        del function.counters[counter]

    def _shared(self, counter: str, count: int) -> Iterator[None]:
        """A loop whose body is a function that all threads call.

        Each has a part of the iterations, or, where some do more than others, takes turns.
        """
        name, self._is_uneven = f"task{len(self._texts)}", False
        others = ("%begin", "%end", "%thread")
        self._open("%thread")
        yield from self._counted(counter, "%begin", "%end")
        self._define(name, others, self._functions.pop())
        total, one = self.number(count), self.number(1)
        if self.threads == 1:
            zero = self.number(0)
            self._line(call_text(name, len(self._places), (zero, total, zero)))
            return
        own, of, first, last, after = (
            self._name(kind) for kind in ("thread", "threads", "begin", "end", "after")
        )
        share = call_text(name, len(self._places), (first, last, own))
        self._line(
            f"omp.parallel num_threads({self._constant(str(self.threads), 'i32')} : i32) {{"
        )
        for value, function in ((own, "omp_get_thread_num"), (of, "omp_get_num_threads")):
            self._declared.add(f"llvm.func @{function}() -> i32")
            self._line(f"{value}.narrow = llvm.call @{function}() : () -> i32")
            self._line(f"{value} = arith.extui {value}.narrow : i32 to i64")
        if self._is_uneven:
            self._line(f"scf.for {first} = {own} to {total} step {of} : i64 {{")
            self._line(f"{last} = {self.total(first, one)}")
            self._line(share)
            self._line("}")
        else:
            self._line(f"{after} = {self.total(own, one)}")
            for value, thread in ((first, own), (last, after)):
                self._line(f"{value}.whole = arith.muli {thread}, {total} : i64")
                self._line(f"{value} = arith.divui {value}.whole, {of} : i64")
            self._line(share)
        self._line("omp.terminator")
        self._line("}")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        self._line(f"scf.if {condition.handle} {{")
        yield
        self._line("}")

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        lines, name = self._at.scope.lines, self._name()
        place = len(lines)
        lines.append("")
        first = self._yielded(yes)
        self._line("} else {")
        self._yielded(no)
        self._line("}")
        kind = self._of(first.dtype, first.lanes)
        lines[place] = f"  {name} = scf.if {condition.handle} -> ({kind}) {{"
        return Value(name, first.dtype, first.lanes)

    def _yielded(self, side: Callable[[], Value]) -> Value:
        value = side()
        self._line(f"scf.yield {value.handle} : {self._of(value.dtype, value.lanes)}")
        return value

    # Constants, where functions begin

    def _constant(self, literal: str, kind: str) -> str:
        function, text = self._at, f"arith.constant {literal} : {kind}"
        if text not in function.constants:
            name = self._name("c")
            if kind == "i1":
                text = f"arith.constant {literal}"
            function.allocations.insert(len(function.constants), f"  {name} = {text}")
            function.constants[f"arith.constant {literal} : {kind}"] = name
            self._literals[name] = literal, kind
        return function.constants[f"arith.constant {literal} : {kind}"]

    def _dense(self, literal: str, kind: str) -> str:
        return self._constant(f"dense<{literal}>", kind)

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        return Value(self._constant(self._literal(value, dtype), self._of(dtype)), dtype)

    # Addresses

    def number(self, value: int) -> str:
        return self._constant(str(value), "i64")

    def product(self, value: str, factor: int) -> str:
        return f"arith.muli {value}, {self.number(factor)} overflow<nsw> : i64"

    def total(self, left: str, right: str) -> str:
        return f"arith.addi {left}, {right} overflow<nsw> : i64"

    def derived(self, op: DerivedOp, value: str, divisor: int) -> str:
        other = divisor if op in ("div", "mod") else 0
        return f"arith.{_DERIVED[op]} {value}, {self.number(other)} : i64"

    def step(self, dtype: str, base: str, by: str) -> str:
        # Constants are a part of the operation, not its operands.
        by = self._literals[by][0] if by in self._literals else by
        kinds = "(!llvm.ptr) -> !llvm.ptr" if not by.startswith("%") else None
        kinds = kinds or "(!llvm.ptr, i64) -> !llvm.ptr"
        return f"llvm.getelementptr {base}[{by}] : {kinds}, {self._in_memory(dtype)}"

    # Memory

    def float_bits(self, value: np.floating[Any]) -> str:
        form = {2: ">e", 4: ">f", 8: ">d"}[value.itemsize]
        return "0x" + struct.pack(form, value).hex().upper()

    def reserved(self, kind: str, elements: int) -> str:
        count = self.number(elements or 1)
        about = f"{{alignment = {ALIGNMENT} : i64}} : (i64) -> !llvm.ptr"
        return f"llvm.alloca {count} x {kind} {about}"

    def read(self, kind: str, pointer: str, aligned: int) -> str:
        return f"llvm.load {pointer} {{alignment = {aligned} : i64}} : !llvm.ptr -> {kind}"

    def written(self, kind: str, value: str, pointer: str, aligned: int, stream: bool) -> str:
        about = f"alignment = {aligned} : i64{', nontemporal' if stream else ''}"
        return f"llvm.store {value}, {pointer} {{{about}}} : {kind}, !llvm.ptr"

    def masked_read(self, dtype: str, lanes: int, pointer: str, mask: str) -> str:
        kind, zeros = self._in_memory(dtype, lanes), self._zeros(dtype, lanes)
        about = f"{{alignment = {element_type(dtype).bytes} : i32}}"
        kinds = f"(!llvm.ptr, {self._of('bool', lanes)}, {kind}) -> {kind}"
        return f"llvm.intr.masked.load {pointer}, {mask}, {zeros} {about} : {kinds}"

    def _zeros(self, dtype: str, lanes: int) -> str:
        kind = "int8" if dtype == "bool" else dtype
        return self._dense(self._literal(0, kind), self._in_memory(dtype, lanes))

    def masked_written(self, dtype: str, value: Value, pointer: str, mask: str) -> str:
        kinds = f"{self._in_memory(dtype, value.lanes)}, {self._of('bool', value.lanes)}"
        about = f"{{alignment = {element_type(dtype).bytes} : i32}} : {kinds} into !llvm.ptr"
        return f"llvm.intr.masked.store {value.handle}, {pointer}, {mask} {about}"

    def masked_gather(self, dtype: str, lanes: int, pointer: str, stride: int, mask: Value) -> str:
        kind, size = self._in_memory(dtype, lanes), element_type(dtype).bytes
        indices, pointers = f"vector<{lanes}xi64>", f"vector<{lanes}x!llvm.ptr>"
        listed = ", ".join(str(stride * number) for number in range(lanes))
        steps = self._dense(f"[{listed}]", indices)
        places = self._name("p")
        self._line(
            f"{places} = llvm.getelementptr {pointer}[{steps}] : "
            f"(!llvm.ptr, {indices}) -> {pointers}, {self._in_memory(dtype)}"
        )
        bits, zeros = self.wide(mask, lanes).handle, self._zeros(dtype, lanes)
        return (
            f"llvm.intr.masked.gather {places}, {bits}, {zeros} {{alignment = {size} : i32}} : "
            f"({pointers}, {self._of('bool', lanes)}, {kind}) -> {kind}"
        )

    def prefetch(self, place: Place, at: Linear) -> None:
        pointer, _ = self._pointer(place, at)
        about = "<{rw = 0 : i32, hint = 3 : i32, cache = 1 : i32}>"
        self._line(f'"llvm.intr.prefetch"({pointer}) {about} : (!llvm.ptr) -> ()')

    # Values

    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        kind, listed = self._of("int64", lanes), ", ".join(str(step * it) for it in range(lanes))
        first, steps = self.wide(self.integer(base), lanes), self._dense(f"[{listed}]", kind)
        return self._value(f"arith.addi {first.handle}, {steps} : {kind}", "int64", lanes)

    def broadcast(self, value: Value, lanes: int) -> Value:
        kind = self._of(value.dtype, lanes)
        if value.handle in self._literals:
            return Value(self._dense(self._literals[value.handle][0], kind), value.dtype, lanes)
        text = f"vector.broadcast {value.handle} : {self._of(value.dtype)} to {kind}"
        return self._value(text, value.dtype, lanes)

    def lane(self, value: Value, number: int) -> Value:
        kind = f"{self._of(value.dtype)} from {self._of(value.dtype, value.lanes)}"
        return self._value(f"vector.extract {value.handle}[{number}] : {kind}", value.dtype)

    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        kind = f"{self._of(value.dtype)} into {self._of(value.dtype, value.lanes)}"
        text = f"vector.insert {scalar.handle}, {value.handle} [{number}] : {kind}"
        return self._value(text, value.dtype, value.lanes)

    def gathered(self, scalars: Sequence[Value]) -> Value:
        dtype, lanes = scalars[0].dtype, len(scalars)
        listed = ", ".join(scalar.handle for scalar in scalars)
        return self._value(
            f"vector.from_elements {listed} : {self._of(dtype, lanes)}", dtype, lanes
        )

    def shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        kind = self._of(left.dtype, left.lanes)
        text = f"vector.shuffle {left.handle}, {right.handle} {list(lanes)} : {kind}, {kind}"
        return self._value(text, left.dtype, len(lanes))

    def chosen(self, condition: Value, yes: Value, no: Value) -> str:
        kind = self._of(yes.dtype, yes.lanes)
        about = f"{self._of('bool', condition.lanes)}, {kind}" if condition.lanes > 1 else kind
        return f"arith.select {condition.handle}, {yes.handle}, {no.handle} : {about}"

    def operation(self, name: str, left: Value, right: Value, dtype: str = "") -> Value:
        left, right = self.same(left, right)
        operands = f"{left.handle}, {right.handle}"
        kind = self._of(left.dtype, left.lanes)
        if name.startswith(("icmp ", "fcmp ")):
            compared = f"arith.cmp{'i' if name.startswith('i') else 'f'} {name[5:]}"
            text = f"{compared}, {operands} : {kind}"
        else:
            flags = " fastmath<contract>" if name.endswith(" contract") else ""
            text = f"{_OPERATIONS[name]} {operands}{flags} : {kind}"
        return self._value(text, dtype or left.dtype, left.lanes)

    def converted(self, name: str, value: Value, dtype: str) -> Value:
        kinds = self._of(value.dtype, value.lanes), self._of(dtype, value.lanes)
        text = f"arith.{_CONVERSIONS.get(name, name)} {value.handle} : {kinds[0]} to {kinds[1]}"
        return self._value(text, dtype, value.lanes)

    def bits_as(self, handle: str, before: str, after: str) -> str:
        return f"llvm.bitcast {handle} : {before} to {after}"

    def intrinsic_call(
        self, name: str, result: str, kinds: Sequence[str], given: Sequence[str]
    ) -> str:
        listed = f"({', '.join(given)}) : ({', '.join(kinds)})"
        return f'llvm.call_intrinsic "{name}"{listed} -> {result or "()"}'

    def called(self, name: str, *operands: Value) -> Value:
        first = operands[0]
        listed = ", ".join(operand.handle for operand in operands)
        kind = self._of(first.dtype, first.lanes)
        text = f"math.{_FUNCTIONS.get(name, name)} {listed} : {kind}"
        return self._value(text, first.dtype, first.lanes)

    def library_call(self, name: str, operand: str) -> str:
        self._declared.add(f"llvm.func @{name}(f64) -> f64")
        return f"llvm.call @{name}({operand}) : (f64) -> f64"

    def negative(self, operand: Value) -> Value:
        text = f"arith.negf {operand.handle} : {self._of(operand.dtype, operand.lanes)}"
        return self._value(text, operand.dtype, operand.lanes)


def unary_text(op: str, kind: str, lanes: int) -> str:
    """A function ``@f`` of single precision that computes an operation of ``Unary``.

    Args:
        op: The operation.
        kind: The type of its operand and of its result.
        lanes: Numbers of such a value.
    """
    emitter = MLIREmitter()
    function, flat = emitter._open(""), emitter._of("float32", lanes)
    operand, result = Value("%x", "float32", lanes), "%y"
    if kind != flat:
        operand = emitter._value(f"vector.shape_cast %x : {kind} to {flat}", "float32", lanes)
    found = emitter.unary(op, operand).handle
    if kind == flat:
        result = found
    else:
        emitter._line(f"{result} = vector.shape_cast {found} : {flat} to {kind}")
    body = "\n".join([*function.allocations, *function.scope.text()])
    return f"func.func @f(%x: {kind}) -> {kind} {{\n{body}\n  return {result} : {kind}\n}}"
