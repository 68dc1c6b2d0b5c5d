"""The printer of MLIR, as text: loops of ``scf``, numbers of ``arith``, ``math`` and ``vector``.

Memory is LLVM's dialect, which says what memrefs cannot: what is aligned, what is written past the
caches, what does not overlap. Registers are stack slots, which LLVM's first pass makes values of.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np
from attrs import define, field, frozen

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.backends.native.backend import check_instructions
from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower import Program, print_candidate
from autotune.lower.arithmetic import ArithmeticEmitter, is_float
from autotune.lower.emitter import Value
from autotune.lower.linear import DerivedOp, Linear
from autotune.lower.places import Place
from autotune.lower.scopes import ALIGNMENT, Function, Scope, ScopedEmitter
from autotune.sketches import is_default
from autotune_mlir import host
from autotune_mlir.compiler import PRINTED, Lowered, digest_of, running
from autotune_mlir.entry import ENTRY, address_text
from autotune_mlir.parsing import parse_payload

__all__ = ["MLIREmitter", "Printed", "is_printed", "lower_printed", "print_request"]

_TYPES = {
    "bool": "i1",
    "float16": "f16",
    "bfloat16": "i16",  # LLVM calls a library to round to its own type where no instruction does
    "float32": "f32",
    "float64": "f64",
    "pointer": "!llvm.ptr",
    **{f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
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


def _of(dtype: str, lanes: int = 1) -> str:
    if dtype not in _TYPES:
        raise UnsupportedWorkload(f"element type {dtype!r} has no type of MLIR")
    return _TYPES[dtype] if lanes == 1 else f"vector<{lanes}x{_TYPES[dtype]}>"


def _in_memory(dtype: str, lanes: int = 1) -> str:
    name = "i8" if dtype == "bool" else _of(dtype)
    return name if lanes == 1 else f"vector<{lanes}x{name}>"


def _as_argument(dtype: str, lanes: int) -> str:
    """A type as LLVM's functions for instructions take it."""
    return _of(dtype, lanes).replace("i16", "bf16") if dtype == "bfloat16" else _of(dtype, lanes)


def _literal(value: float | int | bool, dtype: str) -> str:
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "bfloat16":
        return str(int(element_type(dtype).stored(np.asarray(value, np.float32))))
    if not is_float(dtype):
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = np.dtype(dtype).type(value)
    form = {"float16": ">e", "float32": ">f", "float64": ">d"}[dtype]
    return "0x" + struct.pack(form, rounded).hex().upper()


