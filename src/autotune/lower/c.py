"""The printer of C, as text that stands for itself.

C11 with the vectors that GCC and Clang have in common. A vector of the program is a tuple of C
vectors, none wider than a register of the target and each of a power of two lanes: wider ones GCC
compares and selects lane by lane. Masks are integers of the size of what was compared, all ones
or all zeros. Numbers of 16-bit floats are their bits, and computed with in single precision, since
compilers differ in what they know of such types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from attrs import define, field, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.arithmetic import ArithmeticEmitter
from autotune.lower.emitter import Value
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place

__all__ = ["CEmitter", "Function", "Parts", "c_type", "scalar_text", "size_of"]

_TYPES = {
    "bool": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_SIZES = {
    "float": 4,
    "double": 8,
    "long long": 8,
    **{f"{sign}int{bits}_t": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_SHORT = {
    "float": "f32",
    "double": "f64",
    "long long": "ll",
    **{f"{s}int{bits}_t": f"{s or 'i'}{bits}" for s in ("", "u") for bits in (8, 16, 32, 64)},
}
_NARROW = ("float16", "bfloat16")
_FLOATS = ("float32", "float64")
_ALIGNMENT = 64
_INT32 = range(-(1 << 31), 1 << 31)
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_SIGNS = {
    "fadd": "+",
    "fsub": "-",
    "fmul": "*",
    "fdiv": "/",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "sdiv": "/",
    "udiv": "/",
    "srem": "%",
    "urem": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "lshr": ">>",
    "ashr": ">>",
}
_FUNCTIONS = {"round": "rint", "mod": "fmod"}

_PRELUDE = """\
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wpsabi"
#ifdef __clang__
#pragma clang fp contract(fast)
#endif
#if defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define STREAM(value, address) __builtin_nontemporal_store(value, address)
#endif
#endif
#ifndef STREAM
#define STREAM(value, address) (*(address) = (value))
#endif
#define DIV(value, by) ((int64_t)((uint64_t)(value) / (by)))
#define MOD(value, by) ((int64_t)((uint64_t)(value) % (by)))
#define AT_MOST_0(value) ((value) < 0 ? (value) : 0)
#define AT_LEAST_0(value) ((value) > 0 ? (value) : 0)
#define ALIGNED __attribute__((aligned(64)))
#define MASKED_LOAD(type, lanes, from, mask) __extension__({ \\
  type out_ = {0}; \\
  for (int lane_ = 0; lane_ < lanes; ++lane_) if ((mask)[lane_]) out_[lane_] = (from)[lane_]; \\
  out_; })
#define MASKED_STORE(lanes, to, mask, value) \\
  for (int lane_ = 0; lane_ < lanes; ++lane_) if ((mask)[lane_]) (to)[lane_] = (value)[lane_]
