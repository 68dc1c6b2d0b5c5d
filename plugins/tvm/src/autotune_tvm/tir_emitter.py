"""The printer of TIR.

Arrays are read and written through flat views of the function's own parameters, so that a printed
function stands wherever the one that was imported does. Registers are elements of arrays on the
stack, which LLVM's first pass makes values of. What TVM has no statement for is a call of one of
LLVM's functions, or of a function in LLVM's text form that goes with the program.

TVM's analyzer puts what a name stands for in the place of the name, again and again: expressions
that use one another twice each take exponential time. So a value that is used once becomes a part
of the expression that uses it, a small one gets a name, and a large one a place in an array on the
stack, of which LLVM's first pass makes a value again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from attrs import define, field
from tvm import tirx

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.lower.arithmetic import ArithmeticEmitter, is_float
from autotune.lower.emitter import Value
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place
from autotune_tvm.linked_text import linked

_MOST_NAMED = 24
"""Operations in what a name may stand for."""

_SLOTS = 16


def int64(value: int) -> Any:
    """A constant of 64 bits."""
    return tirx.IntImm("int64", value)


def kept_on_stack(buffer: Any) -> Any:
    """An allocation on the stack, however large: TVM takes others of 1 KB and more from a heap."""
    return tirx.AllocBuffer(buffer, {"disable_lower_builtin": tirx.IntImm("bool", 1)})


@define(eq=False)
class Frame:
    """Allocations of a function, or of the share of one thread in a parallel loop.

    Attributes:
        allocations: The statements.
        places: The array that each place is, or that holds its registers.
        slots: Arrays of places for values, by type, and how many places are taken.
        streams: Whether anything is written past the caches.
    """

    allocations: list[Any] = field(factory=list)
    places: dict[str, Any] = field(factory=dict)
    slots: dict[str, list[Any]] = field(factory=dict)
    taken: dict[str, int] = field(factory=dict)
    streams: bool = False

    def array(self, name: str, dtype: str, elements: int) -> Any:
        """A new array on the stack.

        TVM's own passes let others share memory, also vectors of other lengths, which they refuse.
        """
        buffer = tirx.decl_buffer((elements,), dtype, name=name, scope="local")
        self.allocations.append(kept_on_stack(buffer))
        return buffer

    def slot(self, dtype: str) -> tuple[Any, Any]:
        """A place for a value: its array, and its index there."""
        taken = self.taken.get(dtype, 0)
        arrays = self.slots.setdefault(dtype, [])
        if taken == _SLOTS * len(arrays):
            arrays.append(self.array(f"values_{dtype}_{len(arrays)}", dtype, _SLOTS))
        self.taken[dtype] = taken + 1
        return arrays[taken // _SLOTS], int64(taken % _SLOTS)


@define(eq=False)
class Node:
    """A value that is not a constant.

    Attributes:
        make: Its expression, given those of its operands.
        operands: Nodes or expressions.
        dtype: TVM's type of it.
        block: Where it is computed.
        reads: Whether it reads memory, which may change.
        uses: How often it is used.
        user: What used it last.
        is_used_elsewhere: Whether another block uses it.
        before: How many statements of its block come before it.
        settles: How many come before what its expression is a part of.
        size: Operations that a name stands for that is used for it.
        has_mask: Whether there is a vector of truth values in that: TVM's analyzer, to which names
            are told, fails at some of these.
        reference: What is said for it once it has a name.
    """

    make: Callable[..., Any]
    operands: Sequence[Any]
    dtype: str
    block: Block
    reads: bool = False
    uses: int = 0
    user: Node | Statement | None = None
    is_used_elsewhere: bool = False
    before: int = 0
    settles: int = 0
    size: int = 1
    has_mask: bool = False
    reference: Any = None

    def expression(self) -> Any:
        """Its expression."""
        return self.make(*map(referenced, self.operands))


def referenced(operand: Any) -> Any:
    """The expression that stands for a node or an expression."""
    if not isinstance(operand, Node):
        return operand
    return operand.expression() if operand.reference is None else operand.reference


@define(eq=False)
class Statement:
    """A statement.

    Attributes:
        make: TVM's, given the expressions of its operands and the bodies inside.
        operands: Nodes or expressions.
        inside: Its blocks.
        settles: How many statements of its block come before it.
    """

    make: Callable[..., Any]
    operands: Sequence[Any] = ()
    inside: Sequence[Block] = ()
    settles: int = 0


@define(eq=False)
class Block:
    """Statements that run one after the other.

    Attributes:
        frame: What allocates for it.
        depth: Number of loops around it.
        prologue: TVM's statements that it begins with: integers of addresses.
        items: Values and statements.
        statements: How many of them are statements.
        known: The integers that its prologue has.
    """

    frame: Frame
    depth: int
    prologue: list[Any] = field(factory=list)
    items: list[Node | Statement] = field(factory=list)
    statements: int = 0
    known: dict[Any, Any] = field(factory=dict)

    def add(self, item: Node | Statement) -> None:
        """Add a value or a statement."""
        for operand in item.operands:
            if isinstance(operand, Node):
                operand.uses += 1
                operand.user = item
                operand.is_used_elsewhere |= operand.block is not self
        if isinstance(item, Node):
            item.before = self.statements
        else:
            item.settles = self.statements
            self.statements += 1
        self.items.append(item)

    def rendered(self) -> list[Any]:
        """TVM's statements."""
        made = list(self.prologue)
        for item in reversed(self.items):
            if isinstance(item, Node):
                item.settles = item.before
                if item.user is not None and item.uses == 1 and not item.is_used_elsewhere:
                    item.settles = item.user.settles
        for item in self.items:
            if isinstance(item, Statement):
                bodies = [sequence(block.rendered()) for block in item.inside]
                made.append(item.make(*map(referenced, item.operands), *bodies))
            elif item.uses:
                made += self._named(item)
        return made

    def _named(self, node: Node) -> list[Any]:
        """The statement that names a value; none where it is a part of another's expression."""
        parts = [operand for operand in node.operands if isinstance(operand, Node)]
        node.size = 1 + sum(part.size for part in parts)
        is_mask = node.dtype.startswith("boolx")
        node.has_mask = is_mask or any(part.has_mask for part in parts)
        is_small, is_moved = node.size <= _MOST_NAMED, node.reads and node.settles != node.before
        if node.uses == 1 and is_small and not is_moved and not node.is_used_elsewhere:
            return []
        expression, dtype = node.expression(), node.dtype
        if node.dtype == "bool" or (is_small and not node.has_mask):
            node.reference = tirx.Var("v", dtype)
            return [tirx.Bind(node.reference, expression)]
        if is_mask:
            dtype = dtype.replace("bool", "uint8")
            expression = tirx.Cast(dtype, expression)
        buffer, index = self.frame.slot(dtype)
        node.size, node.has_mask, node.reference = 1, is_mask, tirx.BufferLoad(buffer, [index])
        if is_mask:
            zeros = tirx.Broadcast(tirx.IntImm("uint8", 0), int(dtype.partition("x")[2]))
            node.reference = tirx.NE(node.reference, zeros)
        return [tirx.BufferStore(buffer, expression, [index])]