@define(eq=False)
class MLIREmitter(ScopedEmitter, ArithmeticEmitter):
    """Prints MLIR.

    Every entry of the program is a function ``int ENTRY(void **arrays)``, which returns 0.
    ``arrays`` holds the addresses of inputs, outputs and scratch memory. The threads of OpenMP
    share the iterations of a parallel loop.

    Attributes:
        threads: How many of them there are.
        disabled: Features of this machine that the program must not use, by LLVM's names.
    """

    threads: int = 1
    disabled: tuple[str, ...] = ()
    _declared: set[str] = field(factory=set)
    _literals: dict[str, tuple[str, str]] = field(factory=dict)
    _is_uneven: bool = False

    # Structure

    @contextmanager
    def entry(self, name: str) -> Iterator[None]:
        self._functions = []
        self._open("")
        yield
        self._define(f"{name}.body", (), self._functions.pop())
        lines = []
        for number in range(len(self._places)):
            lines += [
                f"  %at{number} = llvm.getelementptr %arrays[{number}] "
                ": (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
                f"  %array{number} = llvm.load %at{number} : !llvm.ptr -> !llvm.ptr",
            ]
        lines += [f"  {self._call(f'{name}.body', ())}", "  %zero = arith.constant 0 : i32"]
        body = "\n".join([*lines, "  llvm.return %zero : i32"])
        self._texts.append(
            f"llvm.func @{name}(%arrays: !llvm.ptr) -> i32{self._with()} {{\n{body}\n}}\n"
            + address_text(name)
        )

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

    def _call(self, name: str, others: Sequence[str]) -> str:
        """The call of a function of all arrays and of integers."""
        arrays = [f"%array{number}" for number in range(len(self._places))]
        kinds = ", ".join(["!llvm.ptr"] * len(arrays) + ["i64"] * len(others))
        return f"llvm.call @{name}({', '.join([*arrays, *others])}) : ({kinds}) -> ()"

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
            self._line(self._call(name, (self.number(0), total, self.number(0))))
            return
        own, of, first, last, after = (
            self._name(kind) for kind in ("thread", "threads", "begin", "end", "after")
        )
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
            self._line(self._call(name, (first, last, own)))
            self._line("}")
        else:
            self._line(f"{after} = {self.total(own, one)}")
            for value, thread in ((first, own), (last, after)):
                self._line(f"{value}.whole = arith.muli {thread}, {total} : i64")
                self._line(f"{value} = arith.divui {value}.whole, {of} : i64")
            self._line(self._call(name, (first, last, own)))
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
        kind = _of(first.dtype, first.lanes)
        lines[place] = f"  {name} = scf.if {condition.handle} -> ({kind}) {{"
        return Value(name, first.dtype, first.lanes)

    def _yielded(self, side: Callable[[], Value]) -> Value:
        value = side()
        self._line(f"scf.yield {value.handle} : {_of(value.dtype, value.lanes)}")
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
        return Value(self._constant(_literal(value, dtype), _of(dtype)), dtype)

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
        return f"llvm.getelementptr {base}[{by}] : {kinds}, {_in_memory(dtype)}"

    # Memory

    def allocate(self, place: Place) -> None:
        function = self._at
        if place.kind == "registers" and place.name not in function.registers:
            kind = _of(place.dtype, place.lanes)
            names = [self._name("r") for _ in range(place.elements // place.lanes)]
            for name in names:
                self._reserve(name, 1, kind)
            function.registers[place.name] = names
        elif place.kind == "stack" and place.name not in function.bases:
            function.bases[place.name] = self._name("stack")
            self._reserve(function.bases[place.name], place.elements, _in_memory(place.dtype))

    def _reserve(self, name: str, elements: int, kind: str) -> None:
        text = f"llvm.alloca {self.number(elements)} x {kind} {{alignment = {ALIGNMENT} : i64}}"
        self._at.allocations.append(f"  {name} = {text} : (i64) -> !llvm.ptr")

    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        pointer, aligned = self._pointer(place, at)
        if mask is None:
            return self._read(place.dtype, pointer, aligned, lanes)
        kind, bits = _in_memory(place.dtype, lanes), self.wide(mask, lanes).handle
        zeros, size = self._zeros(place.dtype, lanes), element_type(place.dtype).bytes
        return self._from_memory(
            f"llvm.intr.masked.load {pointer}, {bits}, {zeros} {{alignment = {size} : i32}} : "
            f"(!llvm.ptr, {_of('bool', lanes)}, {kind}) -> {kind}",
            place.dtype,
            lanes,
        )

    def _zeros(self, dtype: str, lanes: int) -> str:
        kind = "int8" if dtype == "bool" else dtype
        return self._dense(_literal(0, kind), _in_memory(dtype, lanes))

    def _read(self, dtype: str, pointer: str, aligned: int, lanes: int) -> Value:
        whole = 1 << (element_type(dtype).bytes * lanes).bit_length() - 1
        text = f"llvm.load {pointer} {{alignment = {min(aligned, whole)} : i64}}"
        text += f" : !llvm.ptr -> {_in_memory(dtype, lanes)}"
        return self._from_memory(text, dtype, lanes)

    def _from_memory(self, text: str, dtype: str, lanes: int) -> Value:
        value = self._value(text, dtype, lanes)
        if dtype != "bool":
            return value
        kinds = _in_memory(dtype, lanes), _of(dtype, lanes)
        return self._value(f"arith.trunci {value.handle} : {kinds[0]} to {kinds[1]}", dtype, lanes)

    def load_strided(
        self, place: Place, at: Linear, stride: int, lanes: int, mask: Value | None = None
    ) -> Value:
        if mask is None:
            return self.gathered([self.load(place, at + stride * it, 1) for it in range(lanes)])
        pointer, _ = self._pointer(place, at)
        kind, size = _in_memory(place.dtype, lanes), element_type(place.dtype).bytes
        indices, pointers = f"vector<{lanes}xi64>", f"vector<{lanes}x!llvm.ptr>"
        listed = ", ".join(str(stride * number) for number in range(lanes))
        steps = self._dense(f"[{listed}]", indices)
        places = self._name("p")
        self._line(
            f"{places} = llvm.getelementptr {pointer}[{steps}] : "
            f"(!llvm.ptr, {indices}) -> {pointers}, {_in_memory(place.dtype)}"
        )
        bits, zeros = self.wide(mask, lanes).handle, self._zeros(place.dtype, lanes)
        return self._from_memory(
            f"llvm.intr.masked.gather {places}, {bits}, {zeros} {{alignment = {size} : i32}} : "
            f"({pointers}, {_of('bool', lanes)}, {kind}) -> {kind}",
            place.dtype,
            lanes,
        )

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
        kind, size = _in_memory(dtype, lanes), element_type(dtype).bytes
        if dtype == "bool":
            text = f"arith.extui {value.handle} : {_of(dtype, lanes)} to {kind}"
            value = self._value(text, dtype, lanes)
        if mask is not None:
            bits = self.wide(mask, lanes).handle
            self._line(
                f"llvm.intr.masked.store {value.handle}, {pointer}, {bits} "
                f"{{alignment = {size} : i32}} : {kind}, {_of('bool', lanes)} into !llvm.ptr"
            )
            return
        whole = 1 << (size * lanes).bit_length() - 1
        past = ", nontemporal" if stream and aligned >= min(whole, ALIGNMENT) else ""
        about = f"{{alignment = {min(aligned, whole)} : i64{past}}}"
        self._line(f"llvm.store {value.handle}, {pointer} {about} : {kind}, !llvm.ptr")

    def prefetch(self, place: Place, at: Linear) -> None:
        pointer, _ = self._pointer(place, at)
        about = "<{rw = 0 : i32, hint = 3 : i32, cache = 1 : i32}>"
        self._line(f'"llvm.intr.prefetch"({pointer}) {about} : (!llvm.ptr) -> ()')

    def register(self, place: Place, number: int) -> Value:
        slot, kind = self._at.registers[place.name][number], _of(place.dtype, place.lanes)
        about = f"{{alignment = {ALIGNMENT} : i64}} : !llvm.ptr -> {kind}"
        return self._value(f"llvm.load {slot} {about}", place.dtype, place.lanes)

    def set_register(self, place: Place, number: int, value: Value) -> None:
        value = self.wide(value, place.lanes)
        slot, kind = self._at.registers[place.name][number], _of(place.dtype, place.lanes)
        about = f"{{alignment = {ALIGNMENT} : i64}} : {kind}, !llvm.ptr"
        self._line(f"llvm.store {value.handle}, {slot} {about}")

    # Values

    def below(self, linear: Linear, step: int = 0, lanes: int = 1) -> Value:
        if step == 0:
            text = f"arith.cmpi slt, {self._integer(linear)}, {self.number(0)} : i64"
            return self._value(text, "bool")
        zero = Value(self.number(0), "int64")
        return self.operation("icmp slt", self.ramp(linear, step, lanes), zero, "bool")

    def integer(self, linear: Linear) -> Value:
        return Value(self._integer(linear), "int64")

    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        kind, listed = _of("int64", lanes), ", ".join(str(step * it) for it in range(lanes))
        first, steps = self.wide(self.integer(base), lanes), self._dense(f"[{listed}]", kind)
        return self._value(f"arith.addi {first.handle}, {steps} : {kind}", "int64", lanes)

    def wide(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise UnsupportedWorkload(f"{value.lanes} lanes are used as {lanes}")
        kind = _of(value.dtype, lanes)
        if value.handle in self._literals:
            return Value(self._dense(self._literals[value.handle][0], kind), value.dtype, lanes)
        text = f"vector.broadcast {value.handle} : {_of(value.dtype)} to {kind}"
        return self._value(text, value.dtype, lanes)

    def lane(self, value: Value, number: int) -> Value:
        kind = f"{_of(value.dtype)} from {_of(value.dtype, value.lanes)}"
        return self._value(f"vector.extract {value.handle}[{number}] : {kind}", value.dtype)

    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        kind = f"{_of(value.dtype)} into {_of(value.dtype, value.lanes)}"
        text = f"vector.insert {scalar.handle}, {value.handle} [{number}] : {kind}"
        return self._value(text, value.dtype, value.lanes)

    def gathered(self, scalars: Sequence[Value]) -> Value:
        dtype, lanes = scalars[0].dtype, len(scalars)
        listed = ", ".join(scalar.handle for scalar in scalars)
        return self._value(f"vector.from_elements {listed} : {_of(dtype, lanes)}", dtype, lanes)

    def shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        kind = _of(left.dtype, left.lanes)
        text = f"vector.shuffle {left.handle}, {right.handle} {list(lanes)} : {kind}, {kind}"
        return self._value(text, left.dtype, len(lanes))

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        if condition.lanes > 1:
            condition, yes, no = self.same(condition, yes, no)
        else:
            yes, no = self.same(yes, no)
        kind = _of(yes.dtype, yes.lanes)
        about = f"{_of('bool', condition.lanes)}, {kind}" if condition.lanes > 1 else kind
        text = f"arith.select {condition.handle}, {yes.handle}, {no.handle} : {about}"
        return self._value(text, yes.dtype, yes.lanes)

    def operation(self, name: str, left: Value, right: Value, dtype: str = "") -> Value:
        left, right = self.same(left, right)
        operands = f"{left.handle}, {right.handle}"
        kind = _of(left.dtype, left.lanes)
        if name.startswith(("icmp ", "fcmp ")):
            compared = f"arith.cmp{'i' if name.startswith('i') else 'f'} {name[5:]}"
            text = f"{compared}, {operands} : {kind}"
        else:
            flags = " fastmath<contract>" if name.endswith(" contract") else ""
            text = f"{_OPERATIONS[name]} {operands}{flags} : {kind}"
        return self._value(text, dtype or left.dtype, left.lanes)

    def converted(self, name: str, value: Value, dtype: str) -> Value:
        kinds = _of(value.dtype, value.lanes), _of(dtype, value.lanes)
        text = f"arith.{_CONVERSIONS.get(name, name)} {value.handle} : {kinds[0]} to {kinds[1]}"
        return self._value(text, dtype, value.lanes)

    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        kinds = _of(value.dtype, value.lanes), _of(dtype, lanes)
        return self._with_kind(Value(value.handle, dtype, lanes), *kinds)

    def _with_kind(self, value: Value, before: str, after: str) -> Value:
        """A value whose bits are taken for another type."""
        if before == after:
            return value
        text = f"llvm.bitcast {value.handle} : {before} to {after}"
        return self._value(text, value.dtype, value.lanes)

    # Instructions

    def pointer(self, place: Place, at: Linear) -> Value:
        found, _ = self._pointer(place, at)
        return Value(found, "pointer")

    def intrinsic(self, name: str, dtype: str, lanes: int, arguments: Sequence[Value]) -> Value:
        kind = _as_argument(dtype, lanes)
        text = f"{self._given(name, arguments)} -> {kind}"
        return self._with_kind(self._value(text, dtype, lanes), kind, _of(dtype, lanes))

    def execute(self, name: str, arguments: Sequence[Value]) -> None:
        self._line(f"{self._given(name, arguments)} -> ()")

    def _given(self, name: str, arguments: Sequence[Value]) -> str:
        """A function of LLVM with its arguments, in their own types."""
        kinds = [_as_argument(value.dtype, value.lanes) for value in arguments]
        given = [
            self._with_kind(value, _of(value.dtype, value.lanes), kind).handle
            for value, kind in zip(arguments, kinds, strict=True)
        ]
        return f'llvm.call_intrinsic "{name}"({", ".join(given)}) : ({", ".join(kinds)})'

    def called(self, name: str, *operands: Value) -> Value:
        first = operands[0]
        listed = ", ".join(operand.handle for operand in operands)
        kind = _of(first.dtype, first.lanes)
        text = f"math.{_FUNCTIONS.get(name, name)} {listed} : {kind}"
        return self._value(text, first.dtype, first.lanes)

    def by_library(self, name: str, operand: Value) -> Value:
        self._declared.add(f"llvm.func @{name}(f64) -> f64")
        scalars = [operand]
        if operand.lanes > 1:
            scalars = [self.lane(operand, number) for number in range(operand.lanes)]
        kind = "(f64) -> f64"
        found = [
            self._value(f"llvm.call @{name}({scalar.handle}) : {kind}", "float64")
            for scalar in scalars
        ]
        return self.gathered(found) if operand.lanes > 1 else found[0]

    def negative(self, operand: Value) -> Value:
        text = f"arith.negf {operand.handle} : {_of(operand.dtype, operand.lanes)}"
        return self._value(text, operand.dtype, operand.lanes)


_FLOAT_BYTES = 4


@frozen(eq=False)
class Printed:
    """A candidate's program.

    Attributes:
        program: What was printed.
        threads: Threads that its parallel loops use.
    """

    program: Program
    threads: int

    @property
    def text(self) -> str:
        """The module."""
        return str(self.program.text)

    @property
    def entries(self) -> tuple[str, ...]:
        """The functions that are called, in order: what packs constants, and the program."""
        return (*(entry for entry, _, _ in self.program.packed), ENTRY)

    @property
    def digest(self) -> str:
        """Of its text: programs with one digest are one program."""
        return digest_of(self.text)


def is_printed(request: BuildRequest) -> bool:
    """Return whether a request's program is printed from its nest."""
    return not (request.candidate is None or is_default(request.candidate))


def print_request(request: BuildRequest) -> Printed:
    """Print the loop nest of a request's candidate.

    Raises:
        InvalidSchedule: its steps or values give no nest that can be printed, or it calls an
            instruction that the processor lacks.
    """
    assert request.candidate is not None
    check_instructions(request.candidate, request.target)
    emitter = MLIREmitter(threads=request.threads, disabled=host.disabled_features(request.target))
    width = max(1, request.target.vector_bytes // _FLOAT_BYTES)
    try:
        program = print_candidate(request.candidate, emitter, width)
    except (InvalidValueError, UnsupportedWorkload) as error:
        raise InvalidSchedule(str(error)) from error
    return Printed(program, request.threads)


def lower_printed(printed: Printed) -> Lowered:
    """Bring a printed program into LLVM's dialect.

    Raises:
        BuildFailed: a pass rejected it.
    """
    module = parse_payload(printed.text)
    with running(module) as (_, run):
        run(*PRINTED)
    return Lowered(module, printed.threads, printed.digest, printed.entries)
