"""Loops of copies, in vectors along what is written and in square tiles where they transpose.

The nest leaves the innermost loops of many copies scalar, as a compiler would vectorise them.
Here their own loops, in which any order of points is as good, are split and ordered anew:

    for i, j: B[i, j] = A[i, j]  ->  for i, j.outer: B[i, j.outer*8 : +8] = A[...]
    for i, j: B[i, j] = A[j, i]  ->  for i.outer, j.outer: an 8 x 8 tile, transposed in registers

Copies whose innermost index counts groups of rows are made of all rows of a group at once:

    for g < 4, j < 16: B[j, g] = A[g, j]  ->  four vectors, interleaved
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Cast, Constant, Gather, Load, ScalarExpr, transform
from autotune.ir.expressions.scalar import reads
from autotune.ir.workloads import Workload
from autotune.lower.concrete import ConcreteLoop, ConcreteStatement
from autotune.lower.linear import Digits, Linear
from autotune.lower.places import Place, address, within
from autotune.nest.loop_nest import Buffer, LoopNest, Statement

__all__ = ["in_vectors", "with_wide_copies"]

_VECTORS_AT_ONCE = 4
_KINDS = ("serial", "vectorized", "unrolled")


@frozen(eq=False)
class _Movement:
    """By how many elements the write, and each read, move with each digit."""

    write: Linear
    reads: tuple[Linear, ...]


@frozen(eq=False)
class _Trial:
    """A statement with its own loops split, and the digits that may be put in another order."""

    statement: ConcreteStatement
    free: frozenset[str]
    movement: _Movement

    def extent(self, name: str) -> int:
        return next(loop.extent for loop in self.statement.loops if loop.name == name)

    def innermost(self, fits: Callable[[str], bool]) -> str | None:
        names = [loop.name for loop in reversed(self.statement.loops) if loop.name in self.free]
        return next(filter(fits, names), None)


def in_vectors(
    statements: Sequence[ConcreteStatement],
    workload: Workload,
    places: Mapping[str, Place],
    width: int,
    digits: Digits,
) -> list[ConcreteStatement]:
    """The statements, copies and elementwise ones of them in vectors of ``width`` lanes."""
    shared = Counter(loop.name for statement in statements for loop in statement.loops)

    def revised(statement: ConcreteStatement) -> ConcreteStatement:
        if not _is_free_of_order(statement, workload):
            return statement
        first = len(statement.loops)
        while first and shared[statement.loops[first - 1].name] == 1:
            first -= 1
        own = statement.loops[first:]
        if _interleaves(statement, own, places, digits):
            return evolve(statement, interleaves=True)
        found = _along_lanes(statement, own, places, width, digits)
        return found or _in_tiles(statement, own, places, width, digits) or statement

    return [revised(statement) for statement in statements]


def _interleaves(
    statement: ConcreteStatement,
    own: Sequence[ConcreteLoop],
    places: Mapping[str, Place],
    digits: Digits,
) -> bool:
    """Tell whether the innermost loops go through a group of rows, whose elements lie in turn."""
    place = places[statement.write.buffer]
    if place.group_dim is None or len(own) < 2 or statement.lane is None:
        return False
    *_, rows, lanes = own
    movement, size = _movement(statement, places, digits), place.shape[-1]
    if movement is None or rows.extent != size or size.bit_count() != 1:
        return False
    steps = movement.write.coefficient(rows.name), movement.write.coefficient(lanes.name)
    along = all(read.coefficient(lanes.name) in (0, 1) for read in movement.reads)
    return steps == (1, size) and along


def _is_free_of_order(statement: ConcreteStatement, workload: Workload) -> bool:
    if statement.source.role != "compute":
        return statement.source.role in ("pack", "write")
    stage = workload.stage(statement.source.stage)
    return stage.combiner is None and stage.scan_axis is None


def _is_movable(loop: ConcreteLoop) -> bool:
    return len(loop.axes) == 1 and loop.bound is None and not loop.has_unit and loop.kind in _KINDS


def _along_lanes(
    statement: ConcreteStatement,
    own: Sequence[ConcreteLoop],
    places: Mapping[str, Place],
    width: int,
    digits: Digits,
) -> ConcreteStatement | None:
    """The statement with lanes along what it writes, where what it reads lies so, too."""
    sizes = (4 * width, 2 * width, width, width // 2)

    def size(loop: ConcreteLoop) -> int:
        if loop.kind == "vectorized" or not _is_movable(loop):
            return 0
        return next((size for size in sizes if size and loop.extent % size == 0), 0)

    trial = _split(statement, own, size, places, digits)
    if trial is None:
        return None
    most = _VECTORS_AT_ONCE * width
    lane = trial.innermost(
        lambda name: (
            trial.movement.write.coefficient(name) == 1
            and trial.extent(name) % 4 == 0
            and trial.extent(name) <= most
        )
    )
    if lane is None or any(read.coefficient(lane) not in (0, 1) for read in trial.movement.reads):
        return None
    if own[-1].kind == "vectorized":
        return statement
    return _innermost(_only_split(statement, (lane,), size, digits), (), lane)


def _in_tiles(
    statement: ConcreteStatement,
    own: Sequence[ConcreteLoop],
    places: Mapping[str, Place],
    width: int,
    digits: Digits,
) -> ConcreteStatement | None:
    """The statement in square tiles, where it reads along another loop than it writes along."""

    def size(loop: ConcreteLoop) -> int:
        splits = _is_movable(loop) or (loop.kind == "parallel" and len(loop.axes) == 1)
        return width if splits and loop.extent % width == 0 else 0

    trial = _split(statement, own, size, places, digits)
    if trial is None:
        return None
    write, read = trial.movement.write, trial.movement.reads
    column = trial.innermost(
        lambda name: write.coefficient(name) == 1 and trial.extent(name) == width
    )
    row = trial.innermost(
        lambda name: (
            name != column
            and trial.extent(name) == width
            and any(it.coefficient(name) == 1 for it in read)
        )
    )
    if column is None or row is None:
        return None
    if any(it.coefficient(column) not in (0, 1) and it.coefficient(row) != 1 for it in read):
        return None
    result = _only_split(statement, (row, column), size, digits)
    result = _innermost(result, (row,), column)
    return evolve(_with_pairs(result, row, digits), tile=(row, column))


def _only_split(
    statement: ConcreteStatement,
    wanted: tuple[str, ...],
    size: Callable[[ConcreteLoop], int],
    digits: Digits,
) -> ConcreteStatement:
    """The statement with those loops split of which ``wanted`` names the inner parts."""
    for loop in statement.loops:
        if f"{loop.name}.inner" in wanted:
            statement = statement.split(loop.name, size(loop), digits)
    return statement


def _with_pairs(statement: ConcreteStatement, row: str, digits: Digits) -> ConcreteStatement:
    """The statement with two tiles behind each other, which use whole cache lines of what is read.

    Before: ``for row.outer, ..., row, column``; after: ``for row.outer/2, ..., 2, row, column``.
    """
    outer = f"{row.removesuffix('.inner')}.outer"
    names = [loop.name for loop in statement.loops]
    if outer not in names[:-3] or statement.loops[names.index(outer)].extent % 2:
        return statement
    split = statement.split(outer, 2, digits)
    pair = next(loop for loop in split.loops if loop.name == f"{outer}.inner")
    others = [loop for loop in split.loops if loop is not pair]
    return evolve(split, loops=(*others[:-2], evolve(pair, kind="serial"), *others[-2:]))


def _split(
    statement: ConcreteStatement,
    own: Sequence[ConcreteLoop],
    size: Callable[[ConcreteLoop], int],
    places: Mapping[str, Place],
    digits: Digits,
) -> _Trial | None:
    """The statement with own loops split; None where it is not known how it moves."""
    trial, free = statement, {loop.name for loop in own if _is_movable(loop)}
    for loop in own:
        block = size(loop)
        if block and loop.extent > block:
            trial = trial.split(loop.name, block, digits)
            if loop.name in free:
                free.add(f"{loop.name}.outer")
            free.add(f"{loop.name}.inner")
    movement = _movement(trial, places, digits)
    return None if not free or movement is None else _Trial(trial, frozenset(free), movement)


def _movement(
    statement: ConcreteStatement, places: Mapping[str, Place], digits: Digits
) -> _Movement | None:
    source = statement.source

    def moved(buffer: str, indices: Sequence[Linear]) -> Linear:
        place = places[buffer]
        inside = [within(statement, index, place, digits) for index in indices]
        return address(place, inside, digits)

    try:
        found = []
        for access in source.accesses:
            if access.write or source.body is None:
                indices = [digits.of_form(form, statement.axes) for form in access.forms]
                found.append((access.write, moved(access.buffer, indices)))
        for read in reads(source.body) if source.body is not None else ():
            if isinstance(read, Gather):
                return None
            buffer = source.sources.get(read.tensor, read.tensor)
            indices = [digits.of_expression(it, statement.axes) for it in read.indices]
            found.append((False, moved(buffer, indices)))
    except UnsupportedWorkload:
        return None
    write = next(linear for is_write, linear in found if is_write)
    return _Movement(write, tuple(linear for is_write, linear in found if not is_write))


def _innermost(
    statement: ConcreteStatement, rows: tuple[str, ...], lane: str
) -> ConcreteStatement:
    """The statement with the loops ``rows`` and ``lane`` last."""
    used = {*rows, lane}
    by_name = {loop.name: loop for loop in statement.loops}
    rest = [
        evolve(loop, kind="serial") if loop.kind == "vectorized" else loop
        for loop in statement.loops
        if loop.name not in used
    ]
    inner = [evolve(by_name[name], kind="serial") for name in rows]
    lanes = evolve(by_name[lane], kind="vectorized")
    return evolve(statement, loops=(*rest, *inner, lanes))


_HALVES = ("float16", "bfloat16")
_WIDE = "float32"

# Of what is read less often, memory is waited for, and twice as much takes twice as long.
_LEAST_READS = 8


# What a schedule copies for a product is read many times: once for every row, or every block of
# columns. Halves that a stage converts wherever it reads them are converted once, when they are
# copied. Instructions on halves take them as they are.
def with_wide_copies(nest: LoopNest) -> LoopNest:
    """The nest with copies of halves widened that all readers convert."""
    wide = {it.name for it in nest.buffers if it.dtype in _HALVES and _is_widened(nest, it)}
    if not wide:
        return nest
    buffers = (evolve(it, dtype=_WIDE) if it.name in wide else it for it in nest.buffers)
    return evolve(nest, buffers=tuple(buffers))


def _is_widened(nest: LoopNest, buffer: Buffer) -> bool:
    writers = [it for it in (*nest.packing, *nest.statements) if _touches(it, buffer, write=True)]
    readers = [it for it in nest.statements if _touches(it, buffer, write=False)]
    return all(it.role == "pack" for it in writers) and all(
        not it.intrinsic and _converts(it, buffer) and _reads(nest, it, buffer) >= _LEAST_READS
        for it in readers
    )


def _touches(statement: Statement, buffer: Buffer, *, write: bool) -> bool:
    return any(it.buffer == buffer.name and it.write is write for it in statement.accesses)


def _converts(statement: Statement, buffer: Buffer) -> bool:
    """Return whether all elements that a statement reads of a buffer are converted at once."""

    def served(node: ScalarExpr) -> bool:
        return isinstance(node, Load) and statement.sources.get(node.tensor) == buffer.name

    def known(node: ScalarExpr) -> ScalarExpr | None:
        converted = isinstance(node, Cast) and node.dtype == _WIDE and served(node.operand)
        return Constant(0.0, _WIDE) if converted else None

    if statement.body is None:
        return False
    rest = reads(transform(statement.body, known))
    return not any(statement.sources.get(read.tensor) == buffer.name for read in rest)


def _reads(nest: LoopNest, statement: Statement, buffer: Buffer) -> int:
    """Number of times that an element is read, but for windows that overlap."""
    stage = nest.workload.stage(statement.stage)
    access = next(it for it in statement.accesses if it.buffer == buffer.name and not it.write)
    moving = {axis for form in access.forms for axis in form.axes}
    return math.prod(axis.extent for axis in stage.spatial_axes if axis.name not in moving)