def sequence(statements: Sequence[Any]) -> Any:
    """Join several statements to one."""
    if not statements:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


__all__ = ["Entry", "TIREmitter", "sequence"]

_ALIGNMENT = 64  # of arrays and scratch memory, in bytes
_LAUNCH = "pragma_parallel_launch_point"
_PREFETCH = (0, 3, 1)  # for reading, into all caches, of data
_NAN = 3  # the classes of NaN
_LEAST_STREAMED = 16  # bytes of a vector that may pass the caches
_NONTEMPORAL = "!0 = !{i32 1}"
_TYPES = {"float16": "half", "float32": "float", "float64": "double"}
_FUNCTIONS = {"round": "rint", "abs": "fabs"}
_LIBRARY = {"float32": "fmodf", "float64": "fmod"}

_OPERATIONS: Mapping[str, Any] = {
    "fadd contract": tirx.Add,
    "fsub contract": tirx.Sub,
    "fmul contract": tirx.Mul,
    "fdiv": tirx.Div,
    "sdiv": tirx.Div,
    "udiv": tirx.Div,
    "srem": tirx.Mod,
    "urem": tirx.Mod,
    "and": tirx.BitwiseAnd,
    "or": tirx.BitwiseOr,
    "xor": tirx.BitwiseXor,
    "shl": tirx.LShift,
    "ashr": tirx.RShift,
}
_UNSIGNED: Mapping[str, Any] = {
    "add": tirx.Add,
    "sub": tirx.Sub,
    "mul": tirx.Mul,
    "lshr": tirx.RShift,
}
"""Of integers without sign: sums of others must not overflow."""

_OF_TRUTH: Mapping[str, Any] = {"and": tirx.And, "or": tirx.Or}
_COMPARISONS = {
    "eq": tirx.EQ,
    "ne": tirx.NE,
    "lt": tirx.LT,
    "le": tirx.LE,
    "gt": tirx.GT,
    "ge": tirx.GE,
}