#define INT32_OF_FLOAT32(value) (((union { float from; int32_t to; }){value}).to)
#define FLOAT32_OF_INT32(value) (((union { int32_t from; float to; }){value}).to)
#define INT64_OF_FLOAT64(value) (((union { double from; int64_t to; }){value}).to)
#define FLOAT64_OF_INT64(value) (((union { int64_t from; double to; }){value}).to)
"""


def c_type(dtype: str) -> str:
    """The type of C that arrays of an element type have; 16-bit floats are their bits.

    Raises:
        UnsupportedWorkload: there is none.
    """
    if dtype not in _TYPES:
        raise UnsupportedWorkload(f"element type {dtype!r} has no type of C")
    return _TYPES[dtype]


def size_of(dtype: str) -> int:
    """Bytes of a number in memory."""
    return _SIZES[c_type(dtype)]


@frozen
class Parts:
    """The texts of a value in C.

    Attributes:
        texts: Its vectors and scalars, in order; of one lane: a scalar.
        bytes: Size of an element; of a mask, that of what was compared.
    """

    texts: tuple[str, ...]
    bytes: int


@define(eq=False)
class Function:
    """A function that is printed.

    Attributes:
        declarations: What it declares at its beginning.
        lines: What it does.
        depth: Number of blocks that are open.
        bases: Name of the array of each place.
        registers: Names of the variables of each place's registers.
        stacks: Type and length of each array that it has.
        counters: Name of each counter.
    """

    declarations: list[str] = field(factory=list)
    lines: list[str] = field(factory=list)
    depth: int = 1
    bases: dict[str, str] = field(factory=dict)
    registers: dict[str, list[Parts]] = field(factory=dict)
    stacks: dict[str, tuple[str, int]] = field(factory=dict)
    counters: dict[str, str] = field(factory=dict)


@define(eq=False)
class CEmitter(ArithmeticEmitter):
    """Prints C.

    Every entry of the program is a function ``static void PREFIX_ENTRY(void *const *arrays,
    autotune_launch *launch, void *pool)``, as of
    :class:`~autotune.lower.llvm_ir.LLVMEmitter`.

    Attributes:
        prefix: What its names begin with.
        width: Lanes of a vector register, of numbers of single precision.
        features: Extensions of x86-64 that its functions may use.
    """

    has_instructions: ClassVar[bool] = False

    prefix: str
    width: int
    features: tuple[str, ...] = ()
    _digits: Digits = field(factory=Digits)
    _places: list[Place] = field(factory=list)
    _inputs: int = 0
    _names: int = 0
    _functions: list[Function] = field(factory=list)
    _types: dict[str, str] = field(factory=dict)
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
        name, pool = f"{self.prefix}_{name}", "autotune_launch *launch, void *pool"
        self._define(f"{name}_body", pool, self._functions.pop())
        self._unpacked(name, pool, "launch, pool")

    def finish(self) -> str:
        parts = [_PRELUDE, self._kernel(), *self._types.values(), ""]
        return "\n".join([*parts, *self._texts])

    def _kernel(self) -> str:
        """The macro of what functions may use."""
        wanted = ",".join(self.features)
        target = f' __attribute__((target("{wanted}")))' if wanted else ""
        return f"#define KERNEL static __attribute__((noinline)){target}\n"

    def _function(self, thread: str) -> Function:
        """A function whose scratch memory is that of a thread."""
        function = Function()
        for number, place in enumerate(self._places):
            base = f"a{number}"
            if place.kind == "scratch" and place.depth and thread != "0":
                size = -(-place.bytes // _ALIGNMENT) * _ALIGNMENT
                kind = c_type(place.dtype)
                function.declarations.append(
                    f"  {kind} *const {base}_own = ({kind} *)((char *){base} + {thread} * {size});"
                )
                base = f"{base}_own"
            function.bases[place.name] = base
        return function

    def _define(self, name: str, others: str, function: Function) -> None:
        """Add a function of all arrays, which do not overlap, and of other parameters."""
        arrays = [
            ("const " if number < self._inputs else "")
            + f"{c_type(place.dtype)} *restrict a{number}"
            for number, place in enumerate(self._places)
        ]
        parameters = ", ".join([*arrays, "void *const *arrays", others])
        names = [*(f"a{number}" for number in range(len(arrays))), "arrays"]
        names += [other.split()[-1].lstrip("*") for other in others.split(",")]
        unused = "  " + " ".join(f"(void){given};" for given in names)
        stacks = [f"  {kind} {it}[{n}] ALIGNED;" for it, (kind, n) in function.stacks.items()]
        body = "\n".join([unused, *function.declarations, *stacks, *function.lines])
        self._texts.append(f"KERNEL void {name}({parameters}) {{\n{body}\n}}\n")

    def _unpacked(self, name: str, others: str, given: str) -> None:
        """Add the call of a function with the addresses in an array of them."""
        arrays = ", ".join(f"arrays[{number}]" for number in range(len(self._places)))
        self._texts.append(
            f"static void {name}(void *const *arrays, {others}) {{\n"
            f"  {name}_body({arrays}, arrays, {given});\n}}\n"
        )

    @property
    def _at(self) -> Function:
        return self._functions[-1]

    def _name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def _line(self, text: str) -> None:
        self._at.lines.append("  " * self._at.depth + text)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(f"{head} {{")
        self._at.depth += 1
        yield
        self._at.depth -= 1
        self._line("}")

    @contextmanager
    def loop(self, counter: str, begin: Linear, end: Linear, kind: str) -> Iterator[None]:
        if kind == "parallel" and len(self._functions) == 1 and self._at.depth == 1:
            yield from self._tasks(counter, end.constant)
            return
        yield from self._counted(counter, self._integer(begin), self._integer(end))

    def _counted(self, counter: str, begin: str, end: str) -> Iterator[None]:
        function, name = self._at, self._name("i")
        with self._block(f"for (int64_t {name} = {begin}; {name} < {end}; ++{name})"):
            function.counters[counter] = name
            yield
            del function.counters[counter]

    def _tasks(self, counter: str, count: int) -> Iterator[None]:
        """A loop whose body is a function that a pool calls."""
        name = f"{self.prefix}_task{len(self._texts)}"
        self._functions.append(self._function("thread"))
        yield from self._counted(counter, "begin", "end")
        if any("STREAM(" in line for line in self._at.lines):
            # What is written past the caches is seen by others behind a fence only.
            self._line("__atomic_thread_fence(__ATOMIC_SEQ_CST);")
        own = "int64_t begin, int64_t end, int64_t thread"
        self._define(f"{name}_body", own, self._functions.pop())
        self._unpacked(name, own, "begin, end, thread")
        self._line(f"if (launch) launch(pool, {name}, arrays, {count});")
        self._line(f"else {name}(arrays, 0, {count}, 0);")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        with self._block(f"if ({scalar_text(condition)})"):
            yield

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        start, depth = len(self._at.lines), self._at.depth
        with self._block(f"if ({scalar_text(condition)})"):
            first = yes()
            target = self._variables(first)
            self._assign(target, first)
        with self._block("else"):
            self._assign(target, no())
        declared = [
            f"{'  ' * depth}{kind} {name};"
            for kind, name in zip(self._kinds(first), target.texts, strict=True)
        ]
        self._at.lines[start:start] = declared
        return Value(target, first.dtype, first.lanes)

    def _variables(self, like: Value) -> Parts:
        return Parts(tuple(self._name() for _ in like.handle.texts), like.handle.bytes)

    def _assign(self, target: Parts, value: Value) -> None:
        if value.dtype == "bool":
            value = self._of_size(value, target.bytes)
        for name, text in zip(target.texts, value.handle.texts, strict=True):
            self._line(f"{name} = {text};")

    # Types

    def _lanes(self, lanes: int) -> list[int]:
        """Lanes of the parts of a vector."""
        found, size = [], 1 << self.width.bit_length() - 1
        while lanes:
            while size > lanes:
                size //= 2
            found.append(size)
            lanes -= size
        return found

    def _vector(self, kind: str, lanes: int) -> str:
        """The name of a type of vectors; ``..a`` are those of aligned memory, ``..u`` of any."""
        name = f"{_SHORT[kind]}x{lanes}"
        if name not in self._types:
            size = lanes * _SIZES[kind]
            own, item = f"vector_size({size})", ", ".join("x" for _ in range(lanes))
            forms = [f"typedef {kind} {name} __attribute__(({own}));"]
            for letter, aligned in (("a", min(size, _ALIGNMENT)), ("u", _SIZES[kind])):
                more = f"{own}, may_alias, aligned({aligned})"
                forms.append(f"typedef {kind} {name}{letter} __attribute__(({more}));")
            forms.append(f"#define {name}_(x) (({name}){{{item}}})")
            self._types[name] = "\n".join(forms)
        return name

    def _kind(self, dtype: str, lanes: int, size: int) -> str:
        """The type of a part; of masks, of elements of so many bytes."""
        if dtype == "bool":
            return "int" if lanes == 1 else self._vector(f"int{8 * size}_t", lanes)
        return c_type(dtype) if lanes == 1 else self._vector(c_type(dtype), lanes)

    def _kinds(self, value: Value) -> list[str]:
        size = value.handle.bytes
        return [self._kind(value.dtype, it, size) for it in self._lanes(value.lanes)]

    def _value(
        self, form: Callable[[int, int], str], dtype: str, lanes: int = 1, size: int = 0
    ) -> Value:
        """A value of which ``form`` gives the part of a number and so many lanes."""
        size, names = size or size_of(dtype), []
        for number, width in enumerate(self._lanes(lanes)):
            names.append(self._name())
            kind = self._kind(dtype, width, size)
            self._line(f"const {kind} {names[-1]} = {form(number, width)};")
        return Value(Parts(tuple(names), size), dtype, lanes)

    def _of_size(self, mask: Value, size: int) -> Value:
        """A mask of elements of another size."""
        parts = mask.handle
        if parts.bytes == size or mask.lanes == 1:
            return mask

        def converted(number: int, lanes: int) -> str:
            if lanes == 1:
                return str(parts.texts[number])
            kind = self._kind("bool", lanes, size)
            return f"__builtin_convertvector({parts.texts[number]}, {kind})"

        return self._value(converted, "bool", mask.lanes, size)

    # Addresses

    def _integer(self, linear: Linear) -> str:
        """A form as an integer."""
        linear = self._digits.resolved(linear)
        parts = [
            self._digit(digit) if factor == 1 else f"{self._digit(digit)} * {factor}"
            for digit, factor in linear.terms
        ]
        text = " + ".join(parts)
        if not text or linear.constant:
            constant = abs(linear.constant) if text else linear.constant
            text += (" + " if linear.constant > 0 else " - ") if text else ""
            text += str(constant)
        return text

    def _digit(self, digit: str) -> str:
        if digit in self._at.counters:
            return self._at.counters[digit]
        derived = self._digits.derived[digit]
        operand = self._integer(derived.operand)
        if derived.op in ("div", "mod"):
            return f"{derived.op.upper()}({operand}, {derived.divisor})"
        return f"{derived.op.upper()}({operand})"

    def _element(self, place: Place, at: Linear, offset: int, more: str = "") -> str:
        """The lvalue of an element."""
        index = self._integer(at + offset)
        return f"{self._at.bases[place.name]}[{index}{more}]"

    def _vector_at(
        self, place: Place, at: Linear, offset: int, lanes: int, more: str = ""
    ) -> tuple[str, str]:
        """The type and the address of neighbouring elements."""
        kind, size = c_type(place.dtype), size_of(place.dtype)
        form = self._digits.resolved(at + offset)
        self._make_room(place, self._digits.bounds(form)[1] + lanes)
        apart = math.gcd(form.constant, *(factor for _, factor in form.terms)) * size
        aligned = not more and apart % min(size * lanes, _ALIGNMENT) == 0
        const = "const " if place.name in {it.name for it in self._places[: self._inputs]} else ""
        name = f"{const}{self._vector(kind, lanes)}{'a' if aligned else 'u'}"
        return name, f"({name} *)&{self._element(place, at, offset, more)}"

    def _make_room(self, place: Place, elements: int) -> None:
        """Let an array of the function have so many elements: masked ones, too, have addresses."""
        name = self._at.bases[place.name]
        if name in self._at.stacks:
            kind, length = self._at.stacks[name]
            self._at.stacks[name] = kind, max(length, elements)

    def _offsets(self, lanes: int) -> list[int]:
        """Number of the first lane of each part."""
        found, total = [], 0
        for width in self._lanes(lanes):
            found.append(total)
            total += width
        return found

    # Memory

    def allocate(self, place: Place) -> None:
        function = self._at
        if place.kind == "registers" and place.name not in function.registers:
            made = []
            for _ in range(place.elements // place.lanes):
                size = size_of(place.dtype)
                names = tuple(self._name("r") for _ in self._lanes(place.lanes))
                made.append(Parts(names, size))
                for name, lanes in zip(names, self._lanes(place.lanes), strict=True):
                    kind = self._kind(place.dtype, lanes, size)
                    function.declarations.append(f"  {kind} {name};")
            function.registers[place.name] = made
        elif place.kind == "stack" and place.name not in function.bases:
            name = self._name("stack")
            function.stacks[name] = c_type(place.dtype), place.elements
            function.bases[place.name] = name

    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        return self._loaded(place, at, lanes, mask)

    def _loaded(
        self, place: Place, at: Linear, lanes: int, mask: Value | None, more: str = ""
    ) -> Value:
        offsets, size = self._offsets(lanes), size_of(place.dtype)
        if mask is not None:
            mask = self._of_size(self.wide(mask, lanes), size)

        def part(number: int, width: int) -> str:
            if width == 1:
                text = self._element(place, at, offsets[number], more)
                return text if mask is None else f"{mask.handle.texts[number]} ? {text} : 0"
            name, address = self._vector_at(place, at, offsets[number], width, more)
            if mask is None:
                return f"*{address}"
            texts = mask.handle.texts
            return self._masked(place, at + offsets[number], width, texts[number], "", more)

        stored = "uint8" if place.dtype == "bool" else place.dtype
        value = self._value(part, stored, lanes)
        return self.cast(value, "bool") if place.dtype == "bool" else value

    def load_strided(
        self, place: Place, at: Linear, stride: int, lanes: int, mask: Value | None = None
    ) -> Value:
        if mask is None:
            return self.gathered([self.load(place, at + stride * it, 1) for it in range(lanes)])
        return self.gathered(
            [self.load(place, at + stride * it, 1, self.lane(mask, it)) for it in range(lanes)]
        )

    def load_chosen(self, place: Place, at: Linear, offset: Value, lanes: int) -> Value:
        return self._loaded(place, at, lanes, None, f" + {scalar_text(offset)}")

    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        lanes, size = value.lanes, size_of(place.dtype)
        if value.dtype == "bool":
            value = self.cast(value, "uint8")
        if mask is not None:
            mask = self._of_size(self.wide(mask, lanes), size)
        offsets = self._offsets(lanes)
        for number, width in enumerate(self._lanes(lanes)):
            text = value.handle.texts[number]
            if width == 1:
                test = "" if mask is None else f"if ({mask.handle.texts[number]}) "
                self._line(f"{test}{self._element(place, at, offsets[number])} = {text};")
                continue
            name, address = self._vector_at(place, at, offsets[number], width)
            if mask is not None:
                bits = mask.handle.texts[number]
                self._line(f"{self._masked(place, at + offsets[number], width, bits, text)};")
            elif stream and name.endswith("a"):
                self._line(f"STREAM({text}, {address});")
            else:
                self._line(f"*{address} = {text};")

    def _masked(
        self, place: Place, at: Linear, lanes: int, mask: str, stored: str = "", more: str = ""
    ) -> str:
        """A load of the lanes of a mask, or a store of ``stored`` to them."""
        kind, size = c_type(place.dtype), size_of(place.dtype)
        vector, what = self._vector(kind, lanes), "store" if stored else "load"
        address = f"(&{self._element(place, at, 0, more)})"
        wide = {16: "", 32: "256"}.get(size * lanes)
        if size not in (4, 8) or wide is None or "avx" not in self.features:
            if stored:
                return f"MASKED_STORE({lanes}, {address}, {mask}, {stored})"
            return f"MASKED_LOAD({vector}, {lanes}, {address}, {mask})"
        floats = self._vector("float" if size == 4 else "double", lanes)
        bits = self._vector("int32_t" if size == 4 else "long long", lanes)
        name = f"__builtin_ia32_mask{what}p{'s' if size == 4 else 'd'}{wide}"
        if stored:
            return f"{name}(({floats} *){address}, ({bits}){mask}, ({floats}){stored})"
        return f"({vector}){name}((const {floats} *){address}, ({bits}){mask})"

    def prefetch(self, place: Place, at: Linear) -> None:
        self._line(f"__builtin_prefetch(&{self._element(place, at, 0)}, 0, 3);")

    def register(self, place: Place, number: int) -> Value:
        texts = self._at.registers[place.name][number].texts
        return self._value(lambda part, _: texts[part], place.dtype, place.lanes)

    def set_register(self, place: Place, number: int, value: Value) -> None:
        self._assign(self._at.registers[place.name][number], self.wide(value, place.lanes))

    # Values

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        return Value(Parts((_literal(value, dtype),), size_of(dtype)), dtype)

    def below(self, linear: Linear, step: int = 0, lanes: int = 1) -> Value:
        if step == 0:
            return self._value(lambda *_: f"{self._integer(linear)} < 0", "bool")
        low, high = self._digits.bounds(linear)
        ends = [each + step * it for each in (low, high) for it in (0, lanes)]
        dtype = "int32" if all(end in _INT32 for end in ends) else "int64"
        return self.binary("lt", self._ramp(linear, step, lanes, dtype), self.constant(0, dtype))

    def integer(self, linear: Linear) -> Value:
        return self._value(lambda *_: self._integer(linear), "int64")

    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        return self._ramp(base, step, lanes, "int64")

    def _ramp(self, base: Linear, step: int, lanes: int, dtype: str) -> Value:
        first = self._value(lambda *_: f"({c_type(dtype)})({self._integer(base)})", dtype)
        steps = [self.constant(step * number, dtype) for number in range(lanes)]
        return self.binary("add", first, self.gathered(steps))

    def wide(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise UnsupportedWorkload(f"{value.lanes} lanes are used as {lanes}")
        text, size, is_mask = scalar_text(value), value.handle.bytes, value.dtype == "bool"

        def part(_: int, width: int) -> str:
            if width == 1:
                return text
            kind = self._kind(value.dtype, width, size)
            return f"{kind}_({f'-({text})' if is_mask else text})"

        return self._value(part, value.dtype, lanes, size)

    def lane(self, value: Value, number: int) -> Value:
        offsets = self._offsets(value.lanes)
        part = max(it for it, offset in enumerate(offsets) if offset <= number)
        text = value.handle.texts[part]
        if self._lanes(value.lanes)[part] > 1:
            text = f"{text}[{number - offsets[part]}]"
            text = f"{text} != 0" if value.dtype == "bool" else text
        return self._value(lambda *_: text, value.dtype, 1, value.handle.bytes)

    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        offsets, names = self._offsets(value.lanes), []
        part = max(it for it, offset in enumerate(offsets) if offset <= number)
        for kind, text in zip(self._kinds(value), value.handle.texts, strict=True):
            names.append(self._name())
            self._line(f"{kind} {names[-1]} = {text};")
        inside = self._lanes(value.lanes)[part] > 1
        given = (
            f"-({scalar_text(scalar)})"
            if value.dtype == "bool" and inside
            else scalar_text(scalar)
        )
        index = f"[{number - offsets[part]}]" if inside else ""
        self._line(f"{names[part]}{index} = {given};")
        return Value(Parts(tuple(names), value.handle.bytes), value.dtype, value.lanes)

    def gathered(self, scalars: Sequence[Value]) -> Value:
        dtype, size = scalars[0].dtype, scalars[0].handle.bytes
        offsets = self._offsets(len(scalars))

        def part(number: int, width: int) -> str:
            texts = [scalar_text(it) for it in scalars[offsets[number] : offsets[number] + width]]
            if width == 1:
                return texts[0]
            if dtype == "bool":
                texts = [f"-({text})" for text in texts]
            return f"({self._kind(dtype, width, size)}){{{', '.join(texts)}}}"

        return self._value(part, dtype, len(scalars), size)

    def shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        """Lanes of two vectors of one length, those of the second after those of the first."""
        if len(left.handle.texts) > 1 or len(self._lanes(len(lanes))) > 1 or len(lanes) == 1:
            both = [(left, it) if it < left.lanes else (right, it - left.lanes) for it in lanes]
            scalars = [self.lane(value, number) for value, number in both]
            return self.gathered(scalars)
        chosen = ", ".join(map(str, lanes))
        given = f"{scalar_text(left)}, {scalar_text(right)}"
        text = f"__builtin_shufflevector({given}, {chosen})"
        return self._value(lambda *_: text, left.dtype, len(lanes), left.handle.bytes)

    def halves(self, value: Value) -> tuple[Value, Value]:
        half, parts = value.lanes // 2, value.handle
        count = len(self._lanes(half))
        if self._lanes(value.lanes) == 2 * self._lanes(half):
            sides = (parts.texts[:count], parts.texts[count:])
            first, second = (Value(Parts(side, parts.bytes), value.dtype, half) for side in sides)
            return first, second
        return super().halves(value)

    # Operations

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        yes, no = self.same(yes, no)
        if yes.dtype == "bool":
            no = self._of_size(no, yes.handle.bytes)
        size, dtype = yes.handle.bytes, yes.dtype
        texts = yes.handle.texts, no.handle.texts
        if condition.lanes == 1:
            test = scalar_text(condition)
            return self._value(
                lambda part, _: f"{test} ? {texts[0][part]} : {texts[1][part]}",
                *(dtype, yes.lanes, size),
            )
        condition, yes, no = self.same(condition, yes, no)
        masks, texts = (
            self._of_size(condition, size).handle.texts,
            (
                yes.handle.texts,
                no.handle.texts,
            ),
        )

        def part(number: int, width: int) -> str:
            mask, first, second = masks[number], texts[0][number], texts[1][number]
            if width == 1:
                return f"{mask} ? {first} : {second}"
            bits, kind = self._kind("bool", width, size), self._kind(dtype, width, size)
            return f"({kind})((({bits}){first} & {mask}) | (({bits}){second} & ~{mask}))"

        return self._value(part, dtype, yes.lanes, size)

    def operation(self, name: str, left: Value, right: Value, dtype: str = "") -> Value:
        left, right = self.same(left, right)
        kind, _, sign = name.removesuffix(" contract").partition(" ")
        if sign:
            return self._comparison(sign[1:] if kind == "fcmp" else sign.lstrip("us"), left, right)
        if left.dtype == "bool":
            right = self._of_size(right, left.handle.bytes)
        if name == "frem":
            return self.called("mod", left, right)
        texts, size, dtype = (left.handle.texts, right.handle.texts), left.handle.bytes, left.dtype
        sign = _SIGNS[kind]

        def part(number: int, width: int) -> str:
            first, second = texts[0][number], texts[1][number]
            kind = self._kind(dtype, width, size)
            if dtype in (*_FLOATS, "bool") or name in ("sdiv", "srem", "ashr"):
                text = f"{first} {sign} {second}"
                return text if dtype in (*_FLOATS, "bool") else f"({kind})({text})"
            # Signed numbers may not overflow in C.
            own = f"uint{8 * size if width > 1 else max(32, 8 * size)}"
            other = self._kind(own, width, size)
            return f"({kind})(({other}){first} {sign} ({other}){second})"

        return self._value(part, dtype, left.lanes, size)

    def _comparison(self, op: str, left: Value, right: Value) -> Value:
        """A comparison; the type of what is compared says whether it has a sign."""
        if left.dtype == "bool":
            left, right = self.cast(left, "uint8"), self.cast(right, "uint8")
        if op == "no":  # fcmp uno: is one of both no number
            first, second = (self._comparison("ne", it, it) for it in (left, right))
            return self.operation("or", first, second)
        texts, size = (left.handle.texts, right.handle.texts), left.handle.bytes

        def part(number: int, width: int) -> str:
            text = f"{texts[0][number]} {_COMPARISONS[op]} {texts[1][number]}"
            return text if width == 1 else f"({self._kind('bool', width, size)})({text})"

        return self._value(part, "bool", left.lanes, size)

    def binary(self, op: str, left: Value, right: Value) -> Value:
        if left.dtype != "float16":
            return super().binary(op, left, right)
        parts = (self.cast(value, "float32") for value in (left, right))
        result = super().binary(op, *parts)
        return result if result.dtype == "bool" else self.cast(result, "float16")

    def unary(self, op: str, operand: Value) -> Value:
        if operand.dtype != "float16":
            return super().unary(op, operand)
        return self.cast(super().unary(op, self.cast(operand, "float32")), "float16")

    def negative(self, operand: Value) -> Value:
        texts = operand.handle.texts
        return self._value(lambda part, _: f"-{texts[part]}", operand.dtype, operand.lanes)

    def by_library(self, name: str, operand: Value) -> Value:
        return self.called(name, operand)

    def called(self, name: str, *operands: Value) -> Value:
        given = self.same(*operands)
        dtype, lanes = given[0].dtype, given[0].lanes
        if name == "abs":
            return self._magnitude(given[0])
        function = self.function_name(_FUNCTIONS.get(name, name), dtype)
        found = []
        for number in range(lanes):
            texts = [scalar_text(self.lane(it, number) if lanes > 1 else it) for it in given]
            call = f"{function}({', '.join(texts)})"
            found.append(self._value(lambda *_, call=call: call, dtype))
        return found[0] if lanes == 1 else self.gathered(found)

    def function_name(self, name: str, dtype: str) -> str:
        """The name by which a function of the C library is called."""
        return f"__builtin_{name}{'f' if dtype == 'float32' else ''}"

    def _magnitude(self, operand: Value) -> Value:
        whole, lanes = f"int{8 * operand.handle.bytes}", operand.lanes
        rest = self.constant((1 << 8 * operand.handle.bytes - 1) - 1, whole)
        bits = self.operation("and", self.bitcast(operand, whole, lanes), rest)
        return self.bitcast(bits, operand.dtype, lanes)

    def cast(self, value: Value, dtype: str) -> Value:
        source, narrow = value.dtype, "float16"
        if source == dtype:
            return value
        if source == narrow:
            return self.cast(self._widened(value), dtype)
        if dtype == narrow:
            return self._narrowed(self.cast(value, "float32"))
        whole = not {source, dtype} & {"bool", "bfloat16", *_FLOATS}
        if whole and size_of(source) == size_of(dtype):
            return self.converted("bitcast", value, dtype)
        return super().cast(value, dtype)

    def converted(self, name: str, value: Value, dtype: str) -> Value:
        if value.dtype == "bool":
            return self._counted_mask(value, dtype)
        texts = value.handle.texts

        def part(number: int, width: int) -> str:
            kind = self._kind(dtype, width, 0)
            if width == 1 or name == "bitcast":
                return f"({kind}){texts[number]}"
            return f"__builtin_convertvector({texts[number]}, {kind})"

        return self._value(part, dtype, value.lanes)

    def _counted_mask(self, value: Value, dtype: str) -> Value:
        """Ones and zeros of a mask."""
        size = size_of(dtype)
        texts = self._of_size(value, size).handle.texts
        one = _literal(1, dtype)

        def part(number: int, width: int) -> str:
            kind, bits = self._kind(dtype, width, size), self._kind("bool", width, size)
            if width == 1:
                return f"({kind}){texts[number]}"
            return f"({kind})(({bits}){kind}_({one}) & {texts[number]})"

        return self._value(part, dtype, value.lanes)

    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        texts, source = value.handle.texts, value.dtype
        if lanes != value.lanes:
            raise _no_instruction()

        def part(number: int, width: int) -> str:
            kind = self._kind(dtype, width, 0)
            if width > 1 or (source not in _FLOATS and dtype not in _FLOATS):
                return f"({kind}){texts[number]}"
            return f"{f'{dtype}_of_{source}'.upper()}({texts[number]})"

        return self._value(part, dtype, lanes)

    # Instructions

    def pointer(self, place: Place, at: Linear) -> Value:
        return Value(Parts((f"&{self._element(place, at, 0)}",), 8), "pointer")

    def intrinsic(self, name: str, dtype: str, lanes: int, arguments: Sequence[Value]) -> Value:
        raise _no_instruction()

    def execute(self, name: str, arguments: Sequence[Value]) -> None:
        raise _no_instruction()

    # Half precision

    def _widened(self, value: Value) -> Value:
        """In single precision, exactly."""
        number, lanes = self.constant, value.lanes
        bits = self.converted("zext", value, "int32")
        rest = self.operation("and", bits, number(0x7FFF, "int32"))
        rest = self.bitcast(self.operation("shl", rest, number(13, "int32")), "float32", lanes)
        found = self.binary("mul", rest, number(2.0**112, "float32"))
        is_usual = self.binary("lt", found, number(65536.0, "float32"))
        rest = self.bitcast(found, "int32", lanes)
        special = self.operation("or", rest, number(0x7F800000, "int32"))
        sign = self.operation("and", bits, number(0x8000, "int32"))
        sign = self.operation("shl", sign, number(16, "int32"))
        whole = self.operation("or", self.select(is_usual, rest, special), sign)
        return self.bitcast(whole, "float32", lanes)

    def _narrowed(self, value: Value) -> Value:
        """Rounded to the nearest, halfway to even; NaN stays NaN."""
        number, bits = self.constant, self.bitcast(value, "int32", value.lanes)
        rest = self.operation("and", bits, number(0x7FFFFFFF, "int32"))
        found = self._rounded(rest)
        large = self.binary("ge", rest, number(0x47800000, "int32"))
        found = self.select(large, number(0x7C00, "int32"), found)
        none = self.binary("gt", rest, number(0x7F800000, "int32"))
        found = self.select(none, number(0x7E00, "int32"), found)
        sign = self.operation("lshr", bits, number(16, "int32"))
        sign = self.operation("and", sign, number(0x8000, "int32"))
        return self.converted("trunc", self.operation("or", found, sign), "float16")

    def _rounded(self, rest: Value) -> Value:
        """The bits of a number that is neither negative nor too large."""
        number = self.constant
        odd = self.operation("lshr", rest, number(13, "int32"))
        odd = self.operation("and", odd, number(1, "int32"))
        usual = self.binary("add", rest, number(0xFFF - (112 << 23), "int32"))
        usual = self.operation("lshr", self.binary("add", usual, odd), number(13, "int32"))
        # Added to one half, what is below the normal numbers is rounded by the addition.
        tiny = self.bitcast(rest, "float32", rest.lanes)
        tiny = self.binary("add", tiny, number(0.5, "float32"))
        tiny = self.bitcast(tiny, "int32", rest.lanes)
        tiny = self.binary("sub", tiny, number(0x3F000000, "int32"))
        return self.select(self.binary("lt", rest, number(0x38800000, "int32")), tiny, usual)


def _no_instruction() -> UnsupportedWorkload:
    """Make the error of a candidate that has an instruction, which is made of other lanes."""
    return UnsupportedWorkload(
        "the schedule computes with tensor instructions, which are not printed as C: they are in "
        "objects and libraries"
    )


def scalar_text(value: Value) -> str:
    """The only part of a value."""
    (text,) = value.handle.texts
    return str(text)


def _literal(value: float | int | bool, dtype: str) -> str:
    if dtype in _NARROW:
        bits = element_type(dtype).stored(np.asarray(value, np.float32))
        return str(int(np.asarray(bits).view(np.uint16)))
    if dtype not in _FLOATS:
        number = int(value)
        if number == -(1 << 63):
            return "(-INT64_C(9223372036854775807) - 1)"
        if dtype == "bool" or (dtype == "int32" and number > -(1 << 31)):
            return f"({number})" if number < 0 else str(number)
        suffix = "UINT64_C" if dtype.startswith("u") else "INT64_C"
        return f"(({c_type(dtype)}){suffix}({number}))"
    suffix = "f" if dtype == "float32" else ""
    with np.errstate(over="ignore"):
        rounded = np.dtype(dtype).type(value)
    if math.isnan(rounded):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(rounded):
        return f"({'-' if rounded < 0 else ''}__builtin_inf{suffix}())"
    return f"({rounded}{suffix})"
