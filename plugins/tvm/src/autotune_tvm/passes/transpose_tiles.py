"""Copies that write along another dimension than they read along, in square tiles of registers.

Where the elements of a vector lie rows apart in what is read, or in what is written, each of them
is moved by itself. A loop around it along which those are neighbours makes that a transpose: as
many whole vectors are loaded as each has elements, exchange elements among each other in
registers, and are stored whole. TVM has no expression for it, so the tiles are functions in LLVM's
text form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen
from tvm import DataType, tirx
from tvm.ir import Call, IRModule, Op, Range, TensorLoad
from tvm.sym import Analyzer
from tvm.target import codegen
from tvm_ffi import structural_map

from autotune_tvm.blocks import walk
from autotune_tvm.linked_text import with_functions, with_linked
from autotune_tvm.passes.statements import at, number_of, rebuilt
from autotune_tvm.passes.stream_stores import (
    NONTEMPORAL,
    STREAMED,
    alignment_of,
    streamed_buffers,
)

__all__ = ["transpose_tiles"]

_MOST_ROWS = 16
_LANE_BYTES = 16
_CONDITIONAL = Op.get("prim.if_then_else")


def transpose_tiles(module: IRModule) -> IRModule:
    """A lowered module that transposes in registers what its loops copy element by element.

    What is copied stays the same, and so do copies with anything in them but loads, those whose
    strides are not known, and on processors other than x86-64. What is left of a loop that tiles
    do not divide keeps its form.
    """
    return with_functions(module, _in_function)


def _in_function(function: Any) -> Any:
    target = function.attrs.get("target") if function.attrs is not None else None
    if target is None or str(target.kind) != "llvm":
        return function
    vector_bytes = int(codegen.llvm_get_vector_width(target)) // 8
    cores = int(target.attrs.get("num-cores", 1))
    buffers = streamed_buffers(function)
    texts: dict[str, str] = {}

    def changed(loop: Any) -> Any:
        store = _store_of(loop)
        if store is None:
            return loop
        for size in _sizes(store, vector_bytes, cores):
            copy = _copy_of(store, size)
            if copy is not None:
                return _in_tiles(copy, buffers, texts)
        return loop

    made = structural_map(function, (tirx.For, changed))
    definitions = [texts[name] for name in sorted(texts)]
    return with_linked(made, [*definitions, NONTEMPORAL]) if texts else function


@frozen
class _Store:
    """A loop in which one vector after the other is stored, perhaps by loops in it.

    Attributes:
        loop: Its statement.
        inside: Loops in it, outermost first, with nothing else between.
        binds: Names of parts of indices, before the store.
        store: What is done.
        lanes: Elements of a vector.
    """

    loop: Any
    inside: list[Any]
    binds: list[Any]
    store: Any
    lanes: int


def _store_of(loop: Any) -> _Store | None:
    """The store that is all that a loop does; None where it does anything else."""
    inner, inside = loop.body, []
    while isinstance(inner, tirx.For):
        inside.append(inner)
        inner = inner.body
    binds: list[Any] = []
    if isinstance(inner, tirx.SeqStmt):
        *binds, inner = list(inner.seq)
    if not isinstance(inner, tirx.BufferStore) or len(inner.indices) != 1:
        return None
    if any(it.annotations for it in (loop, *inside)):
        return None
    (index,) = inner.indices
    kinds = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)
    plain = loop.kind in kinds and all(it.kind == tirx.ForKind.SERIAL for it in inside)
    plain = plain and all(isinstance(it, tirx.Bind) for it in binds)
    # Those inside, too: the iterations of a tile share theirs.
    counted = all(
        number_of(it.min) == 0 and number_of(it.extent) is not None for it in (loop, *inside)
    )
    if not plain or not counted or not isinstance(index, tirx.Ramp):
        return None
    return _Store(loop, inside, binds, inner, int(index.lanes))


def _sizes(store: _Store, vector_bytes: int, cores: int) -> Iterator[int]:
    """Elements of a row of tiles that fit, the largest first.

    Args:
        store: The loop.
        vector_bytes: Of the target's registers.
        cores: Which share a parallel loop.
    """
    dtype = DataType(str(store.store.buffer.dtype))
    if dtype.bits not in (8, 16, 32, 64) or dtype.lanes != 1:
        return
    width, extent = dtype.bits // 8, int(store.loop.extent)
    shares = cores if store.loop.kind == tirx.ForKind.PARALLEL else 1
    size = min(_MOST_ROWS, vector_bytes // width, store.lanes & -store.lanes)
    while size * width >= _LANE_BYTES:
        if extent // size >= shares:
            yield size
        size //= 2


@frozen
class _Side:
    """Where the vectors of a loop are read or written.

    Attributes:
        buffer: The buffer.
        base: Index of the first element of a tile, over the number of the tile.
        lane: Elements from one of a vector to the next.
        step: Elements from a vector to that of the next iteration.
    """

    buffer: Any
    base: Any
    lane: int
    step: int

    @property
    def row(self) -> int:
        """Elements from one row of a tile to the next: rows are contiguous."""
        return self.step if self.lane == 1 else self.lane


@frozen
class _Copy:
    """A loop that copies rows into columns.

    Attributes:
        store: The loop.
        size: Iterations of a tile, which is as wide.
        target: Where to.
        sources: Where from: one place, or two for both values of a condition.
        condition: That chooses the first of them, the same in all iterations; None of one.
    """

    store: _Store
    size: int
    target: _Side
    sources: tuple[_Side, ...]
    condition: Any | None


def _copy_of(store: _Store, size: int) -> _Copy | None:
    """The transpose that a loop is within so many iterations; None where it is none."""
    value, condition = store.store.value, None
    loads = [value]
    if isinstance(value, Call) and value.op.same_as(_CONDITIONAL):
        condition, *loads = value.args
        condition = _whole(condition, store.binds)
        if any(node.same_as(store.loop.loop_var) for node in walk(condition)):
            return None
    # Of most loops both are contiguous, and their indices need no proof.
    if not all(isinstance(load, TensorLoad) for load in loads):
        return None
    contiguous = _is_contiguous(store.store.indices)
    if any(_is_contiguous(load.indices) == contiguous for load in loads):
        return None
    target = _side(store.store.buffer, store.store.indices, store, size)
    found = (_side(load.source, load.indices, store, size) for load in loads)
    sources = tuple(side for side in found if side is not None)
    if target is None or len(sources) < len(loads):
        return None
    is_one = all(_is_transpose(source, target, store.lanes, size) for source in sources)
    return _Copy(store, size, target, sources, condition) if is_one else None


def _is_contiguous(indices: Any) -> bool:
    """Whether the elements of a vector are neighbours."""
    return isinstance(indices[-1], tirx.Ramp) and number_of(indices[-1].stride) == 1


def _side(buffer: Any, indices: Any, store: _Store, size: int) -> _Side | None:
    """Where a vector lies, and the next one; None where that is not always as far away."""
    if len(indices) != 1 or not isinstance(indices[0], tirx.Ramp):
        return None
    variable, place = store.loop.loop_var, tirx.Var("place", store.loop.loop_var.ty)
    base = _whole(indices[0].base, store.binds)
    analyzer = Analyzer()
    analyzer.bind(place, Range(0, size))
    index = at(_divided(base), [variable], [variable * size + place])
    first = at(index, [place], [0])
    lane = number_of(indices[0].stride)
    step = number_of(analyzer.simplify(at(index, [place], [1]) - first))
    if lane is None or step is None:
        return None
    if number_of(analyzer.simplify(index - first - place * step)) != 0:
        return None
    return _Side(buffer, at(base, [variable], [variable * size]), lane, step)


def _divided(index: Any) -> Any:
    """An index with divisions in the place of operations on bits, of which nothing is known."""

    def quotient(shift: Any) -> Any:
        number = number_of(shift.b)
        return shift if number is None else tirx.floordiv(shift.a, 1 << number)

    def remainder(mask: Any) -> Any:
        number = number_of(mask.b)
        if number is None or number < 0 or (number + 1).bit_count() != 1:
            return mask
        return tirx.floormod(mask.a, number + 1)

    return structural_map(index, [(tirx.RShift, quotient), (tirx.BitwiseAnd, remainder)])


def _is_transpose(source: _Side, target: _Side, lanes: int, size: int) -> bool:
    """Whether rows are read that become columns, none of which is another's place."""
    if source.buffer.same_as(target.buffer):
        return False
    if target.lane == 1:
        return source.step == 1 and source.lane > 1 and target.step >= lanes
    return source.lane == 1 and source.step > 1 and target.step == 1 and target.lane >= size