def _kind(dtype: str, lanes: int = 1) -> str:
    """TVM's type of a value; of bfloat16, in which processors do not compute, its bits."""
    name = "uint16" if dtype == "bfloat16" else dtype
    return name if lanes == 1 else f"{name}x{lanes}"


def _in_memory(dtype: str, lanes: int = 1) -> str:
    return _kind("uint8" if dtype == "bool" else dtype, lanes)


def _in_llvm(dtype: str, lanes: int) -> str:
    """LLVM's type of what memory holds."""
    element = _TYPES.get(dtype) or f"i{8 * element_type(dtype).bytes}"
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _is_constant(value: Any) -> bool:
    return isinstance(value, (tirx.IntImm, tirx.FloatImm))


@define(eq=False)
class Entry:
    """A function of the program that is being printed.

    Attributes:
        block: What it does.
        frame: What it allocates.
        views: The flat view of each array and scratch buffer that it touches, by its place.
    """

    block: Block
    frame: Frame
    views: dict[str, tuple[Place, Any]] = field(factory=dict)

    def body(self) -> list[Any]:
        """Its statements, but for those that say where its views lie."""
        statements = self.block.rendered()
        fence = [_fence()] if self.frame.streams else []
        return [*self.frame.allocations, *statements, *fence]


@define(eq=False)
class TIREmitter(ArithmeticEmitter):
    """Prints TIR; :meth:`finish` gives the entries by their names."""

    _digits: Digits = field(factory=Digits)
    _entries: dict[str, Entry] = field(factory=dict)
    _frames: list[Frame] = field(factory=list)
    _scopes: list[Block] = field(factory=list)
    _blocks: list[Block] = field(factory=list)
    _counters: dict[str, tuple[Block, Any]] = field(factory=dict)
    linked: dict[str, str] = field(factory=dict)
    """Definitions in LLVM's text form, by name."""

    # Structure

    def begin(
        self,
        digits: Digits,
        inputs: Sequence[Place],
        outputs: Sequence[Place],
        scratch: Sequence[Place],
    ) -> None:
        self._digits = digits

    @contextmanager
    def entry(self, name: str) -> Iterator[None]:
        frame = Frame()
        self._entries[name] = entry = Entry(Block(frame, 0), frame)
        self._frames = [frame]
        self._scopes, self._blocks = [entry.block], [entry.block]
        yield

    def finish(self) -> dict[str, Entry]:
        return self._entries

    @property
    def _entry(self) -> Entry:
        return list(self._entries.values())[-1]

    @property
    def _frame(self) -> Frame:
        return self._frames[-1]

    @property
    def _block(self) -> Block:
        return self._blocks[-1]

    def _say(
        self, make: Callable[..., Any], operands: Sequence[Any] = (), inside: Sequence[Block] = ()
    ) -> None:
        """Add a statement."""
        self._block.add(Statement(make, operands, inside))

    def _value(
        self,
        make: Callable[..., Any],
        operands: Sequence[Any],
        dtype: str,
        lanes: int = 1,
        *,
        reads: bool = False,
    ) -> Value:
        """A value of its own."""
        node = Node(make, operands, _kind(dtype, lanes), self._block, reads)
        self._block.add(node)
        return Value(node, dtype, lanes)

    @contextmanager
    def _within(self, block: Block) -> Iterator[None]:
        self._blocks.append(block)
        yield
        self._blocks.pop()

    @contextmanager
    def loop(self, counter: str, begin: Linear, end: Linear, kind: str) -> Iterator[None]:
        first, last = self._integer(begin), self._integer(end)
        extent = last if not begin.terms and begin.constant == 0 else tirx.Sub(last, first)
        if not begin.terms and not end.terms:
            extent = int64(max(0, end.constant - begin.constant))
        # TVM removes loops of one iteration, and then misses the one that threads share.
        parallel = kind == "parallel" and len(self._scopes) == 1 and len(self._frames) == 1
        parallel = parallel and (bool(end.terms) or end.constant > 1)
        variable = tirx.Var(counter, "int64")
        if parallel:
            self._frames.append(Frame())
        body = Block(self._frame, len(self._scopes))
        self._scopes.append(body)
        self._counters[counter] = body, variable
        with self._within(body):
            yield
        self._scopes.pop()
        del self._counters[counter]
        how = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL

        def made(inner: Any) -> Any:
            return tirx.For(variable, first, extent, how, inner)

        if not parallel:
            self._say(made, inside=(body,))
            return
        own = self._frames.pop()
        self._say(lambda inner: _launched(own, made(inner)), inside=(body,))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        body = Block(self._frame, len(self._scopes))
        with self._within(body):
            yield
        self._say(lambda it, inner: tirx.IfThenElse(it, inner, None), (condition.handle,), (body,))

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        bodies, values = [], []
        for side in (yes, no):
            body = Block(self._frame, len(self._scopes))
            with self._within(body):
                values.append(side())
            bodies.append(body)
        dtype, lanes = values[0].dtype, values[0].lanes
        buffer, index = self._frame.slot(_in_memory(dtype, lanes))
        for body, value in zip(bodies, values, strict=True):
            with self._within(body):
                held = self._held(value).handle
                self._say(lambda it: tirx.BufferStore(buffer, it, [index]), (held,))
        self._say(tirx.IfThenElse, (condition.handle,), bodies)
        return self._read(lambda: tirx.BufferLoad(buffer, [index]), (), dtype, lanes)

    # Addresses

    def _digit(self, digit: str) -> tuple[Block, Any]:
        """The scope in which a digit is known, and its value."""
        if digit in self._counters:
            return self._counters[digit]
        derived = self._digits.derived[digit]
        operand = self._digits.resolved(derived.operand)
        digits = [self._digit(it)[0] for it in operand.digits]
        scope = max(digits, key=lambda it: it.depth, default=self._scopes[0])
        key = (digit, operand)
        if key not in scope.known:
            scope.known[key] = _early(scope, _derived(derived, self._sum(operand)))
        return scope, scope.known[key]

    def _sum(self, linear: Linear) -> Any:
        """A form as an integer, computed where the innermost loop that it depends on begins."""
        terms = [(*self._digit(digit), factor) for digit, factor in linear.terms]
        total: Any = None
        key: tuple[object, ...] = ()
        for scope, value, factor in sorted(terms, key=lambda term: term[0].depth):
            key = (*key, id(value), factor)
            if key not in scope.known:
                part = value if factor == 1 else tirx.Mul(value, int64(factor))
                whole = part if total is None else tirx.Add(total, part)
                scope.known[key] = whole if whole is value else _early(scope, whole)
            total = scope.known[key]
        if total is None:
            return int64(linear.constant)
        return tirx.Add(total, int64(linear.constant)) if linear.constant else total

    def _integer(self, linear: Linear) -> Any:
        return self._sum(self._digits.resolved(linear))

    # Memory

    def allocate(self, place: Place) -> None:
        if place.kind == "registers" and place.name not in self._frame.places:
            dtype, count = _in_memory(place.dtype, place.lanes), place.elements // place.lanes
            self._frame.places[place.name] = self._frame.array(place.name, dtype, count)
        elif place.kind == "stack" and place.name not in self._frame.places:
            dtype, name = _in_memory(place.dtype), place.name.replace(" ", "_")
            self._frame.places[place.name] = self._frame.array(name, dtype, place.elements)

    def _memory(self, place: Place) -> Any:
        """The flat buffer that a place is."""
        frame = self._frame
        if place.kind == "stack":
            return frame.places[place.name]
        if place.kind == "scratch" and place.depth:
            if place.name not in frame.places:
                buffer = _flat(place)
                frame.allocations.append(tirx.AllocBuffer(buffer))
                frame.places[place.name] = buffer
            return frame.places[place.name]
        views = self._entry.views
        if place.name not in views:
            views[place.name] = place, _flat(place)
        return views[place.name][1]

    def _read(
        self, make: Callable[..., Any], operands: Sequence[Any], dtype: str, lanes: int
    ) -> Value:
        """Read memory as it is at this moment."""
        if dtype != "bool":
            return self._value(make, operands, dtype, lanes, reads=True)
        held = self._value(make, operands, "uint8", lanes, reads=True)
        return self.cast(held, "bool")

    def _held(self, value: Value) -> Value:
        """A value as memory holds it."""
        return self.cast(value, "uint8") if value.dtype == "bool" else value

    def _element(self, place: Place, at: Linear) -> Any:
        return tirx.BufferLoad(self._memory(place), [self._sum(at)])

    def load(self, place: Place, at: Linear, lanes: int, mask: Value | None = None) -> Value:
        if mask is None:
            found = tirx.BufferLoad(self._memory(place), [_places(self._sum(at), lanes)])
            return self._read(lambda: found, (), place.dtype, lanes)
        address, kind = tirx.address_of(self._element(place, at)), _in_memory(place.dtype, lanes)
        zeros = self.wide(_zero(place.dtype), lanes).handle
        bits = self.wide(mask, lanes).handle

        def made(given: Any, otherwise: Any) -> Any:
            return tirx.call_llvm_intrin(kind, "llvm.masked.load", address, given, otherwise)

        return self._read(made, (bits, zeros), place.dtype, lanes)

    def load_strided(
        self, place: Place, at: Linear, stride: int, lanes: int, mask: Value | None = None
    ) -> Value:
        if mask is None:
            return self.gathered([self.load(place, at + stride * it, 1) for it in range(lanes)])
        address, kind = tirx.address_of(self._element(place, at)), _in_memory(place.dtype, lanes)
        name = self._gather(place.dtype, stride, lanes)

        def made(given: Any) -> Any:
            return tirx.call_extern(kind, name, address, given)

        return self._read(made, (self.wide(mask, lanes).handle,), place.dtype, lanes)

    def _gather(self, dtype: str, stride: int, lanes: int) -> str:
        """The name of a function that reads elements that are some way apart, under a mask."""
        name = f"autotune_gather_{dtype}_{stride}_{lanes}"
        kind, element = _in_llvm(dtype, lanes), _in_llvm(dtype, 1)
        steps = ", ".join(f"i64 {stride * lane}" for lane in range(lanes))
        suffix = _TYPES.get(dtype, element)
        short = {"half": "f16", "float": "f32", "double": "f64"}.get(suffix, suffix)
        full = f"llvm.masked.gather.v{lanes}{short}.v{lanes}p0"
        self.linked[full] = f"declare {kind} @{full}(<{lanes} x ptr>, <{lanes} x i1>, {kind})"
        self.linked[name] = (
            f"define linkonce_odr {kind} @{name}(ptr %p, <{lanes} x i1> %m) "
            "alwaysinline nounwind {\n"
            f"  %a = getelementptr {element}, ptr %p, <{lanes} x i64> <{steps}>\n"
            f"  %v = call {kind} @{full}(<{lanes} x ptr> align {element_type(dtype).bytes} %a, "
            f"<{lanes} x i1> %m, {kind} zeroinitializer)\n  ret {kind} %v\n}}"
        )
        return name

    def load_chosen(self, place: Place, at: Linear, offset: Value, lanes: int) -> Value:
        buffer, base = self._memory(place), self._sum(at)

        def made(chosen: Any) -> Any:
            return tirx.BufferLoad(buffer, [_places(tirx.Add(base, chosen), lanes)])

        return self._read(made, (offset.handle,), place.dtype, lanes)

    def store(
        self, place: Place, at: Linear, value: Value, mask: Value | None, stream: bool
    ) -> None:
        lanes, held = value.lanes, self._held(value).handle
        address = tirx.address_of(self._element(place, at))
        if mask is not None:
            bits = self.wide(mask, lanes).handle
            self._say(lambda it, to: _called("llvm.masked.store", it, address, to), (held, bits))
            return
        name = self._streamed(place, at, lanes) if stream else ""
        if name:
            self._frame.streams = True
            self._say(
                lambda it: tirx.Evaluate(tirx.call_extern("void", name, address, it)), (held,)
            )
            return
        buffer, index = self._memory(place), _places(self._sum(at), lanes)
        self._say(lambda it: tirx.BufferStore(buffer, it, [index]), (held,))

    def _streamed(self, place: Place, at: Linear, lanes: int) -> str:
        """The name of a function that writes past the caches; empty where none can."""
        size = element_type(place.dtype).bytes
        apart = math.gcd(at.constant, *(factor for _, factor in at.terms)) * size
        whole = lanes * size
        aligned = math.gcd(whole, _ALIGNMENT)
        if aligned < _LEAST_STREAMED or apart % aligned:
            return ""
        name, kind = f"autotune_stream_{place.dtype}_{lanes}", _in_llvm(place.dtype, lanes)
        self.linked["!0"] = _NONTEMPORAL
        self.linked[name] = (
            f"define linkonce_odr void @{name}(ptr %p, {kind} %v) alwaysinline nounwind {{\n"
            f"  store {kind} %v, ptr %p, align {aligned}, !nontemporal !0\n  ret void\n}}"
        )
        return name

    def prefetch(self, place: Place, at: Linear) -> None:
        address = tirx.address_of(self._element(place, at))
        how = [tirx.IntImm("int32", it) for it in _PREFETCH]
        self._say(lambda: _called("llvm.prefetch", address, *how))

    def register(self, place: Place, number: int) -> Value:
        found = tirx.BufferLoad(self._frame.places[place.name], [int64(number)])
        return self._read(lambda: found, (), place.dtype, place.lanes)

    def set_register(self, place: Place, number: int, value: Value) -> None:
        held = self._held(self.wide(value, place.lanes)).handle
        buffer, index = self._frame.places[place.name], int64(number)
        self._say(lambda it: tirx.BufferStore(buffer, it, [index]), (held,))

    # Values

    def constant(self, value: float | int | bool, dtype: str) -> Value:
        return Value(_literal(value, dtype), dtype)

    def below(self, linear: Linear, step: int = 0, lanes: int = 1) -> Value:
        if step == 0:
            return self._value(tirx.LT, (self._integer(linear), int64(0)), "bool")
        zeros = tirx.Broadcast(int64(0), lanes)
        return self._value(tirx.LT, (self._ramp(linear, step, lanes), zeros), "bool", lanes)

    def integer(self, linear: Linear) -> Value:
        return Value(self._integer(linear), "int64")

    def _ramp(self, base: Linear, step: int, lanes: int) -> Any:
        return tirx.Ramp(self._integer(base), int64(step), lanes)

    def ramp(self, base: Linear, step: int, lanes: int) -> Value:
        return Value(self._ramp(base, step, lanes), "int64", lanes)

    def wide(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        if value.lanes != 1:
            raise UnsupportedWorkload(f"{value.lanes} lanes are used as {lanes}")
        if _is_constant(value.handle):
            return Value(tirx.Broadcast(value.handle, lanes), value.dtype, lanes)
        operands = (value.handle,)
        return self._value(lambda it: tirx.Broadcast(it, lanes), operands, value.dtype, lanes)

    def _shuffled(self, values: Sequence[Value], lanes: Sequence[int]) -> Value:
        """Some lanes of vectors that lie side by side."""
        places = [tirx.IntImm("int32", lane) for lane in lanes]
        return self._value(
            lambda *its: tirx.Shuffle(list(its), places),
            [value.handle for value in values],
            values[0].dtype,
            len(lanes),
        )

    def shuffled(self, left: Value, right: Value, lanes: Sequence[int]) -> Value:
        is_of_one = max(lanes) < left.lanes
        return self._shuffled([left] if is_of_one else [left, right], lanes)

    def lane(self, value: Value, number: int) -> Value:
        return self._shuffled([value], [number]) if value.lanes > 1 else value

    def with_lane(self, value: Value, number: int, scalar: Value) -> Value:
        lanes = [value.lanes if it == number else it for it in range(value.lanes)]
        return self._shuffled([value, scalar], lanes)

    def gathered(self, scalars: Sequence[Value]) -> Value:
        return self._shuffled(scalars, range(len(scalars))) if len(scalars) > 1 else scalars[0]

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        values = self.same(condition, yes, no) if condition.lanes > 1 else self.same(yes, no)
        yes, no = values[-2:]
        chosen = values[0] if condition.lanes > 1 else self.wide(condition, yes.lanes)
        handles = (chosen.handle, yes.handle, no.handle)
        return self._value(tirx.Select, handles, yes.dtype, yes.lanes)

    def operation(self, name: str, left: Value, right: Value, dtype: str = "") -> Value:
        left, right = self.same(left, right)
        handles, lanes = (left.handle, right.handle), left.lanes
        kind, _, comparison = name.partition(" ")
        if name == "fcmp uno":
            return self._value(_is_nan, (left.handle,), "bool", lanes)
        if kind in ("icmp", "fcmp"):
            if left.dtype == "bool":
                left, right = self.cast(left, "uint8"), self.cast(right, "uint8")
            if comparison == "une":
                return self.negated(self.operation("fcmp oeq", left, right))
            make = _COMPARISONS[comparison[-2:]]
            return self._value(make, (left.handle, right.handle), "bool", lanes)
        if name == "frem":
            return self._remainder(left, right)
        if left.dtype == "bool" and name == "xor":
            bytes_ = self.cast(left, "uint8"), self.cast(right, "uint8")
            return self.operation("icmp ne", *bytes_)
        if left.dtype == "bool":
            return self._value(_OF_TRUTH[name], handles, "bool", lanes)
        if name not in _UNSIGNED:
            return self._value(_OPERATIONS[name], handles, dtype or left.dtype, lanes)
        unsigned = left.dtype.startswith("u") or left.dtype == "bfloat16"
        if name != "lshr" and left.dtype in ("int32", "uint32"):
            return self._wrapped(name, left, right)
        # TVM folds constants of 64 bits without sign to what its constants cannot be.
        if unsigned or (left.dtype == "int64" and name != "lshr"):
            return self._value(_UNSIGNED[name], handles, left.dtype, lanes)
        parts = [self.converted("", it, f"u{it.dtype}") for it in (left, right)]
        whole = self._value(_UNSIGNED[name], [it.handle for it in parts], f"u{left.dtype}", lanes)
        return self.converted("", whole, left.dtype)

    def _wrapped(self, name: str, left: Value, right: Value) -> Value:
        """An operation on 32 bits that may overflow, in 64 bits, of which LLVM makes 32 again.

        TVM tells LLVM of those on 32 bits and more that they do not, with sign or without: it
        makes 0 of what is less than 0 without sign.
        """
        wide = "uint64" if name == "mul" and left.dtype == "uint32" else "int64"
        parts = [self.cast(it, wide) for it in (left, right)]
        handles = [it.handle for it in parts]
        whole = self._value(_UNSIGNED[name], handles, wide, left.lanes)
        return self.cast(whole, left.dtype)

    def negated(self, condition: Value) -> Value:
        return self._value(tirx.Not, (condition.handle,), "bool", condition.lanes)

    def unary(self, op: str, operand: Value) -> Value:
        return self.negated(operand) if op == "not" else super().unary(op, operand)

    def _remainder(self, left: Value, right: Value) -> Value:
        """Of floats, as the C library has it."""
        dtype, lanes = left.dtype, range(left.lanes)
        parts = [
            self._value(
                lambda *its: tirx.call_pure_extern(dtype, _LIBRARY[dtype], *its),
                (self.lane(left, it).handle, self.lane(right, it).handle),
                dtype,
            )
            for it in lanes
        ]
        return self.gathered(parts)

    def cast(self, value: Value, dtype: str) -> Value:
        sources = (value.dtype, dtype)
        if value.dtype != dtype and not any(it in ("bool", "bfloat16") for it in sources):
            sizes = {element_type(it).bytes for it in sources}
            if len(sizes) == 1 and not any(map(is_float, sources)):
                return self.converted("", value, dtype)
        return super().cast(value, dtype)

    def converted(self, name: str, value: Value, dtype: str) -> Value:
        kind = _kind(dtype, value.lanes)
        same = _same_bits(value.handle, dtype) if not name else None
        if same is not None:
            return Value(same, dtype, value.lanes)
        return self._value(partial(tirx.Cast, kind), (value.handle,), dtype, value.lanes)

    def bitcast(self, value: Value, dtype: str, lanes: int) -> Value:
        kind = _kind(dtype, lanes)
        return self._value(partial(tirx.reinterpret, kind), (value.handle,), dtype, lanes)

    def negative(self, operand: Value) -> Value:
        return self.operation("fmul contract", operand, self.constant(-1.0, operand.dtype))

    def called(self, name: str, *operands: Value) -> Value:
        first = operands[0]
        kind, full = _kind(first.dtype, first.lanes), f"llvm.{_FUNCTIONS.get(name, name)}"
        return self._value(
            lambda *its: tirx.call_llvm_pure_intrin(kind, full, *its),
            [operand.handle for operand in operands],
            first.dtype,
            first.lanes,
        )

    def by_library(self, name: str, operand: Value) -> Value:
        lanes = [self.lane(operand, it).handle for it in range(operand.lanes)]
        call = partial(tirx.call_pure_extern, "float64", name)
        return self.gathered([self._value(call, (lane,), "float64") for lane in lanes])

    # Instructions

    def pointer(self, place: Place, at: Linear) -> Value:
        return Value(tirx.address_of(self._element(place, at)), "pointer")

    def intrinsic(self, name: str, dtype: str, lanes: int, arguments: Sequence[Value]) -> Value:
        kind = _kind(dtype, lanes)
        handles = [argument.handle for argument in arguments]
        if "bfloat16" not in (dtype, *(argument.dtype for argument in arguments)):
            make = partial(tirx.call_llvm_pure_intrin, kind, name)
            return self._value(make, handles, dtype, lanes)
        own = self._of_bits(name, Value(None, dtype, lanes), arguments)
        return self._value(
            lambda *its: tirx.call_pure_extern(kind, own, *its), handles, dtype, lanes
        )

    def execute(self, name: str, arguments: Sequence[Value]) -> None:
        self._say(lambda *its: _called(name, *its), [argument.handle for argument in arguments])

    def _of_bits(self, name: str, result: Value, arguments: Sequence[Value]) -> str:
        """The name of a function that calls one of LLVM's with the bits of bfloat16 as such."""

        def own(value: Value) -> str:
            kind = _in_llvm(value.dtype, value.lanes)
            return kind.replace("i16", "bfloat") if value.dtype == "bfloat16" else kind

        def plain(value: Value) -> str:
            return _in_llvm(value.dtype, value.lanes)

        called = "autotune_" + name.replace(".", "_")
        lines = [
            f"  %b{at} = bitcast {plain(it)} %a{at} to {own(it)}"
            for at, it in enumerate(arguments)
        ]
        given = ", ".join(f"{own(it)} %b{at}" for at, it in enumerate(arguments))
        taken = ", ".join(f"{plain(it)} %a{at}" for at, it in enumerate(arguments))
        self.linked[name] = f"declare {own(result)} @{name}({', '.join(map(own, arguments))})"
        self.linked[called] = "\n".join(
            [
                f"define linkonce_odr {plain(result)} @{called}({taken}) alwaysinline nounwind {{",
                *lines,
                f"  %r = call {own(result)} @{name}({given})",
                f"  %v = bitcast {own(result)} %r to {plain(result)}",
                f"  ret {plain(result)} %v",
                "}",
            ]
        )
        return called

    def with_linked(self, body: Any) -> Any:
        """A statement with the definitions that it calls."""
        definitions = [self.linked[name] for name in sorted(self.linked)]
        return linked(body, definitions) if definitions else body


def _literal(value: float | int | bool, dtype: str) -> Any:
    if dtype == "bfloat16":
        return tirx.IntImm(
            "uint16", int(element_type(dtype).stored(np.asarray(value, np.float32)))
        )
    if not is_float(dtype):
        return tirx.IntImm(dtype, int(bool(value) if dtype == "bool" else value))
    with np.errstate(over="ignore"):
        return tirx.FloatImm(dtype, float(np.dtype(dtype).type(value)))


def _same_bits(constant: Any, dtype: str) -> Any:
    """An integer of another sign, which TVM refuses to convert if negative; None of variables."""
    if isinstance(constant, tirx.Broadcast):
        inner = _same_bits(constant.value, dtype)
        return None if inner is None else tirx.Broadcast(inner, constant.lanes)
    if not isinstance(constant, tirx.IntImm):
        return None
    size = int(dtype.lstrip("uint"))
    bits = int(constant.value) % (1 << size)
    if dtype == "uint64" and bits >> size - 1:
        return tirx.reinterpret(dtype, constant)  # more than constants of TVM can be
    return tirx.IntImm(dtype, bits - (1 << size) if dtype[0] == "i" and bits >> size - 1 else bits)


def _zero(dtype: str) -> Value:
    """Zero as memory holds it."""
    kind = _in_memory(dtype)
    return Value(_literal(0, kind), kind)


def _flat(place: Place) -> Any:
    return tirx.decl_buffer((place.elements,), _in_memory(place.dtype), name=f"{place.name}_")


def _places(first: Any, lanes: int) -> Any:
    return tirx.Ramp(first, int64(1), lanes) if lanes > 1 else first


def _early(scope: Block, value: Any) -> Any:
    """The name of an integer that a scope begins with."""
    name = tirx.Var("a", "int64")
    scope.prologue.append(tirx.Bind(name, value))
    return name


def _derived(derived: Any, operand: Any) -> Any:
    """A digit that follows from an integer, which is not negative where it is divided."""
    if derived.op in ("at_most_0", "at_least_0"):
        return (tirx.Min if derived.op == "at_most_0" else tirx.Max)(operand, int64(0))
    divisor = derived.divisor
    if divisor & (divisor - 1):
        return (tirx.Div if derived.op == "div" else tirx.Mod)(operand, int64(divisor))
    if derived.op == "mod":
        return tirx.BitwiseAnd(operand, int64(divisor - 1))
    return tirx.RShift(operand, int64(divisor.bit_length() - 1))


def _is_nan(value: Any) -> Any:
    kind = str(value.ty.dtype)
    lanes = kind.partition("x")[2]
    result = f"boolx{lanes}" if lanes else "bool"
    return tirx.call_llvm_pure_intrin(result, "llvm.is.fpclass", value, tirx.IntImm("int32", _NAN))


def _called(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", name, *arguments))


def _fence() -> Any:
    """Wait for what was written past the caches: others may read it then."""
    return _called("llvm.x86.sse.sfence")


def _launched(own: Frame, loop: Any) -> Any:
    """A parallel loop with what each thread allocates for its share, and waits for after it."""
    one = tirx.IntImm("int32", 1)
    fence = [_fence()] if own.streams else []
    body = sequence([*own.allocations, loop.body])
    inside = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body)
    return tirx.AttrStmt(one, _LAUNCH, one, sequence([inside, *fence]))
