"""Sums of what instructions add too much, as statements of the nest.

An instruction on unsigned by signed bytes multiplies signed ones when 128 is added to the first
factor. Sums are then too large by 128 times the sum of the second factor, which is the same for
all rows. Where a schedule copies the second factor, all of it that a sum needs, this excess is
added up once behind the copy, and sums start with its contrary:

    B.pack = ...                              B.pack = ...
                                              excess[j] = sum(k, 128 * B.pack[k, j])
    C.tile[i, j] = 0                    ->    C.tile[i, j] = 0 - excess[j]
    C.tile[i, j] += A[i, k] * B.pack          C.tile[i, j] += (A[i, k] + 128) * B.pack

Integers wrap around, so that results are the same in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import evolve, frozen

from autotune.ir.expressions import (
    AffineForm,
    Binary,
    Cast,
    Constant,
    IntExpr,
    Load,
    ScalarExpr,
    product,
    var,
)
from autotune.nest.loop_nest import Access, Buffer, Loop, LoopNest, Statement
from autotune.sketches.intrinsics import find_intrinsic

__all__ = ["SHIFT", "with_corrections"]

SHIFT = 128
"""Addend that makes an unsigned byte of a signed one."""

# Four rows by 1024 x 1024 weights are 0.84 to 1.09 times as fast as with corrections in each call,
# 32 rows by 2048 x 1008 are 1.4 times as fast (one thread of a Zen 4).
_LEAST_ROWS = 8


@frozen(eq=False)
class _Excess:
    """Sum that a call adds in excess, and the copy of its second factor.

    Attributes:
        call: The statement of the call.
        copy: The one that copies the factor.
        factor: The element of it that a point reads.
        path: The loops around the copy and the call.
        columns: Axes of the sums that it depends on.
        buffer: What holds it.
    """

    call: Statement
    copy: Statement
    factor: Load
    path: tuple[Loop, ...]
    columns: tuple[str, ...]
    buffer: Buffer

    @property
    def write(self) -> Access:
        """Write and read its form."""
        forms = tuple(AffineForm({axis: 1}, 0) for axis in self.columns)
        return Access(self.buffer.name, forms, self.buffer.shape, write=True)

    @property
    def element(self) -> ScalarExpr:
        """Element of a sum."""
        return Load(self.buffer.name, tuple(var(axis) for axis in self.columns))


def with_corrections(nest: LoopNest) -> LoopNest:
    """The nest with the excess of its calls added up behind the copies of their factors.

    Calls stay as they are where no copy has all of a factor that a sum needs, or where there are
    few rows: to read the factor once more then takes longer than to subtract in each call.
    """
    for call in nest.statements:
        excess = _excess(nest, call)
        if excess is not None:
            nest = _added(nest, excess)
    return nest


def _excess(nest: LoopNest, call: Statement) -> _Excess | None:
    if not call.intrinsic or not find_intrinsic(call.intrinsic).corrected:
        return None
    stage, vector = nest.workload.stage(call.stage), call.loops[-1].axis
    reads = [it for it in stage.accesses if any(vector in form.axes for form in stage.forms(it))]
    if len(reads) != 1 or not isinstance(reads[0], Load):
        return None
    axes = {axis for form in stage.forms(reads[0]) for axis in form.axes}
    columns = tuple(axis.name for axis in stage.spatial_axes if axis.name in axes)
    rows = math.prod(it.extent for it in stage.spatial_axes if it.name not in axes)
    copied = call.sources.get(reads[0].tensor)
    for copy in (*nest.packing, *nest.statements):
        if copy.role != "pack" or not any(
            it.write and it.buffer == copied for it in copy.accesses
        ):
            continue
        path = tuple(loop for loop in copy.loops if loop in call.loops)
        reduced = {axis.name for axis in stage.reduce_axes}
        if any(axis in reduced for loop in path for axis, _ in loop.parts):
            return None
        if any(loop.bound is not None for loop in call.loops):
            return None
        if rows < _LEAST_ROWS and copy not in nest.packing:
            return None
        shape = tuple(call.reach(axis, len(path)) for axis in columns)
        buffer = Buffer(f"{copied}.excess", shape, stage.output.dtype, len(path))
        return _Excess(call, copy, reads[0], path, columns, buffer)
    return None


def _added(nest: LoopNest, excess: _Excess) -> LoopNest:
    sums = [_init(excess), _sum(nest, excess)]

    def behind(statements: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(
            made for it in statements for made in (it, *(sums if it is excess.copy else ()))
        )

    def changed(statement: Statement) -> Statement:
        if statement is excess.call:
            return _shifted(statement, excess)
        starts = statement.role == "init" and statement.stage == excess.call.stage
        return _started(statement, excess) if starts else statement

    return evolve(
        nest,
        statements=behind([*map(changed, nest.statements)]),
        packing=behind(nest.packing),
        buffers=(*nest.buffers, excess.buffer),
    )


def _shifted(call: Statement, excess: _Excess) -> Statement:
    """The call with ``SHIFT`` added to the first factor."""
    body = call.body
    assert isinstance(body, Binary)
    shift = Constant(SHIFT, excess.buffer.dtype)
    sides = [
        side if _reads(side, excess.factor) else Binary("add", side, shift)
        for side in (body.left, body.right)
    ]
    return evolve(call, body=Binary(body.op, *sides))


def _reads(side: ScalarExpr, factor: Load) -> bool:
    return (side.operand if isinstance(side, Cast) else side) == factor


def _started(init: Statement, excess: _Excess) -> Statement:
    """The statement that clears sums, with the contrary of the excess."""
    read = evolve(excess.write, write=False)
    body = Binary("sub", Constant(0, excess.buffer.dtype), excess.element)
    return evolve(init, body=body, accesses=(read, *init.accesses))


def _init(excess: _Excess) -> Statement:
    columns, _ = _loops(excess)
    vector = _own(excess, len(excess.call.loops) - 1, ".init")
    loops = (*excess.path, *columns, *vector)
    name = f"{excess.buffer.name}.init"
    return Statement(name, excess.call.stage, "init", loops, (excess.write,))


def _sum(nest: LoopNest, excess: _Excess) -> Statement:
    columns, inner = _loops(excess)
    dtype, factor = excess.buffer.dtype, excess.factor
    body = Binary("mul", Constant(SHIFT, dtype), Cast(dtype, factor))
    copied = excess.call.sources[factor.tensor]
    read = next(it for it in excess.call.accesses if it.buffer == copied)
    return Statement(
        excess.buffer.name,
        excess.call.stage,
        "compute",
        (*excess.path, *columns, *inner),
        (read, evolve(excess.write, write=False), excess.write),
        {"mul": 1, "add": 1},
        body,
        {factor.tensor: copied},
        intrinsic=excess.call.intrinsic,
    )


def _loops(excess: _Excess) -> tuple[list[Loop], list[Loop]]:
    """Loops over blocks of columns, and over what is summed and the call in them.

    Where there are none around, those over columns are one parallel loop.
    """
    call = excess.call
    calls = len(find_intrinsic(call.intrinsic).axes)
    columns: list[Loop] = []
    summed: list[Loop] = []
    for depth in range(len(excess.path), len(call.loops) - calls):
        for loop in _own(excess, depth):
            (columns if loop.axis in excess.columns else summed).append(loop)
    if columns and not excess.path:
        columns = [_fused(columns)]
    inner = [
        it for at in range(len(call.loops) - calls, len(call.loops)) for it in _own(excess, at)
    ]
    return columns, [*summed, *inner]


def _own(excess: _Excess, depth: int, suffix: str = "") -> list[Loop]:
    """The parts of a loop of the call that move what the excess is made of."""
    loop = excess.call.loops[depth]
    moved = {axis for form in _forms(excess) for axis in form.axes}
    found: list[Loop] = []
    for position, (axis, extent) in enumerate(loop.parts):
        if axis in moved:
            name = f"{excess.buffer.name}.{axis}.{depth}{suffix}"
            kind = "vectorized" if loop.kind == "vectorized" else "serial"
            units: tuple[IntExpr | None, ...] = loop.units[position : position + 1]
            found.append(Loop(name, extent, ((axis, extent),), kind, units))
    return found


def _forms(excess: _Excess) -> tuple[AffineForm, ...]:
    copied = excess.call.sources[excess.factor.tensor]
    return next(it.forms for it in excess.call.accesses if it.buffer == copied)


def _fused(loops: Sequence[Loop]) -> Loop:
    extent = product(loop.extent for loop in loops)
    parts = tuple(part for loop in loops for part in loop.parts)
    units = tuple(loop.units[0] if loop.units else None for loop in loops)
    known = units if any(unit is not None for unit in units) else ()
    return Loop("*".join(loop.name for loop in loops), extent, parts, "parallel", known)