def _whole(expression: Any, binds: list[Any]) -> Any:
    """An expression with what names stand for."""
    for bind in reversed(binds):
        expression = at(expression, [bind.var], [bind.value])
    return expression


def _like(number: int, variable: Any) -> Any:
    """A constant of the type of a variable: 64 bits in arrays of 2^31 elements and more."""
    return tirx.const(number, str(variable.ty.dtype))


def _in_tiles(copy: _Copy, streamed: list[Any], texts: dict[str, str]) -> Any:
    """Loops over tiles, and those over what they leave.

    Args:
        copy: The loop.
        streamed: Buffers that are written past the caches.
        texts: Definitions by name, added to.
    """
    loop, size = copy.store.loop, copy.size
    bits = DataType(str(copy.target.buffer.dtype)).bits
    alignment = 0
    if copy.target.row % size == 0 and any(
        copy.target.buffer.same_as(other) for other in streamed
    ):
        row = tirx.Ramp(copy.target.base, _like(1, loop.loop_var), size)
        alignment = alignment_of(row, bits // 8)
    name = f"{STREAMED if alignment else 'autotune'}_transpose_{bits}_{size}"
    texts[name] = _transposed_text(name, bits, size, alignment)
    tiles, left = divmod(int(loop.extent), size)
    made = [_loop(loop, loop.loop_var, tiles, _around(copy.store.inside, _tile(copy, name)))]
    if left:
        made.append(_rest(copy.store, tiles * size, left))
    return tirx.SeqStmt(made) if len(made) > 1 else made[0]


def _loop(loop: Any, variable: Any, extent: int, body: Any) -> Any:
    """A loop of the same kind."""
    return tirx.For(variable, loop.min, _like(extent, variable), loop.kind, body)


def _around(loops: list[Any], body: Any) -> Any:
    """Loops around another body."""
    for loop in reversed(loops):
        body = rebuilt(loop, [body])
    return body


def _rest(store: _Store, begin: int, extent: int) -> Any:
    """The iterations of a loop from ``begin`` on, with names of their own for what has one."""
    loop = store.loop
    variable = tirx.Var(str(loop.loop_var.name), loop.loop_var.ty)
    own = [*(it.loop_var for it in store.inside), *(bind.var for bind in store.binds)]
    values = [(loop.loop_var, variable + begin)]
    values += [(name, tirx.Var(str(name.name), name.ty)) for name in own]

    def changed(node: Any) -> Any:
        return next((value for name, value in values if node.same_as(name)), node)

    return _loop(loop, variable, extent, structural_map(loop.body, (tirx.Var, changed)))


def _tile(copy: _Copy, name: str) -> Any:
    """The calls in the place of the iterations of a tile, which may be narrower than a vector."""

    def place(side: _Side, lane: int) -> tuple[Any, Any]:
        element = tirx.BufferLoad(side.buffer, [side.base + lane * side.lane])
        return tirx.address_of(element), tirx.const(side.row, "int64")

    def calls(source: _Side) -> Any:
        made = [
            tirx.Evaluate(
                tirx.call_extern("void", name, *place(source, lane), *place(copy.target, lane))
            )
            for lane in range(0, copy.store.lanes, copy.size)
        ]
        return tirx.SeqStmt(made) if len(made) > 1 else made[0]

    if copy.condition is None:
        return calls(copy.sources[0])
    return tirx.IfThenElse(copy.condition, *map(calls, copy.sources))


def _transposed_text(name: str, bits: int, size: int, alignment: int) -> str:
    """A function in LLVM's text form that transposes a square tile.

    It takes where the tile's rows are read and how many elements apart, and the same of where they
    are written. Elements are exchanged by what x86 has one instruction for: first within parts of
    16 bytes (``unpack``), then whole parts (``shuffle``).

    Args:
        name: Of the function.
        bits: Of an element.
        size: Rows, and elements of a row, a power of two; at least 16 bytes.
        alignment: Bytes to which rows are aligned that are written past the caches; 0 for others.
    """
    vector, element = f"<{size} x i{bits}>", f"i{bits}"
    head = f"define linkonce_odr void @{name}(ptr %s, i64 %S, ptr %d, i64 %D)"
    lines = [f"{head} alwaysinline nounwind {{"]
    for row in range(size):
        lines += [
            f"  %so{row} = mul nsw i64 %S, {row}",
            f"  %sp{row} = getelementptr inbounds {element}, ptr %s, i64 %so{row}",
            f"  %r0_{row} = load {vector}, ptr %sp{row}, align {bits // 8}",
        ]
    exchanges = list(_exchanges(bits, size))
    for stage, (bit, low, high) in enumerate(exchanges, start=1):
        for row in range(size):
            if row & bit:
                continue
            pair = f"{vector} %r{stage - 1}_{row}, {vector} %r{stage - 1}_{row | bit}"
            for made, places in ((row, low), (row | bit, high)):
                mask = ", ".join(f"i32 {place}" for place in places)
                lines.append(f"  %r{stage}_{made} = shufflevector {pair}, <{size} x i32> <{mask}>")
    hint = f"align {alignment}, !nontemporal !0" if alignment else f"align {bits // 8}"
    for row in range(size):
        lines += [
            f"  %do{row} = mul nsw i64 %D, {row}",
            f"  %dp{row} = getelementptr inbounds {element}, ptr %d, i64 %do{row}",
            f"  store {vector} %r{len(exchanges)}_{row}, ptr %dp{row}, {hint}",
        ]
    return "\n".join([*lines, "  ret void", "}"])


def _exchanges(bits: int, size: int) -> Iterator[tuple[int, list[int], list[int]]]:
    """The steps of a transpose: rows that differ in a bit become those of two masks.

    Each step puts one bit of the number of a row into that of the element, and takes one out for
    it. Within parts of 16 bytes the elements of two rows alternate, which takes out the highest
    bit, so the highest bit of the row goes first; of whole parts those with even and odd numbers
    follow each other, which takes out the lowest, so the lowest goes first.
    """
    inside = _LANE_BYTES * 8 // bits
    parts = size // inside

    def alternating(half: int) -> list[int]:
        return [
            part * inside + half * inside // 2 + place // 2 + place % 2 * size
            for part in range(parts)
            for place in range(inside)
        ]

    def following(odd: int) -> list[int]:
        chosen = [row * parts + part for row in (0, 1) for part in range(odd, parts, 2)]
        return [part * inside + place for part in chosen for place in range(inside)]

    for step in reversed(range(inside.bit_length() - 1)):
        yield 1 << step, alternating(0), alternating(1)
    for step in range(parts.bit_length() - 1):
        yield inside << step, following(0), following(1)
